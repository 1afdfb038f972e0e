"""A run as it happens: one panel that redraws itself in a terminal, plain lines in a pipe."""

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from mlagentbench.environment import Environment
from mlagentbench.records import Step
from mlagentbench.runner.run import Watcher
from mlagentbench.words import duration, last_line, plain, say, told

SHOWN = 8


@contextmanager
def watching() -> Iterator[Watcher]:
    """Something that follows the run that it is given."""
    with ExitStack() as stack:

        def follow(env: Environment) -> None:
            for model in env.ledger.models.values():
                model.on_wait = lambda line: say(plain(line))  # a panel moves down for it
            if sys.stderr.isatty() and not env.spec.interactive:  # a panel would draw over what a person types
                stack.enter_context(
                    Live(_View(env), console=Console(stderr=True), refresh_per_second=5, transient=True)
                )
            else:
                env.on_step = _print_step

        yield follow


def _print_step(step: Step) -> None:
    say(f"{step.number:>4}  {duration(step.clock):>12}  {told(step.call)}: {_gist(step, 80)}")


def _gist(step: Step, width: int) -> str:
    """What a script printed last; of other steps rather why they were done, if the agent said so."""
    why = "" if step.execution or step.failed else step.call.thought
    return last_line(why or step.observation, width)


class _View:
    """Reads the environment whenever it is drawn; the run itself never waits for it."""

    def __init__(self, env: Environment) -> None:
        self.env = env

    def __rich__(self) -> Table:
        env = self.env
        table = Table.grid(padding=(0, 2))
        for step in env.steps[-SHOWN:]:
            mark = Text("✗ ", "red") if step.failed else Text("✓ ", "green")
            seen = Text(_gist(step, 70), "dim")
            table.add_row(mark + str(step.number), Text(told(step.call)), duration(step.seconds), seen)
        call, output = env.current, env.world.output
        if call:
            line = last_line(output.last_line, 70) if output else ""
            table.add_row(Text("▸ ", "yellow") + str(len(env.steps) + 1), Text(told(call)), "", Text(line))
        elif env.ledger.asking:
            table.add_row(
                Text("▸ ", "yellow") + str(len(env.steps) + 1), Text(f"asks the {env.ledger.asking} model"), "", ""
            )
        left = f"{env.spec.limits.steps - len(env.steps)} steps and {duration(env.seconds_left)} left"
        outer = Table.grid()
        who = f"{env.spec.agent} {env.spec.model}".strip()
        spent = f", {env.ledger.tokens:,} tokens, ${env.ledger.dollars:.2f}" if env.ledger.models else ""
        outer.add_row(Text(f"{env.task.name} · {who} · {duration(env.clock)}{spent} so far, {left}", "bold"))
        outer.add_row(table)
        return outer
