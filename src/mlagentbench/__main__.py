"""python -m mlagentbench, and the command mlagentbench."""

import sys


def main() -> None:
    """The command line, in a process of its own; Ctrl-C is no traceback, however early it comes."""
    try:
        from mlagentbench.system import stdio

        stdio.harden_stdio()
        from mlagentbench.cli.app import main as command_line
    except KeyboardInterrupt:
        sys.exit(130)
    command_line()


if __name__ == "__main__":
    main()
