"""A run told step by step, and its verdict; what agents wrote is shown as text, and never obeyed."""

from collections.abc import Iterator, Sequence
from textwrap import indent

from rich.console import Console
from rich.panel import Panel
from rich.syntax import Syntax
from rich.text import Text

from mlagentbench.formatting import (
    describe_verdict,
    format_command,
    format_duration,
    format_percent,
    format_score,
    last_line,
    strip_control_chars,
    summarize_call,
)
from mlagentbench.records import Result, RunSpec, Step
from mlagentbench.runner.folder import RunFolder
from mlagentbench.sandbox.access_log.records import Access, read_access, unexpected_accesses

MAX_ACCESSES_SHOWN = 20  # shown of one step


def show_verdict(result: Result, spec: RunSpec, console: Console) -> None:
    """What came of a run."""
    for name, text, style in _verdict_lines(result, spec):
        console.print(Text.assemble((f"{name:<13}", "bold"), (strip_control_chars(text), style)))


def _verdict_lines(result: Result, spec: RunSpec) -> Iterator[tuple[str, str, str]]:
    who = f"{result.agent} {result.model}".strip()
    took = f"{result.steps} steps, {format_duration(result.seconds)}"
    yield "run", f"{result.task} ({result.edition} edition) · {who} · ended: {result.ending} · {took}", ""
    if spec.imported:
        yield "imported", f"from {spec.imported.program}, log {spec.imported.log}", ""
    if result.tokens:
        yield "models", f"{result.tokens:,} tokens, ${result.dollars:.4f}", ""
    yield "score", f"{format_score(result.score)}   {spec.metric} ({spec.better} is better)", ""
    if known := spec.baseline:
        yield (
            "baseline",
            f"{format_score(known.mean)} ± {format_score(known.sd)} over {known.n} runs of the starter",
            "",
        )
    if result.p_value is not None:
        yield "improvement", f"{format_percent(result.improvement)}   p = {result.p_value:.2g}", ""
    yield "verdict", describe_verdict(result), "bold green" if result.success else "bold yellow"
    if result.note and result.ending != "fault" and result.valid:
        yield "note", result.note, ""
    for violation in result.violations:
        yield "rule broken", violation, "red"
    if result.unsandboxed:
        yield "warning", "unsandboxed: nothing kept the agent from the answers", "red"
    yield "look at", format_command("show", result.folder), ""


def show_trace(folder: RunFolder, console: Console) -> None:
    """Every step in a line or three."""
    spec = folder.spec
    agent = f"{spec.agent} {spec.model}".strip()
    console.print(
        Text.assemble((spec.task, "bold"), f" ({spec.edition} edition) · {agent} · seed {spec.seed}")
    )
    for note in spec.imported.notes if spec.imported else ():
        console.print(Text(f"note: {strip_control_chars(note)}", style="dim"))
    for step in folder.steps():
        mark = ("✗", "red") if step.failed else ("✓", "green")
        head = (
            mark,
            (f" {step.number}  ", "bold"),
            summarize_call(step.call),
            (f"  {format_duration(step.seconds)}", "dim"),
        )
        console.print()
        console.print(Text.assemble(*head))
        if step.call.thought:
            console.print(Text(indent(strip_control_chars(step.call.thought), "   "), style="italic"))
        console.print(Text(f"   {last_line(step.observation, 110)}", style="dim"))
        if strays := outside_accesses(folder, step.number):
            vain = sum(each.always_refused for each in strays)
            console.print(
                Text(f"   outside its own files: {len(strays):,} tried, {vain:,} refused", style="yellow")
            )


def outside_accesses(folder: RunFolder, step: int) -> tuple[Access, ...]:
    """What the commands of a step tried outside their own files; nothing without an access ledger."""
    return unexpected_accesses(read_access(folder.path, step)) if folder.spec.record_access else ()


def show_step(step: Step, strays: Sequence[Access], console: Console) -> None:
    """A step in full."""
    action = f"  {strip_control_chars(step.call.action)}"
    console.print(
        Text.assemble((f"step {step.number}", "bold"), action, (f"  {format_duration(step.seconds)}", "dim"))
    )
    if step.call.thought:
        console.print(Text(strip_control_chars(step.call.thought), style="italic"))
    for name, value in step.call.args.items():
        console.print(Text(strip_control_chars(name), style="bold"))
        console.print(Text(strip_control_chars(str(value))))
    seen = Text(strip_control_chars(step.observation))
    if console.is_terminal:
        console.print(Panel(seen, title="observation", title_align="left"))
    else:
        console.print(Text("observation", style="bold"))
        console.print(seen)
    if step.execution and step.execution.output_file:
        console.print(Text(f"the whole output: outputs/{step.execution.output_file}", style="dim"))
    for stray in strays[:MAX_ACCESSES_SHOWN]:
        console.print(Text(f"outside its own files: {stray.summary} {stray.path!r}", style="yellow"))
    if len(strays) > MAX_ACCESSES_SHOWN:
        console.print(Text(f"and {len(strays) - MAX_ACCESSES_SHOWN:,} more in access/", style="yellow"))


def show_diff(diff: str, console: Console) -> None:
    """What a step changed in the workspace."""
    if not diff:
        console.print("no file was changed")
    elif console.is_terminal:
        console.print(Syntax(strip_control_chars(diff), "diff", background_color="default"))
    else:
        print(diff, end="")
