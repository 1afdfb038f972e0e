"""python -m mlagentbench, and the command mlagentbench."""

import gc
import os
import sys

GC_THRESHOLDS = (20_000, 10, 10)  # new objects before a collection: importing creates many, and no garbage


def main() -> None:
    """Run the command line; Ctrl-C is never a traceback, however early it comes."""
    gc.set_threshold(*GC_THRESHOLDS)
    # Looking for plugins of pydantic reads the metadata of every installed package.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    try:
        from mlagentbench.system import stdio

        stdio.harden_stdio()
        from mlagentbench.cli.app import main as run_command_line
    except KeyboardInterrupt:
        sys.exit(130)
    run_command_line()


if __name__ == "__main__":
    main()
