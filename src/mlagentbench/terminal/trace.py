"""The trace and the verdict of a run. Text of agents is printed without control characters."""

from collections.abc import Iterator, Sequence
from textwrap import indent

from rich.console import Console
from rich.panel import Panel
from rich.text import Text

from mlagentbench.formatting import (
    action_title,
    describe_verdict,
    format_command,
    format_duration,
    format_percent,
    format_quantity,
    format_score,
    last_line,
    name_arguments,
    strip_control_chars,
    summarize_call,
)
from mlagentbench.records import Result, RunSpec, Step
from mlagentbench.runner.folder import RunFolder
from mlagentbench.sandbox.access_log.records import Access, read_access, unexpected_accesses

MAX_ACCESSES_SHOWN = 20  # of one step
MAX_SUMMARY_CHARS = 110


def show_verdict(result: Result, spec: RunSpec, console: Console) -> None:
    """Print the verdict of a run and the numbers behind it."""
    for label, text, style in _verdict_lines(result, spec):
        console.print(Text.assemble((f"{label:<13}", "bold"), (strip_control_chars(text), style)))


def _verdict_lines(result: Result, spec: RunSpec) -> Iterator[tuple[str, str, str]]:
    """Label, text and style of each line."""
    agent = f"{result.agent} {result.model}".strip()
    usage = f"{result.steps} steps, {format_duration(result.seconds)}"
    yield "run", f"{result.task} ({result.edition} edition) · {agent} · ended: {result.ending} · {usage}", ""
    if spec.imported:
        yield "imported", f"from {spec.imported.program}, log {spec.imported.log}", ""
    if result.tokens:
        yield "models", f"{result.tokens:,} tokens, ${result.dollars:.4f}", ""
    yield "score", f"{format_score(result.score)}   {spec.metric} ({spec.better} is better)", ""
    if baseline := spec.baseline:
        spread = f"{format_score(baseline.mean)} ± {format_score(baseline.sd)}"
        yield "baseline", f"{spread} over {format_quantity(baseline.n, 'run')} of the {spec.start}", ""
    if result.progress is not None:
        yield "progress", f"{format_percent(result.progress)}   0% is the starter, 100% the expert", ""
    if result.p_value is not None:
        gap = f"   gap closed {format_percent(result.gap_closed)}" if result.gap_closed is not None else ""
        yield "improvement", f"{format_percent(result.improvement)}{gap}   p = {result.p_value:.2g}", ""
    yield "verdict", describe_verdict(result), "bold green" if result.success else "bold yellow"
    if result.note and result.ending != "fault" and result.valid:
        yield "note", result.note, ""
    for violation in result.violations:
        yield "violation", violation, "red"
    if result.unsandboxed:
        yield "warning", "unsandboxed: nothing prevented the agent from reading the answers", "red"
    yield "details", format_command("show", str(result.folder)), ""


def show_trace(folder: RunFolder, console: Console) -> None:
    """Print every step in one to four lines."""
    spec = folder.spec
    agent = f"{spec.agent} {spec.model}".strip()
    console.print(
        Text.assemble((spec.task, "bold"), f" ({spec.edition} edition) · {agent} · seed {spec.seed}")
    )
    for note in spec.imported.notes if spec.imported else ():
        console.print(Text(f"note: {strip_control_chars(note)}", style="dim"))
    for step in folder.steps():
        mark = ("✗", "red") if step.failed else ("✓", "green")
        number, duration = (f" {step.number}  ", "bold"), (f"  {format_duration(step.seconds)}", "dim")
        console.print()
        console.print(Text.assemble(mark, number, summarize_call(step.call), duration))
        if step.call.thought:
            console.print(Text(indent(strip_control_chars(step.call.thought), "   "), style="italic"))
        console.print(Text(f"   {last_line(step.observation, MAX_SUMMARY_CHARS)}", style="dim"))
        if accesses := read_unexpected_accesses(folder, step.number):
            refused = sum(access.always_refused for access in accesses)
            counts = f"{len(accesses):,} attempted, {refused:,} refused"
            console.print(Text(f"   unexpected accesses: {counts}", style="yellow"))


def read_unexpected_accesses(folder: RunFolder, step: int) -> tuple[Access, ...]:
    """The unexpected accesses of a step; empty for a run without an access log."""
    return unexpected_accesses(read_access(folder.path, step)) if folder.spec.record_access else ()


def show_step(step: Step, accesses: Sequence[Access], console: Console) -> None:
    """Print one step completely."""
    action = f"  {strip_control_chars(action_title(step.call))}"
    console.print(
        Text.assemble((f"step {step.number}", "bold"), action, (f"  {format_duration(step.seconds)}", "dim"))
    )
    if step.call.thought:
        console.print(Text(strip_control_chars(step.call.thought), style="italic"))
    for name, value in name_arguments(step.call):
        console.print(Text(strip_control_chars(name), style="bold"))
        console.print(Text(strip_control_chars(str(value))))
    observation = Text(strip_control_chars(step.observation))
    if console.is_terminal:
        console.print(Panel(observation, title="observation", title_align="left"))
    else:
        console.print(Text("observation", style="bold"))
        console.print(observation)
    if step.execution and step.execution.output_file:
        console.print(Text(f"full output: outputs/{step.execution.output_file}", style="dim"))
    for access in accesses[:MAX_ACCESSES_SHOWN]:
        console.print(Text(f"unexpected access: {access.summary} {access.path!r}", style="yellow"))
    if len(accesses) > MAX_ACCESSES_SHOWN:
        console.print(Text(f"and {len(accesses) - MAX_ACCESSES_SHOWN:,} more in access/", style="yellow"))


def show_diff(diff: str, console: Console) -> None:
    """Print the workspace changes of a step."""
    if not diff:
        console.print("no files changed")
    elif console.is_terminal:
        from rich.syntax import Syntax  # every run would import it and pygments

        console.print(Syntax(strip_control_chars(diff), "diff", background_color="default"))
    else:
        print(diff, end="")
