"""A run told step by step, and its verdict."""

from rich.console import Console
from rich.panel import Panel
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from mlagentbench.records import Baseline, Result, Step
from mlagentbench.runner.folder import RunFolder
from mlagentbench.task import Task
from mlagentbench.terminal.live import told
from mlagentbench.terminal.words import duration, judgement, last_line, number, percent


def verdict_table(result: Result, task: Task, baseline: Baseline | None) -> Table:
    """What came of a run."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold")
    table.add_column()
    arrow = "lower" if task.config.better == "lower" else "higher"
    who = f"{result.agent} {result.model}".strip()
    took = f"{result.steps} steps, {duration(result.seconds)}"
    table.add_row("run", f"{result.task} ({result.edition} edition) · {who} · ended: {result.ending} · {took}")
    table.add_row("score", Text(f"{number(result.score)}   {task.config.metric} ({arrow} is better)"))
    if baseline:
        spread = f"{number(baseline.mean)} ± {number(baseline.sd)} over {baseline.n} runs of the starter"
        table.add_row("baseline", spread)
    if result.improvement is not None:
        table.add_row("improvement", f"{percent(result.improvement)}   p = {result.p_value:.2g}")
    table.add_row("verdict", Text(judgement(result), style="bold green" if result.success else "bold yellow"))
    for violation in result.violations:
        table.add_row("rule broken", Text(violation, style="red"))
    if result.unsandboxed:
        table.add_row("warning", Text("unsandboxed: nothing kept the agent from the answers", style="red"))
    table.add_row("look at", Text(f"mlagentbench show {result.folder}"))
    return table


def story(folder: RunFolder, console: Console) -> None:
    """Every step in a line or three."""
    spec = folder.spec
    agent = f"{spec.agent} {spec.model}".strip()
    console.print(f"[bold]{spec.task}[/] ({spec.edition} edition) · {agent} · seed {spec.seed} · {spec.started}")
    for step in folder.steps():
        mark = "[red]✗[/]" if step.failed else "[green]✓[/]"
        console.print(
            f"\n{mark} [bold]{step.number}[/]  ",
            Text(told(step.call)),
            f"  [dim]{duration(step.seconds)}[/]",
            end="\n",
        )
        if step.call.thought:
            console.print(Text(f"   {step.call.thought}", style="italic"))
        console.print(Text(f"   {last_line(step.observation, 110)}", style="dim"))


def one_step(step: Step, console: Console) -> None:
    """A step in full."""
    console.print(f"[bold]step {step.number}[/]  {step.call.action}  [dim]{duration(step.seconds)}[/]")
    if step.call.thought:
        console.print(Text(step.call.thought, style="italic"))
    for name, value in step.call.args.items():
        console.print(f"[bold]{name}[/]")
        console.print(Text(str(value)))
    console.print(Panel(Text(step.observation), title="observation", title_align="left"))
    if step.execution and step.execution.output_file:
        console.print(f"[dim]the whole output: outputs/{step.execution.output_file}[/]")


def changes(diff: str, console: Console) -> None:
    """What a step changed in the workspace."""
    if not diff:
        console.print("no file was changed")
    elif console.is_terminal:
        console.print(Syntax(diff, "diff", background_color="default"))
    else:
        print(diff)
