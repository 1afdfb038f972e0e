"""A run as it happens: one panel that redraws itself in a terminal, plain lines in a pipe."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from mlagentbench.environment import Environment
from mlagentbench.records import Call, Step
from mlagentbench.runner.run import Watcher
from mlagentbench.terminal.words import duration, last_line, say

SHOWN = 8


@contextmanager
def watching() -> Iterator[Watcher]:
    """Something that follows the run that it is given."""
    if not sys.stderr.isatty():
        yield _print_steps
        return
    view = _View()
    with Live(view, console=Console(stderr=True), refresh_per_second=5, transient=True):
        yield view.follow


def _print_steps(env: Environment) -> None:
    def show(step: Step) -> None:
        say(f"{step.number:>4}  {duration(step.clock):>12}  {told(step.call)}: {last_line(step.observation, 80)}")

    env.on_step = show


def told(call: Call, width: int = 60) -> str:
    """A call in a few words."""
    first = next(iter(call.args.values()), "")
    return f"{call.action} {str(first).splitlines()[0] if first else ''}".strip()[:width]


class _View:
    """Reads the environment whenever it is drawn; the run itself never waits for it."""

    def __init__(self) -> None:
        self.env: Environment | None = None

    def follow(self, env: Environment) -> None:
        self.env = env

    def __rich__(self) -> Table:
        table = Table.grid(padding=(0, 2))
        env = self.env
        if env is None:
            return table
        limits = env.spec.limits
        for step in env.steps[-SHOWN:]:
            mark = "[red]✗[/]" if step.failed else "[green]✓[/]"
            seen = Text(last_line(step.observation, 70), style="dim")
            table.add_row(f"{mark} {step.number}", Text(told(step.call)), duration(step.seconds), seen)
        if env.current:
            line = env.world.output.last_line if env.world.output else ""
            table.add_row(f"[yellow]▸[/] {len(env.steps) + 1}", Text(told(env.current)), "", Text(line[:70]))
        left = f"{limits.steps - len(env.steps)} steps and {duration(env.seconds_left)} left"
        head = f"[bold]{env.task.name}[/] · {env.spec.agent} · {duration(env.clock)} so far, {left}"
        outer = Table.grid()
        outer.add_row(head)
        outer.add_row(table)
        return outer
