"""The command line: parses, calls one function, prints. Heavy things are imported where they are used."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from mlagentbench.cli import audit, batch, bridges, reports
from mlagentbench.cli.options import (
    AgentName,
    AgentOptions,
    AsJson,
    EditionName,
    Gpu,
    Instance,
    RecordAccess,
    RunPath,
    SandboxName,
    TaskName,
    parse_agent_options,
    print_json,
)
from mlagentbench.errors import Fault, UsageError
from mlagentbench.system.journal import escape_invalid_utf8
from mlagentbench.system.stop_token import interrupt_on_sigterm

app = typer.Typer(
    name="mlagentbench",
    help="Measure AI research agents on machine-learning tasks: sandboxed, recorded, graded against hidden answers.",
    add_completion=False,
    pretty_exceptions_enable=False,
)


def main() -> None:
    """Run a command; a person's mistake is one line, never a traceback."""
    try:
        _require_utf8(sys.argv[1:])
        sys.exit(app(sys.argv[1:] or ["--help"], standalone_mode=False))
    except typer.Abort:
        sys.exit(130)
    except (Fault, OSError) as error:
        _exit_with_error(f"{type(error).__name__}: {error}", 1)
    except Exception as error:
        if isinstance(error, UsageError):
            _exit_with_error(str(error), 2)
        if not hasattr(error, "format_message"):
            raise
        _exit_with_error(error.format_message(), 2)  # one of typer's own, whose class it does not export


def _require_utf8(words: list[str]) -> None:
    """Names go into records, which are UTF-8."""
    for word in words:
        if word != escape_invalid_utf8(word):
            raise UsageError(f"{escape_invalid_utf8(word)} is not UTF-8: rename it")


def _exit_with_error(message: str, code: int) -> NoReturn:
    with suppress(OSError):
        print(f"mlagentbench: {message}", file=sys.stderr)
    sys.exit(code)


@contextmanager
def _offer_resume_on_interrupt(folder: Path) -> Iterator[None]:
    """Ctrl-C is a way to stop for today, and so is SIGTERM; and whatever an agent prints is no result."""
    try:
        with redirect_stdout(sys.stderr), interrupt_on_sigterm():
            yield
    except KeyboardInterrupt:
        begun = (folder / "run.json").is_file()
        _exit_with_error(f"stopped; go on with: mlagentbench resume {folder}" if begun else "stopped", 130)


@app.command("list")
def list_(
    what: Annotated[str, typer.Argument(help="tasks, agents, actions, models or runtimes.")] = "tasks",
    as_json: AsJson = False,
) -> None:
    """List what there is: tasks, agents, actions, models, runtimes."""
    from mlagentbench.terminal.lists import collect_rows, show_table

    found = collect_rows(what)
    print_json(found) if as_json else show_table(found)


@app.command()
def prepare(
    tasks: Annotated[
        list[str] | None, typer.Argument(metavar="TASK...", help="Tasks; all of them by default.")
    ] = None,
    edition: EditionName = "open",
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Draw a new instance with a new hidden seed.")
    ] = False,
    twin: Annotated[
        bool, typer.Option("--twin", help="Relabel the data by a hidden seed; for tables only.")
    ] = False,
    data_only: Annotated[bool, typer.Option("--data-only", help="Leave runtimes to the first run.")] = False,
    as_json: AsJson = False,
) -> None:
    """Download and split the data of tasks, and build their runtimes. Safe to repeat."""
    from mlagentbench.formatting import print_progress
    from mlagentbench.preparation.prepare import prepare_data
    from mlagentbench.preparation.twin import prepare_twin as relabelled
    from mlagentbench.runtimes.base import ensure_runtime
    from mlagentbench.task import Task

    if fresh and twin:
        raise UsageError("--fresh draws other rows and --twin relabels the same ones: choose one")
    done = []
    chosen = [Task.load(name) for name in tasks or Task.names()]
    for task in chosen if tasks or not twin else [task for task in chosen if task.config.twin]:
        if not data_only:
            ensure_runtime(task.config.runtime, print_progress)
        data = (
            relabelled(task, edition, print_progress)
            if twin
            else prepare_data(task, edition, print_progress, fresh=fresh)
        )
        done.append({"task": task.name, "edition": edition, "instance": data.instance, "hash": data.hash})
        if not as_json:
            print(f"{task.name} ({edition}) is ready: instance {data.instance}")
    if as_json:
        print_json(done)


