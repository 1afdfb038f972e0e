"""The command about cheating: audit."""

from typing import Annotated, Any

import typer

from mlagentbench.options import AsJson, print_json
from mlagentbench.stopping import terminable

Tasks = Annotated[list[str] | None, typer.Argument(metavar="TASK...", help="Tasks; all of them by default.")]
MARKS = {"refused": "refused", "gained nothing": "nothing", "SUCCEEDED": "SUCCEEDED"}
WIDTH = 10  # of a column


def audit(
    tasks: Tasks = None,
    attacks: Annotated[list[str] | None, typer.Option("--attack", help="An attack; may be repeated.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Leave out what is slow or the same on every task.")] = False,
    as_json: AsJson = False,
) -> None:
    """Let scripted cheaters and vandals loose on tasks, and tell whether one got anywhere."""
    from mlagentbench.audit.audit import audit as conduct
    from mlagentbench.task import Task
    from mlagentbench.words import plain, say

    def told(finding: Any) -> None:
        say(plain(f"{finding.attack} on {finding.task}: {finding.outcome}: {finding.what} [{finding.seconds:.1f} s]"))

    with terminable():  # what it has planted is taken away again
        findings = conduct(tasks or Task.names(), attacks or [], quick, say, told)
    succeeded = [finding for finding in findings if finding.outcome == "SUCCEEDED"]
    if as_json:
        print_json([finding.model_dump(mode="json") for finding in findings])
    else:
        for line in table(findings):
            print(line)
        for finding in succeeded:
            print(plain(f"{finding.attack} SUCCEEDED on {finding.task}: {finding.what}"))
        print(f"{len(findings)} attacks, {len(succeeded)} succeeded")
    if succeeded:
        raise typer.Exit(1)


def table(findings: list[Any]) -> list[str]:
    """Attack by task."""
    tasks = list(dict.fromkeys(finding.task for finding in findings))
    marks = {(finding.attack, finding.task): MARKS[finding.outcome] for finding in findings}
    first = max([len(attack) for attack, _ in marks] + [6]) + 2
    rows = {"attack": tasks}
    rows |= {finding.attack: [marks.get((finding.attack, task), "-") for task in tasks] for finding in findings}
    return [
        (name.ljust(first) + " ".join(cell[:WIDTH].ljust(WIDTH) for cell in row)).rstrip() for name, row in rows.items()
    ]
