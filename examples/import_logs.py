"""Reads logs of the original MLAgentBench and tells what became of each: python examples/import_logs.py LOGS OUT"""

import sys
from pathlib import Path

from mlagentbench.adapters.original.importing import import_logs
from mlagentbench.runner.folder import RunFolder


def main() -> None:
    """Import, and print."""
    logs, out = map(Path, sys.argv[1:3])
    for result in import_logs([logs], out, say=lambda line: None):
        run = RunFolder(Path(result.folder))
        print(f"{run.path.name}: {result.task}, {result.agent} {result.model}, {result.ending}, {result.steps} steps")
        for note in run.spec.imported.notes if run.spec.imported else ():
            print(f"  {note}")


if __name__ == "__main__":
    main()
