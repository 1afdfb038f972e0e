"""The progress of a batch: a table that is redrawn in a terminal, one line per finished run in a pipe."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from mlagentbench.formatting import (
    format_command,
    format_duration,
    format_score,
    print_progress,
    strip_control_chars,
)
from mlagentbench.runner.batch.batch_status import BatchStatus, BatchTotals
from mlagentbench.runner.batch.orchestrator import BatchOutcome
from mlagentbench.runner.batch.run_status import RunStatus

STATE_STYLES = {
    "running": "yellow",
    "finished": "green",
    "fault": "red",
    "stopped": "magenta",
    "queued": "dim",
}
RESERVED_LINES = 6  # of the terminal's height, not used for runs


@contextmanager
def progress_display() -> Iterator[Callable[[BatchStatus], None]]:
    """A callback that displays each status it is given."""
    console = Console(stderr=True)
    if not sys.stderr.isatty():
        yield ProgressLines().show
        return
    with Live(console=console, auto_refresh=False, transient=True) as live:
        yield lambda status: live.update(status_table(status, console.height - RESERVED_LINES), refresh=True)


class ProgressLines:
    """Prints one line for each run that ends; runs that had ended before are not printed."""

    def __init__(self) -> None:
        self._states: dict[str, tuple[str, int]] | None = None

    def show(self, status: BatchStatus) -> None:
        """Print what changed since the last status."""
        before, self._states = self._states, {run.name: (run.state, run.faults) for run in status.runs}
        if before is None:
            print_progress(format_totals(status.totals))
            return
        for run in status.runs:
            previous = before.get(run.name)
            if run.state in ("finished", "fault") and previous != self._states[run.name]:
                print_progress(f"{run.name}: {format_run_outcome(run)}")
            # A run that is about to start is "stopped", too.
            elif run.state == "stopped" and previous and previous[0] == "running":
                print_progress(f"{run.name}: stopped after {run.steps} steps")


def status_table(status: BatchStatus, max_rows: int) -> Table:
    """The totals and one row per running run; if none is running, one row for every run."""
    runs = [run for run in status.runs if run.state == "running"] or list(status.runs)
    max_rows = max(max_rows, 1)
    outer, inner = Table.grid(), Table.grid(padding=(0, 2))
    for run in runs[:max_rows]:
        agent = " ".join(filter(None, (run.agent, run.model)))
        duration = format_duration(run.seconds)
        cells = (run.task, agent, str(run.seed), f"step {run.steps}", duration, format_cost(run))
        inner.add_row(
            Text(run.state, STATE_STYLES[run.state]),
            *map(Text, map(strip_control_chars, cells)),
            Text(format_run_outcome(run), "dim"),
        )
    outer.add_row(Text(format_totals(status.totals), "bold"))
    outer.add_row(inner)
    if len(runs) > max_rows:
        outer.add_row(Text(f"and {len(runs) - max_rows} more", "dim"))
    return outer


def format_totals(totals: BatchTotals) -> str:
    """The totals of a batch in one line."""
    text = f"{totals.done} of {totals.runs} done ({totals.success} success, {totals.invalid} invalid)"
    for name in ("fault", "running", "stopped", "queued"):
        if count := getattr(totals, name):
            text += f", {count} {name}"
    text += f", {totals.unplanned} from an earlier plan" if totals.unplanned else ""
    text += f" · {totals.hours:.2f} h" if totals.hours >= 0.01 else ""
    text += f", {totals.tokens:,} tokens, ${totals.dollars:.2f}" if totals.tokens else ""
    if totals.seconds_left and totals.done < totals.runs:
        text += f" · about {format_duration(totals.seconds_left)} left"
    return text


def format_cost(run: RunStatus) -> str:
    """The cost of model calls; empty if there were none."""
    return f"${run.dollars:.2f}" if run.tokens else ""


def format_run_outcome(run: RunStatus) -> str:
    """The outcome of a run, or its current action."""
    if run.state == "fault":
        return strip_control_chars(f"fault {run.faults}: {run.note}")
    if run.state != "finished":
        return strip_control_chars(run.action or run.note)
    verdict = f"invalid: {run.note}"
    if run.valid:
        verdict = "not judged" if run.success is None else "success" if run.success else "no success"
    ending = f"{run.ending} after {run.steps} steps, {format_duration(run.seconds)}"
    return strip_control_chars(f"{format_score(run.score)}, {verdict} ({ending})")


def summarize_batch(outcome: BatchOutcome, folder: Path) -> Iterator[str]:
    """The lines to print at the end of a batch."""
    yield format_totals(outcome.status.totals)
    for name, error in outcome.errors.items():
        yield f"{name}: {strip_control_chars(error)}"
    for run in outcome.status.runs:
        if run.planned and run.state == "fault" and run.name not in outcome.errors:
            yield f"{run.name}: gave up after {run.faults} attempts: {strip_control_chars(run.note)}"
    if outcome.stop_reason:
        reason = strip_control_chars(outcome.stop_reason)
        yield f"{reason}. All progress is saved; run the same command to continue."
    if outcome.results:
        report = format_command("report", str(folder))
        yield f"write a report with: {report} -o {report.rpartition(' ')[2].rstrip('/')}-report"
