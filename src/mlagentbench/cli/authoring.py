"""Commands for authors of tasks and agents: new, check."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mlagentbench.cli.options import AsJson, EditionName, SandboxName, print_json
from mlagentbench.errors import UsageError

if TYPE_CHECKING:
    from mlagentbench.authoring.contract import CheckOutcome

SHOWN_SECONDS = 1.0  # shorter times are not printed
STATUS_LABELS = {"pass": "PASS", "fail": "FAIL", "skip": "skip"}


def new(
    what: Annotated[str, typer.Argument(metavar="task|agent", help="What to write.")],
    name: Annotated[Path, typer.Argument(metavar="NAME", help="Its name; a path may precede it.")],
    with_model: Annotated[
        bool, typer.Option("--with-model", help="An agent that asks a language model.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Write a working skeleton of a task or an agent. A task is a folder, an agent is a file."""
    from mlagentbench.authoring.skeletons import create_agent_file, create_task

    if what not in ("task", "agent"):
        raise UsageError(f"Cannot write a new {what!r}. Available: task, agent.")
    if what == "task" and with_model:
        raise UsageError("--with-model is for: new agent")
    path = create_task(name) if what == "task" else create_agent_file(name, with_model)
    if as_json:
        print_json({"path": str(path)})
    elif what == "task":
        print(f"{path}/ is a complete task. Change it, and check it with: mlagentbench check {path}")
    else:
        model = " --model NAME" if with_model else ""
        print(f"{path} is a complete agent. Try it: mlagentbench run house-price --agent {path}{model}")


def check(
    task: Annotated[str, typer.Argument(metavar="FOLDER", help="The folder of a task, or a task's name.")],
    quick: Annotated[
        bool, typer.Option("--quick", help="Run no scripts of the task and no attacks.")
    ] = False,
    edition: EditionName = "open",
    sandbox: SandboxName = "auto",
    as_json: AsJson = False,
) -> None:
    """Check that a task keeps its contract. Files, levels, leaks, grading, solutions and attacks."""
    from mlagentbench.authoring.contract import TaskUnderTest, run_contract
    from mlagentbench.authoring.task_checks import TASK_CHECKS
    from mlagentbench.formatting import format_duration, print_progress
    from mlagentbench.system.stop_token import interrupt_on_sigterm
    from mlagentbench.task import Task

    if not Path(task).is_dir():
        Task.load(task).edition(edition)  # a wrong name is a mistake of the user, not of a task
    outcomes = []
    with interrupt_on_sigterm(), TaskUnderTest(task, edition, sandbox, print_progress) as subject:
        for outcome in run_contract(TASK_CHECKS, subject, quick):
            outcomes.append(outcome)
            if not as_json:
                _print_outcome(outcome)
    counts = {status: sum(outcome.status == status for outcome in outcomes) for status in STATUS_LABELS}
    if as_json:
        print_json({"task": task, **counts, "checks": [outcome.model_dump() for outcome in outcomes]})
    else:
        seconds = format_duration(sum(outcome.seconds for outcome in outcomes))
        print(f"{counts['pass']} passed, {counts['fail']} failed, {counts['skip']} skipped in {seconds}")
    if counts["fail"]:
        raise typer.Exit(1)


def _print_outcome(outcome: "CheckOutcome") -> None:
    """Print one line for a check, and below it what its failure is about."""
    from mlagentbench.formatting import strip_control_chars

    reason = f" ({outcome.detail})" if outcome.status == "skip" else ""
    seconds = f" [{outcome.seconds:.1f} s]" if outcome.seconds >= SHOWN_SECONDS else ""
    print(
        strip_control_chars(
            f"{STATUS_LABELS[outcome.status]}  {outcome.name}: {outcome.title}{reason}{seconds}"
        )
    )
    if outcome.status == "fail":
        for line in (*outcome.output.splitlines(), outcome.detail):
            print(strip_control_chars(f"      {line}"))
    sys.stdout.flush()
