"""A batch as it goes on: a table that redraws itself in a terminal, a line for each run that ends in a pipe."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from mlagentbench.runner.batch.conduct import Ended
from mlagentbench.runner.batch.standing import Standing
from mlagentbench.runner.batch.survey import Totals, View
from mlagentbench.words import command, duration, number, plain, say

STYLES = {"running": "yellow", "finished": "green", "fault": "red", "stopped": "magenta", "queued": "dim"}
BESIDES = 6  # lines of a terminal that are not for runs


@contextmanager
def drawing() -> Iterator[Callable[[View], None]]:
    """Something that is given one view after another."""
    console = Console(stderr=True)
    if not sys.stderr.isatty():
        yield Lines().show
        return
    with Live(console=console, auto_refresh=False, transient=True) as live:
        yield lambda view: live.update(table(view, console.height - BESIDES), refresh=True)


class Lines:
    """Tells of each run once that it ended, and of nothing that was so from the beginning."""

    def __init__(self) -> None:
        self._states: dict[str, tuple[str, int]] | None = None

    def show(self, view: View) -> None:
        """Say what is new."""
        before, self._states = self._states, {each.name: (each.state, each.faults) for each in view.standings}
        if before is None:
            say(totals(view.totals))
            return
        for each in view.standings:
            was = before.get(each.name)
            if each.state in ("finished", "fault") and was != self._states[each.name]:
                say(f"{each.name}: {outcome(each)}")
            elif each.state == "stopped" and was and was[0] == "running":  # and not just about to begin
                say(f"{each.name}: stopped after {each.steps} steps")


def table(view: View, rows: int) -> Table:
    """The totals, and one line for each run that is under way; with nothing under way, all of them."""
    chosen = [each for each in view.standings if each.state == "running"] or list(view.standings)
    outer, inner = Table.grid(), Table.grid(padding=(0, 2))
    for each in chosen[: max(rows, 1)]:
        who = " ".join(filter(None, (each.agent, each.model)))
        cells = (each.task, who, str(each.seed), f"step {each.steps}", duration(each.seconds), spend(each))
        inner.add_row(Text(each.state, STYLES[each.state]), *map(Text, map(plain, cells)), Text(outcome(each), "dim"))
    outer.add_row(Text(totals(view.totals), "bold"))
    outer.add_row(inner)
    if len(chosen) > rows:
        outer.add_row(Text(f"and {len(chosen) - max(rows, 1)} more", "dim"))
    return outer


def totals(sums: Totals) -> str:
    """The sums in one line."""
    told = f"{sums.done} of {sums.runs} done ({sums.success} success, {sums.invalid} invalid)"
    for name in ("fault", "running", "stopped", "queued"):
        if count := getattr(sums, name):
            told += f", {count} {name}"
    told += f", {sums.unplanned} of an earlier plan" if sums.unplanned else ""
    told += f" · {sums.hours:.2f} h" if sums.hours >= 0.01 else ""
    told += f", {sums.tokens:,} tokens, ${sums.dollars:.2f}" if sums.tokens else ""
    if sums.seconds_left and sums.done < sums.runs:
        told += f" · about {duration(sums.seconds_left)} left"
    return told


def spend(each: Standing) -> str:
    """What models cost."""
    return f"${each.dollars:.2f}" if each.tokens else ""


def outcome(each: Standing) -> str:
    """What came of a run, or what it does now."""
    if each.state == "fault":
        return plain(f"fault {each.faults}: {each.note}")
    if each.state != "finished":
        return plain(each.action or each.note)
    verdict = "success" if each.success else "no success" if each.valid else f"invalid: {each.note}"
    return plain(f"{number(each.score)}, {verdict} ({each.ending} after {each.steps} steps, {duration(each.seconds)})")


def summary(ended: Ended, folder: Path) -> Iterator[str]:
    """What to know when it is over."""
    yield totals(ended.view.totals)
    for name, trouble in ended.troubles.items():
        yield f"{name}: {plain(trouble)}"
    for each in ended.view.standings:
        if each.planned and each.state == "fault" and each.name not in ended.troubles:
            yield f"{each.name}: given up after {each.faults} tries: {plain(each.note)}"
    if ended.reason:
        yield f"{plain(ended.reason)}; everything is kept, and the same command goes on"
    yield f"look at it with: {command('watch', str(folder))}"
