"""Reads logs of the original MLAgentBench and tells what became of each: python examples/import_logs.py LOGS OUT"""

import sys
from pathlib import Path

from mlagentbench.adapters.original.importer import import_logs
from mlagentbench.errors import UsageError
from mlagentbench.runner.folder import RunFolder


def main() -> None:
    """Import, and print."""
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    try:
        results = import_logs([Path(sys.argv[1])], Path(sys.argv[2]), say=lambda line: None)
    except UsageError as error:
        sys.exit(str(error))
    for result in results:
        run = RunFolder(Path(result.folder))
        print(
            f"{run.path.name}: {result.task}, {result.agent} {result.model}, {result.ending}, {result.steps} steps"
        )
        for note in run.spec.imported.notes if run.spec.imported else ():
            print(f"  {note}")


if __name__ == "__main__":
    main()