@app.command()
def run(
    task: TaskName,
    agent: AgentName = "tuner",
    edition: EditionName = "open",
    steps: Annotated[int | None, typer.Option("--steps", min=1, help="Most steps.")] = None,
    hours: Annotated[float | None, typer.Option("--hours", help="Most hours of wall-clock.")] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of the agent and of its scripts.")] = 0,
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder of the run; must be new or empty.")
    ] = None,
    isolation: SandboxName = "bwrap",
    instance: Instance = "",
    gpu: Gpu = "",
    memory: Annotated[float | None, typer.Option("--memory", help="GB that a script may use.")] = None,
    model: Annotated[
        str, typer.Option("--model", help="The model that the agent asks; see: list models.")
    ] = "",
    fast_model: Annotated[
        str, typer.Option("--fast-model", help="One for summaries and for reading files.")
    ] = "",
    edit_model: Annotated[str, typer.Option("--edit-model", help="One for rewriting scripts.")] = "",
    tokens: Annotated[
        int | None, typer.Option("--tokens", help="Most tokens of all models together.")
    ] = None,
    dollars: Annotated[
        float | None, typer.Option("--dollars", help="Most dollars for all models together.")
    ] = None,
    options: AgentOptions = None,
    record_access: RecordAccess = False,
    as_json: AsJson = False,
) -> None:
    """Let an agent work on a task, and grade what it leaves."""
    from mlagentbench.formatting import print_progress
    from mlagentbench.records import AgentSpec
    from mlagentbench.runner.setup import choose_run_folder, prepare_setup
    from mlagentbench.runner.start import create_agent, start_run
    from mlagentbench.task import Task
    from mlagentbench.terminal.live import live_display

    told = parse_agent_options(options)
    who = AgentSpec(agent=agent, options=told, model=model, fast_model=fast_model, edit_model=edit_model)
    create_agent(who, seed, isolation)  # a mistyped name should not wait for a download
    asked = {"steps": steps, "hours": hours, "memory_gb": memory, "tokens": tokens, "dollars": dollars}
    limits = {name: value for name, value in asked.items() if value is not None}
    folder = out or choose_run_folder(Task.load(task).name, agent)
    with _offer_resume_on_interrupt(folder):
        setup = prepare_setup(task, edition, isolation, print_progress, instance, gpu, record_access)
        with live_display() as watch:
            result = start_run(setup, who, folder, seed, limits, watch)
    _show_result(result, as_json)


