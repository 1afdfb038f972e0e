"""The process in which a task's prepare.py runs: it has no credentials, and dies with whoever started it."""

import json
import os
import sys
import threading
from pathlib import Path

from mlagentbench.discovery import load_module_from_file


def main() -> None:
    """Read the order from standard input and carry it out."""
    order = json.loads(sys.stdin.readline())
    threading.Thread(target=exit_when_stdin_closes, daemon=True).start()
    folder = Path(order["task"])
    sys.path.append(str(folder))  # for a generator.py beside it; last, so that it hides nothing
    raw, public, private = (Path(order[name]) for name in ("raw", "public", "private"))
    load_module_from_file(folder / "prepare.py").prepare(
        order["edition"], raw, public, private, order["seed"]
    )


def exit_when_stdin_closes() -> None:
    """End at once when standard input closes, which a killed parent cannot prevent."""
    while os.read(0, 4096):
        pass
    os._exit(1)


if __name__ == "__main__":
    main()
