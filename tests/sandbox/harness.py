"""A harness of its own process: runs script.py of a workspace, shows what it prints, and its end as JSON."""

import json
import os
import sys
from pathlib import Path

from mlagentbench.records import Limits
from mlagentbench.runtimes.base import runtime
from mlagentbench.sandbox.access.listening import Book
from mlagentbench.sandbox.access.record import read_access
from mlagentbench.sandbox.base import Box
from mlagentbench.sandbox.cgroups import hierarchies
from mlagentbench.sandbox.choose import sandbox
from mlagentbench.sandbox.output import Output


class Shown(Output):
    def write(self, data: bytes) -> None:
        super().write(data)
        os.write(1, data)


def main() -> None:
    isolation, workspace, marker, seconds = sys.argv[1:5]
    limits = Limits(**json.loads(sys.argv[5])) if len(sys.argv) > 5 else Limits(memory_gb=0.5, processes=64)
    owner = Path(workspace).stat().st_uid if os.geteuid() == 0 else None
    book = Book(Path(workspace)) if "LEDGER" in os.environ else None
    box = Box(Path(workspace), runtime("tabular"), limits, environment={"MARKER": marker}, owner=owner, book=book)
    place = sandbox(isolation)
    if "ANNOUNCE" in os.environ:
        os.write(1, b"starting\n")
    done = place.run(["python", "-u", "script.py"], box, float(seconds), Shown())
    told = {"limit": done.limit, "exit_code": done.exit_code, "groups": len(hierarchies())}
    if book:
        book.keep(1)
        book.close()
        told["accesses"] = [list(access.model_dump().values()) for access in read_access(Path(workspace), 1)]
    print(json.dumps(told))


if __name__ == "__main__":
    main()
