"""Command about security: audit."""

from typing import Annotated, Any

import typer

from mlagentbench.cli.options import AsJson, SandboxName, TaskNames, print_json
from mlagentbench.system.stop_token import interrupt_on_sigterm

OUTCOME_LABELS = {"refused": "refused", "gained nothing": "nothing", "SUCCEEDED": "SUCCEEDED"}
COLUMN_CHARS = 10


def audit(
    tasks: TaskNames = None,
    attacks: Annotated[list[str] | None, typer.Option("--attack", help="An attack; repeatable.")] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Skip slow attacks and repetitions across tasks.")
    ] = False,
    sandbox: SandboxName = "auto",
    as_json: AsJson = False,
) -> None:
    """Run scripted attacks against tasks. The table says whether any of them gained anything."""
    from mlagentbench.audit.audit import run_audit
    from mlagentbench.formatting import print_progress, strip_control_chars
    from mlagentbench.task import Task

    def print_finding(finding: Any) -> None:
        line = (
            f"{finding.attack} on {finding.task}: {finding.outcome}: {finding.what} [{finding.seconds:.1f} s]"
        )
        print_progress(strip_control_chars(line))

    with interrupt_on_sigterm():  # so that planted secrets are removed
        findings = run_audit(
            tasks or Task.names(), attacks or [], quick, print_progress, print_finding, sandbox
        )
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
    """A table of outcomes: attacks by tasks."""
    tasks = list(dict.fromkeys(finding.task for finding in findings))
    outcomes = {(finding.attack, finding.task): OUTCOME_LABELS[finding.outcome] for finding in findings}
    rows = {"attack": tasks}
    for attack in dict.fromkeys(finding.attack for finding in findings):
        rows[attack] = [outcomes.get((attack, task), "-") for task in tasks]
    first_width = max(len(name) for name in rows) + 2
    return [
        (name.ljust(first_width) + " ".join(cell[:COLUMN_CHARS].ljust(COLUMN_CHARS) for cell in row)).rstrip()
        for name, row in rows.items()
    ]
