"""The command about cheating: audit."""

from typing import Annotated, Any

import typer

from mlagentbench.cli.options import AsJson, print_json
from mlagentbench.system.stop_token import interrupt_on_sigterm

Tasks = Annotated[list[str] | None, typer.Argument(metavar="TASK...", help="Tasks; all of them by default.")]
OUTCOME_LABELS = {"refused": "refused", "gained nothing": "nothing", "SUCCEEDED": "SUCCEEDED"}
COLUMN_CHARS = 10  # of a column


def audit(
    tasks: Tasks = None,
    attacks: Annotated[list[str] | None, typer.Option("--attack", help="An attack; may be repeated.")] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Leave out what is slow or the same on every task.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Let scripted cheaters and vandals loose on tasks, and tell whether one got anywhere."""
    from mlagentbench.audit.audit import run_audit as conduct
    from mlagentbench.formatting import print_progress, strip_control_chars
    from mlagentbench.task import Task

    def told(finding: Any) -> None:
        print_progress(
            strip_control_chars(
                f"{finding.attack} on {finding.task}: {finding.outcome}: {finding.what} [{finding.seconds:.1f} s]"
            )
        )

    with interrupt_on_sigterm():  # what it has planted is taken away again
        findings = conduct(tasks or Task.names(), attacks or [], quick, print_progress, told)
    succeeded = [finding for finding in findings if finding.outcome == "SUCCEEDED"]
    if as_json:
        print_json([finding.model_dump(mode="json") for finding in findings])
    else:
        for line in format_table(findings):
            print(line)
        for finding in succeeded:
            print(strip_control_chars(f"{finding.attack} SUCCEEDED on {finding.task}: {finding.what}"))
        print(f"{len(findings)} attacks, {len(succeeded)} succeeded")
    if succeeded:
        raise typer.Exit(1)


def format_table(findings: list[Any]) -> list[str]:
    """Attack by task."""
    tasks = list(dict.fromkeys(finding.task for finding in findings))
    marks = {(finding.attack, finding.task): OUTCOME_LABELS[finding.outcome] for finding in findings}
    first = max([len(attack) for attack, _ in marks] + [6]) + 2
    rows = {"attack": tasks}
    rows |= {
        finding.attack: [marks.get((finding.attack, task), "-") for task in tasks] for finding in findings
    }
    return [
        (name.ljust(first) + " ".join(cell[:COLUMN_CHARS].ljust(COLUMN_CHARS) for cell in row)).rstrip()
        for name, row in rows.items()
    ]
