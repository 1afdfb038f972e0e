"""The process that runs a task's prepare.py: it has no credentials, and dies with its parent."""

import json
import os
import sys
import threading
from pathlib import Path

from mlagentbench.discovery import load_module_from_file
from mlagentbench.system.author_errors import format_own_traceback, locate_error


def main() -> None:
    """Read the request from stdin and call prepare()."""
    request = json.loads(sys.stdin.readline())
    threading.Thread(target=exit_when_stdin_closes, daemon=True).start()
    folder = Path(request["task"])
    sys.path.append(str(folder))  # for helper modules like generator.py; last, so that they shadow nothing
    raw, public, private = (Path(request[name]) for name in ("raw", "public", "private"))
    try:
        module = load_module_from_file(folder / "prepare.py")
        module.prepare(request["edition"], raw, public, private, request["seed"])
    except Exception as error:  # noqa: BLE001 - a task's code may raise anything
        sys.stdout.flush()  # what it printed comes before the error
        sys.stderr.write(format_own_traceback(error, folder))
        sys.exit(locate_error(error, folder))


def exit_when_stdin_closes() -> None:
    """Exit at once when stdin closes, which happens even if the parent is killed."""
    while os.read(0, 4096):
        pass
    os._exit(1)


if __name__ == "__main__":
    main()
