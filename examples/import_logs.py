"""Imports logs of the original MLAgentBench and lists the runs: python examples/import_logs.py LOGS OUT"""

import sys
from pathlib import Path

from mlagentbench.adapters.original.importer import import_logs
from mlagentbench.errors import UsageError
from mlagentbench.runner.folder import RunFolder
from mlagentbench.system.progress import ignore_progress


def main() -> None:
    """Import the logs and print one line per run, with the notes of the import."""
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    try:
        results = import_logs([Path(sys.argv[1])], Path(sys.argv[2]), progress=ignore_progress)
    except UsageError as error:
        sys.exit(str(error))
    for result in results:
        run = RunFolder(Path(result.folder))
        agent = f"{result.agent} {result.model}"
        print(f"{run.path.name}: {result.task}, {agent}, {result.ending}, {result.steps} steps")
        for note in run.spec.imported.notes if run.spec.imported else ():
            print(f"  {note}")


if __name__ == "__main__":
    main()
