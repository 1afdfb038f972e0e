"""python -m mlagentbench, and the command mlagentbench."""

import sys


def main() -> None:
    """Run the command line; Ctrl-C is never a traceback, however early it comes."""
    try:
        from mlagentbench.system import stdio

        stdio.harden_stdio()
        from mlagentbench.cli.app import main as run_command_line
    except KeyboardInterrupt:
        sys.exit(130)
    run_command_line()


if __name__ == "__main__":
    main()
