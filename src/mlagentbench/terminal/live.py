"""A run as it happens: one panel that redraws itself in a terminal, plain lines in a pipe."""

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from mlagentbench.environment.environment import Environment
from mlagentbench.formatting import (
    format_duration,
    last_line,
    print_progress,
    strip_control_chars,
    summarize_call,
)
from mlagentbench.records import Step
from mlagentbench.runner.run import EnvironmentCallback

MAX_STEPS_SHOWN = 8


@contextmanager
def live_display() -> Iterator[EnvironmentCallback]:
    """Something that follows the run that it is given."""
    with ExitStack() as stack:

        def follow(env: Environment) -> None:
            for model in env.model_calls.models.values():
                model.on_retry = lambda line: print_progress(
                    strip_control_chars(line)
                )  # a panel moves down for it
            if (
                sys.stderr.isatty() and not env.spec.interactive
            ):  # a panel would draw over what a person types
                stack.enter_context(
                    Live(_LivePanel(env), console=Console(stderr=True), refresh_per_second=5, transient=True)
                )
            else:
                env.on_step = _print_step

        yield follow


def _print_step(step: Step) -> None:
    print_progress(
        f"{step.number:>4}  {format_duration(step.clock):>12}  {summarize_call(step.call)}: {_summarize_step(step, 80)}"
    )


def _summarize_step(step: Step, width: int) -> str:
    """What a script printed last; of other steps rather why they were done, if the agent said so."""
    why = "" if step.execution or step.failed else step.call.thought
    return last_line(why or step.observation, width)


class _LivePanel:
    """Reads the environment whenever it is drawn; the run itself never waits for it."""

    def __init__(self, env: Environment) -> None:
        self.env = env

    def __rich__(self) -> Table:
        env = self.env
        table = Table.grid(padding=(0, 2))
        for step in env.steps[-MAX_STEPS_SHOWN:]:
            mark = Text("✗ ", "red") if step.failed else Text("✓ ", "green")
            seen = Text(_summarize_step(step, 70), "dim")
            table.add_row(
                mark + str(step.number), Text(summarize_call(step.call)), format_duration(step.seconds), seen
            )
        call, output = env.current_call, env.context.output
        if call:
            line = last_line(output.last_line, 70) if output else ""
            table.add_row(
                Text("▸ ", "yellow") + str(len(env.steps) + 1), Text(summarize_call(call)), "", Text(line)
            )
        elif env.model_calls.pending_role:
            table.add_row(
                Text("▸ ", "yellow") + str(len(env.steps) + 1),
                Text(f"asks the {env.model_calls.pending_role} model"),
                "",
                "",
            )
        left = f"{env.spec.limits.steps - len(env.steps)} steps and {format_duration(env.seconds_left)} left"
        outer = Table.grid()
        who = f"{env.spec.agent} {env.spec.model}".strip()
        spent = (
            f", {env.model_calls.tokens:,} tokens, ${env.model_calls.dollars:.2f}"
            if env.model_calls.models
            else ""
        )
        outer.add_row(
            Text(
                f"{env.task.name} · {who} · {format_duration(env.elapsed_seconds)}{spent} so far, {left}",
                "bold",
            )
        )
        outer.add_row(table)
        return outer