@app.command()
def resume(
    run: RunPath,
    from_step: Annotated[
        int | None, typer.Option("--from-step", help="Forget what came after this step.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Continue a run that was stopped or killed, by replaying its record."""
    from mlagentbench.formatting import print_progress
    from mlagentbench.runner.start import resume_run
    from mlagentbench.terminal.live import live_display

    with _offer_resume_on_interrupt(run), live_display() as watch:
        result = resume_run(run, from_step, print_progress, watch)
    _show_result(result, as_json)


def _show_result(result: Any, as_json: bool) -> None:
    from mlagentbench.terminal.show import show_result

    if as_json:
        print_json(result.model_dump(mode="json"))
    else:
        show_result(result)
    if result.ending == "fault":
        raise typer.Exit(1)


@app.command()
def grade(
    folder: Annotated[
        Path, typer.Argument(metavar="RUN|FOLDER", help="A run, a batch, or a folder of runs.")
    ],
    every_step: Annotated[
        bool, typer.Option("--every-step", help="Grade what each step left; kept in the run.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Grade runs again from their snapshots; what they claim is not changed."""
    from mlagentbench.analysis.anytime import grade_steps
    from mlagentbench.analysis.runs import read_runs
    from mlagentbench.formatting import format_score, print_progress

    runs = read_runs([folder])
    faults = grade_steps(runs, print_progress) if every_step else []
    found = [grade for run in runs for grade in _grades(run, every_step)]
    if as_json:
        print_json(found)
    else:
        for row in found:
            name = f"{row['run']}   " if len(runs) > 1 else ""
            print(f"{name}step {row['step']:>4}   {format_score(row['score']):>12}   {row['invalid']}")
    if faults:
        raise typer.Exit(1)


def _grades(run: Any, every_step: bool) -> list[dict[str, Any]]:
    from mlagentbench.analysis.anytime import read_step_grades
    from mlagentbench.formatting import print_progress
    from mlagentbench.runner.verify import regrade

    if every_step:
        grades = read_step_grades(run, own_grader_only=False)
        return [{"run": run.name, **grade.model_dump(mode="json", exclude={"key"})} for grade in grades]
    step, grade = regrade(run.folder, print_progress)
    return [{"run": run.name, "step": step, **grade.model_dump(mode="json")}]


@app.command()
def verify(
    run: Annotated[
        Path, typer.Argument(metavar="RUN|BUNDLE", help="The folder of a run, or a file made by export.")
    ],
    trusted: Annotated[
        bool, typer.Option("--trust-agent", help="Also run an agent that came from a file.")
    ] = False,
    task: Annotated[str, typer.Option("--task", help="Where the task lies, if it is not in the suite.")] = "",
    as_json: AsJson = False,
) -> None:
    """Check every hash and score that a run claims, by computing them again."""
    from mlagentbench.bundles.read import open_run_or_bundle
    from mlagentbench.formatting import print_progress
    from mlagentbench.runner.folder import RunFolder
    from mlagentbench.runner.setup import restore_setup
    from mlagentbench.runner.verify import verify_run as check

    with open_run_or_bundle(run) as place:
        folder = RunFolder(place)
        setup = restore_setup(folder.spec.replace(task=task) if task else folder.spec, print_progress)
        checks = check(folder, setup, trusted)
    if as_json:
        print_json([found.model_dump() for found in checks])
    else:
        for found in checks:
            print(
                f"{'ok  ' if found.holds else 'FAIL'}  {found.what}{': ' if found.detail else ''}{found.detail}"
            )
    if not all(found.holds for found in checks):
        raise typer.Exit(1)


@app.command()
def baseline(
    task: TaskName,
    count: Annotated[int, typer.Option("-n", min=2, help="How many runs, each with a seed of its own.")] = 8,
    edition: EditionName = "open",
    isolation: SandboxName = "bwrap",
    instance: Instance = "",
    gpu: Gpu = "",
    as_json: AsJson = False,
) -> None:
    """Measure the starter's own scores, and print their distribution."""
    from mlagentbench.formatting import format_score, print_progress
    from mlagentbench.runner.setup import prepare_setup
    from mlagentbench.runner.start import measure_baseline

    found, scores = measure_baseline(
        prepare_setup(task, edition, isolation, print_progress, instance, gpu), count, print_progress
    )
    if as_json:
        print_json({"task": task, "edition": edition, **found.model_dump(), "scores": scores})
    else:
        print(
            f"{task} ({edition}): {format_score(found.mean)} ± {format_score(found.sd)}, n = {found.n}, {found.hardware}"
        )
        print(f"baseline = {{ mean = {found.mean:.6g}, sd = {found.sd:.6g}, n = {found.n} }}")


@app.command()
def show(
    what: Annotated[
        str, typer.Argument(metavar="RUN|BUNDLE|TASK", help="A run's folder or bundle, or a task.")
    ],
    step: Annotated[int | None, typer.Option("--step", help="One step in full.")] = None,
    diff: Annotated[bool, typer.Option("--diff", help="What changed in the workspace.")] = False,
    as_json: AsJson = False,
) -> None:
    """Tell a run as a story, one step in full, what it changed; or print a task's card."""
    from mlagentbench.bundles.read import open_run_or_bundle
    from mlagentbench.task import Task
    from mlagentbench.terminal.show import show_run, show_task

    if what in Task.names() or Path(what, "task.toml").is_file():
        if step is not None or diff:
            raise UsageError(f"{what} is a task; --step and --diff are for runs")
        show_task(what, as_json)
    elif Path(what).exists():
        with open_run_or_bundle(Path(what)) as place:
            show_run(place, step, diff, as_json, what)
    else:
        raise UsageError(
            f"{what} is neither the folder of a run nor a task; there are: {', '.join(Task.names())}"
        )


for command in (
    batch.batch,
    batch.watch,
    batch.stop,
    reports.report,
    reports.view,
    reports.compare,
    reports.leaderboard,
    reports.judge,
    reports.export,
    bridges.import_,
    bridges.mcp,
    audit.audit,
):
    app.command(command.__name__.rstrip("_"))(command)


@app.command()
def doctor(as_json: AsJson = False) -> None:
    """Print what isolation, limits, GPU and runtimes this machine has."""
    from mlagentbench.terminal.doctor import run_checks

    findings = run_checks()
    if as_json:
        print_json([finding.model_dump() for finding in findings])
    else:
        for finding in findings:
            print(
                f"{'ok  ' if finding.good else 'FAIL' if finding.needed else '-   '}  {finding.what}: {finding.detail}"
            )
    if not all(finding.good for finding in findings if finding.needed):
        raise typer.Exit(1)


if __name__ == "__main__":
    main()
