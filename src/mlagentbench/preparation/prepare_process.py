"""The process that runs a task's prepare.py: it has no credentials, and dies with its parent."""

import json
import os
import sys
import threading
import traceback
from pathlib import Path

from mlagentbench.discovery import load_module_from_file


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
        traceback.print_exc()
        sys.exit(format_location(error, folder))


def format_location(error: Exception, folder: Path) -> str:
    """Format an error in one line, with the last line of the task's own code that was running."""
    message = " ".join(f"{type(error).__name__}: {error}".split())
    own_frames = [
        frame for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename).parent == folder
    ]
    if not own_frames:
        return message
    return f"{message} ({Path(own_frames[-1].filename).name}, line {own_frames[-1].lineno})"


def exit_when_stdin_closes() -> None:
    """Exit at once when stdin closes, which happens even if the parent is killed."""
    while os.read(0, 4096):
        pass
    os._exit(1)


if __name__ == "__main__":
    main()
