"""A run told step by step, and its verdict; what agents wrote is shown as text, and never obeyed."""

from collections.abc import Iterator, Sequence
from textwrap import indent

from rich.console import Console
from rich.panel import Panel
from rich.syntax import Syntax
from rich.text import Text

from mlagentbench.records import Result, RunSpec, Step
from mlagentbench.runner.folder import RunFolder
from mlagentbench.sandbox.access.record import Access, foreign, read_access
from mlagentbench.words import command, duration, judgement, last_line, number, percent, plain, told

STRAYS = 20  # shown of one step


def verdict(result: Result, spec: RunSpec, console: Console) -> None:
    """What came of a run."""
    for name, text, style in _verdict(result, spec):
        console.print(Text.assemble((f"{name:<13}", "bold"), (plain(text), style)))


def _verdict(result: Result, spec: RunSpec) -> Iterator[tuple[str, str, str]]:
    who = f"{result.agent} {result.model}".strip()
    took = f"{result.steps} steps, {duration(result.seconds)}"
    yield "run", f"{result.task} ({result.edition} edition) · {who} · ended: {result.ending} · {took}", ""
    if spec.imported:
        yield "imported", f"from {spec.imported.program}, log {spec.imported.log}", ""
    if result.tokens:
        yield "models", f"{result.tokens:,} tokens, ${result.dollars:.4f}", ""
    yield "score", f"{number(result.score)}   {spec.metric} ({spec.better} is better)", ""
    if known := spec.baseline:
        yield "baseline", f"{number(known.mean)} ± {number(known.sd)} over {known.n} runs of the starter", ""
    if result.p_value is not None:
        yield "improvement", f"{percent(result.improvement)}   p = {result.p_value:.2g}", ""
    yield "verdict", judgement(result), "bold green" if result.success else "bold yellow"
    if result.note and result.ending != "fault" and result.valid:
        yield "note", result.note, ""
    for violation in result.violations:
        yield "rule broken", violation, "red"
    if result.unsandboxed:
        yield "warning", "unsandboxed: nothing kept the agent from the answers", "red"
    yield "look at", command("show", result.folder), ""


def story(folder: RunFolder, console: Console) -> None:
    """Every step in a line or three."""
    spec = folder.spec
    agent = f"{spec.agent} {spec.model}".strip()
    console.print(Text.assemble((spec.task, "bold"), f" ({spec.edition} edition) · {agent} · seed {spec.seed}"))
    for note in spec.imported.notes if spec.imported else ():
        console.print(Text(f"note: {plain(note)}", style="dim"))
    for step in folder.steps():
        mark = ("✗", "red") if step.failed else ("✓", "green")
        head = (mark, (f" {step.number}  ", "bold"), told(step.call), (f"  {duration(step.seconds)}", "dim"))
        console.print()
        console.print(Text.assemble(*head))
        if step.call.thought:
            console.print(Text(indent(plain(step.call.thought), "   "), style="italic"))
        console.print(Text(f"   {last_line(step.observation, 110)}", style="dim"))
        if strays := strays_of(folder, step.number):
            vain = sum(each.in_vain for each in strays)
            console.print(Text(f"   outside its own files: {len(strays):,} tried, {vain:,} refused", style="yellow"))


def strays_of(folder: RunFolder, step: int) -> tuple[Access, ...]:
    """What the commands of a step tried outside their own files; nothing without an access ledger."""
    return foreign(read_access(folder.path, step)) if folder.spec.ledger else ()


def one_step(step: Step, strays: Sequence[Access], console: Console) -> None:
    """A step in full."""
    action = f"  {plain(step.call.action)}"
    console.print(Text.assemble((f"step {step.number}", "bold"), action, (f"  {duration(step.seconds)}", "dim")))
    if step.call.thought:
        console.print(Text(plain(step.call.thought), style="italic"))
    for name, value in step.call.args.items():
        console.print(Text(plain(name), style="bold"))
        console.print(Text(plain(str(value))))
    seen = Text(plain(step.observation))
    if console.is_terminal:
        console.print(Panel(seen, title="observation", title_align="left"))
    else:
        console.print(Text("observation", style="bold"))
        console.print(seen)
    if step.execution and step.execution.output_file:
        console.print(Text(f"the whole output: outputs/{step.execution.output_file}", style="dim"))
    for stray in strays[:STRAYS]:
        console.print(Text(f"outside its own files: {stray.deed} {stray.path!r}", style="yellow"))
    if len(strays) > STRAYS:
        console.print(Text(f"and {len(strays) - STRAYS:,} more in access/", style="yellow"))


def changes(diff: str, console: Console) -> None:
    """What a step changed in the workspace."""
    if not diff:
        console.print("no file was changed")
    elif console.is_terminal:
        console.print(Syntax(plain(diff), "diff", background_color="default"))
    else:
        print(diff, end="")
