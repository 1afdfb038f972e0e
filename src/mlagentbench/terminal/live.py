"""The live display of a run: a panel that is redrawn in a terminal, plain lines in a pipe."""

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
MAX_LINE_CHARS = 80  # of a step's summary in a pipe
MAX_PANEL_CHARS = 70  # of a step's summary in the panel


@contextmanager
def live_display() -> Iterator[EnvironmentCallback]:
    """A callback that displays the progress of the run it is given."""
    with ExitStack() as stack:

        def follow(env: Environment) -> None:
            for model in env.model_calls.models.values():
                model.on_retry = _print_notice
            env.on_notice = _print_notice
            # A panel would overwrite what a person types.
            if sys.stderr.isatty() and not env.spec.interactive:
                console = Console(stderr=True)
                stack.enter_context(
                    Live(LivePanel(env), console=console, refresh_per_second=5, transient=True)
                )
            else:
                env.on_step = _print_step

        yield follow


def _print_notice(line: str) -> None:
    """Print a line, which appears above the panel if there is one."""
    print_progress(strip_control_chars(line))


def _print_step(step: Step) -> None:
    elapsed = format_duration(step.clock)
    summary = _summarize_step(step, MAX_LINE_CHARS)
    print_progress(f"{step.number:>4}  {elapsed:>12}  {summarize_call(step.call)}: {summary}")


def _summarize_step(step: Step, width: int) -> str:
    """The agent's thought, if any; for scripts and failures the last line of the output."""
    thought = "" if step.execution or step.failed else step.call.thought
    return last_line(thought or step.observation, width)


class LivePanel:
    """Reads the environment each time it is drawn; the run never waits for it."""

    def __init__(self, env: Environment) -> None:
        self.env = env

    def __rich__(self) -> Table:
        panel = Table.grid()
        panel.add_row(Text(self._title(), "bold"))
        panel.add_row(self._steps())
        return panel

    def _title(self) -> str:
        env, calls = self.env, self.env.model_calls
        agent = f"{env.spec.agent} {env.spec.model}".strip()
        cost = f", {calls.tokens:,} tokens, ${calls.dollars:.2f}" if calls.models else ""
        steps_left = env.spec.limits.steps - len(env.steps)
        left = f"{steps_left} steps and {format_duration(env.seconds_left)} left"
        return f"{env.task.name} · {agent} · {format_duration(env.elapsed_seconds)}{cost} so far, {left}"

    def _steps(self) -> Table:
        env = self.env
        table = Table.grid(padding=(0, 2))
        for step in env.steps[-MAX_STEPS_SHOWN:]:
            mark = Text("✗ ", "red") if step.failed else Text("✓ ", "green")
            action, duration = Text(summarize_call(step.call)), format_duration(step.seconds)
            summary = Text(_summarize_step(step, MAX_PANEL_CHARS), "dim")
            table.add_row(mark + str(step.number), action, duration, summary)
        call, output = env.current_call, env.context.output
        current_mark = Text("▸ ", "yellow") + str(len(env.steps) + 1)
        if call:
            line = last_line(output.last_line, MAX_PANEL_CHARS) if output else ""
            duration = format_duration(env.current_step_seconds)
            table.add_row(current_mark, Text(summarize_call(call)), duration, Text(line))
        elif env.model_calls.pending_role:
            table.add_row(current_mark, Text(f"calling the {env.model_calls.pending_role} model"), "", "")
        return table
