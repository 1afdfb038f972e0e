"""The process in which a task's prepare.py runs: it has no credentials, and dies with whoever started it."""

import json
import os
import sys
import threading
from pathlib import Path

from mlagentbench.discovery import module_at


def main() -> None:
    """Read the order from standard input and carry it out."""
    order = json.loads(sys.stdin.readline())
    threading.Thread(target=die_with_parent, daemon=True).start()
    folder = Path(order["task"])
    sys.path.append(str(folder))  # for a generator.py beside it; last, so that it hides nothing
    raw, public, private = (Path(order[name]) for name in ("raw", "public", "private"))
    module_at(folder / "prepare.py").prepare(order["edition"], raw, public, private, order["seed"])


def die_with_parent() -> None:
    """End at once when standard input closes, which a killed parent cannot prevent."""
    while os.read(0, 4096):
        pass
    os._exit(1)


if __name__ == "__main__":
    main()
