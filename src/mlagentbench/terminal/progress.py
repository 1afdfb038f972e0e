"""A batch as it goes on: a table that redraws itself in a terminal, a line for each run that ends in a pipe."""

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
RESERVED_LINES = 6  # lines of a terminal that are not for runs


@contextmanager
def progress_display() -> Iterator[Callable[[BatchStatus], None]]:
    """Something that is given one view after another."""
    console = Console(stderr=True)
    if not sys.stderr.isatty():
        yield ProgressLines().show
        return
    with Live(console=console, auto_refresh=False, transient=True) as live:
        yield lambda view: live.update(status_table(view, console.height - RESERVED_LINES), refresh=True)


class ProgressLines:
    """Tells of each run once that it ended, and of nothing that was so from the beginning."""

    def __init__(self) -> None:
        self._states: dict[str, tuple[str, int]] | None = None

    def show(self, view: BatchStatus) -> None:
        """Say what is new."""
        before, self._states = self._states, {each.name: (each.state, each.faults) for each in view.runs}
        if before is None:
            print_progress(format_totals(view.totals))
            return
        for each in view.runs:
            was = before.get(each.name)
            if each.state in ("finished", "fault") and was != self._states[each.name]:
                print_progress(f"{each.name}: {format_outcome(each)}")
            elif each.state == "stopped" and was and was[0] == "running":  # and not just about to begin
                print_progress(f"{each.name}: stopped after {each.steps} steps")


def status_table(view: BatchStatus, rows: int) -> Table:
    """The totals, and one line for each run that is under way; with nothing under way, all of them."""
    chosen = [each for each in view.runs if each.state == "running"] or list(view.runs)
    outer, inner = Table.grid(), Table.grid(padding=(0, 2))
    for each in chosen[: max(rows, 1)]:
        who = " ".join(filter(None, (each.agent, each.model)))
        cells = (
            each.task,
            who,
            str(each.seed),
            f"step {each.steps}",
            format_duration(each.seconds),
            format_cost(each),
        )
        inner.add_row(
            Text(each.state, STATE_STYLES[each.state]),
            *map(Text, map(strip_control_chars, cells)),
            Text(format_outcome(each), "dim"),
        )
    outer.add_row(Text(format_totals(view.totals), "bold"))
    outer.add_row(inner)
    if len(chosen) > rows:
        outer.add_row(Text(f"and {len(chosen) - max(rows, 1)} more", "dim"))
    return outer


def format_totals(sums: BatchTotals) -> str:
    """The sums in one line."""
    told = f"{sums.done} of {sums.runs} done ({sums.success} success, {sums.invalid} invalid)"
    for name in ("fault", "running", "stopped", "queued"):
        if count := getattr(sums, name):
            told += f", {count} {name}"
    told += f", {sums.unplanned} of an earlier plan" if sums.unplanned else ""
    told += f" · {sums.hours:.2f} h" if sums.hours >= 0.01 else ""
    told += f", {sums.tokens:,} tokens, ${sums.dollars:.2f}" if sums.tokens else ""
    if sums.seconds_left and sums.done < sums.runs:
        told += f" · about {format_duration(sums.seconds_left)} left"
    return told


def format_cost(each: RunStatus) -> str:
    """What models cost."""
    return f"${each.dollars:.2f}" if each.tokens else ""


def format_outcome(each: RunStatus) -> str:
    """What came of a run, or what it does now."""
    if each.state == "fault":
        return strip_control_chars(f"fault {each.faults}: {each.note}")
    if each.state != "finished":
        return strip_control_chars(each.action or each.note)
    verdict = "success" if each.success else "no success" if each.valid else f"invalid: {each.note}"
    return strip_control_chars(
        f"{format_score(each.score)}, {verdict} ({each.ending} after {each.steps} steps, {format_duration(each.seconds)})"
    )


def summarize_batch(ended: BatchOutcome, folder: Path) -> Iterator[str]:
    """What to know when it is over."""
    yield format_totals(ended.status.totals)
    for name, trouble in ended.errors.items():
        yield f"{name}: {strip_control_chars(trouble)}"
    for each in ended.status.runs:
        if each.planned and each.state == "fault" and each.name not in ended.errors:
            yield f"{each.name}: given up after {each.faults} tries: {strip_control_chars(each.note)}"
    if ended.stop_reason:
        yield f"{strip_control_chars(ended.stop_reason)}. All progress is saved; run the same command to continue."
    yield f"look at it with: {format_command('watch', str(folder))}"
