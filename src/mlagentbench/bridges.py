"""The commands that join this benchmark to other programs."""

from pathlib import Path
from typing import Annotated

import typer

from mlagentbench.options import AsJson, print_json


def import_(
    logs: Annotated[list[Path], typer.Argument(metavar="LOGS...", help="Log folders, or folders of those.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="Where the runs go, a folder each.")] = Path("runs/imported"),
    task: Annotated[str, typer.Option("--task", help="The original's name of the task, if the logs do not say.")] = "",
    scores: Annotated[list[Path] | None, typer.Option("--scores", help="A result of MLAgentBench.eval.")] = None,
    grade: Annotated[str, typer.Option("--grade", help="Grade on our data, where it is the same: an edition.")] = "",
    as_json: AsJson = False,
) -> None:
    """Make runs of ours from log folders of the original MLAgentBench."""
    from mlagentbench.adapters.original.importing import import_logs
    from mlagentbench.words import judgement, say

    results = import_logs(logs, out, task, scores or (), grade, say)
    if as_json:
        print_json([result.model_dump(mode="json") for result in results])
        return
    for result in results:
        print(f"{result.folder}: {judgement(result)}")
