"""Commands about one run: run, resume, show, grade, verify."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Annotated, Any

import typer

from mlagentbench.cli.options import (
    AgentName,
    AgentOptions,
    AsJson,
    EditionName,
    Gpu,
    Instance,
    MaxDollars,
    MaxHours,
    MaxMemory,
    MaxSteps,
    MaxTokens,
    ModelName,
    MovedTask,
    OutFolder,
    RecordAccess,
    RunPath,
    SandboxName,
    StartName,
    TaskName,
    drop_none,
    exit_with_error,
    parse_agent_options,
    print_json,
)
from mlagentbench.errors import UsageError
from mlagentbench.system.stop_token import interrupt_on_sigterm


@contextmanager
def _offer_resume_on_interrupt(folder: Path) -> Iterator[None]:
    """After Ctrl-C or SIGTERM, print how to resume. What agents print goes to standard error."""
    try:
        with redirect_stdout(sys.stderr), interrupt_on_sigterm():
            yield
    except KeyboardInterrupt:
        hint = f"; continue with: mlagentbench resume {folder}" if (folder / "run.json").is_file() else ""
        exit_with_error(f"stopped{hint}", 130)


def run(
    task: TaskName,
    agent: AgentName = "tuner",
    edition: EditionName = "open",
    steps: MaxSteps = None,
    hours: MaxHours = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of the agent and its scripts.")] = 0,
    out: OutFolder = None,
    sandbox: SandboxName = "auto",
    instance: Instance = "",
    start: StartName = "starter",
    gpu: Gpu = "",
    memory: MaxMemory = None,
    model: ModelName = "",
    fast_model: Annotated[
        str, typer.Option("--fast-model", help="Model for summaries and reading files.")
    ] = "",
    edit_model: Annotated[str, typer.Option("--edit-model", help="Model for rewriting scripts.")] = "",
    tokens: MaxTokens = None,
    dollars: MaxDollars = None,
    options: AgentOptions = None,
    record_access: RecordAccess = False,
    as_json: AsJson = False,
) -> None:
    """Let an agent work on a task, and grade its submission."""
    from mlagentbench.formatting import print_progress
    from mlagentbench.records import AgentSpec
    from mlagentbench.runner.setup import choose_run_folder, prepare_setup
    from mlagentbench.runner.start import create_agent, start_run
    from mlagentbench.task import Task, parse_start
    from mlagentbench.terminal.live import live_display

    agent_options = parse_agent_options(options)
    models = {"model": model, "fast_model": fast_model, "edit_model": edit_model}
    agent_spec = AgentSpec(agent=agent, options=agent_options, **models)
    create_agent(agent_spec, seed, sandbox)  # report a mistyped name before any download
    limits = drop_none(
        {"steps": steps, "hours": hours, "memory_gb": memory, "tokens": tokens, "dollars": dollars}
    )
    folder = out or choose_run_folder(Task.load(task).name, agent)
    with _offer_resume_on_interrupt(folder):
        setup = prepare_setup(
            task, edition, sandbox, print_progress, instance, gpu, record_access, parse_start(start)
        )
        with live_display() as on_open:
            result = start_run(setup, agent_spec, folder, seed, limits, on_open)
    _print_result(result, as_json)


def resume(
    run: RunPath,
    from_step: Annotated[
        int | None, typer.Option("--from-step", help="Discard everything after this step.")
    ] = None,
    task: MovedTask = "",
    as_json: AsJson = False,
) -> None:
    """Continue a run that was stopped or killed. Its record is replayed first."""
    from mlagentbench.formatting import print_progress
    from mlagentbench.runner.folder import RunFolder
    from mlagentbench.runner.setup import restore_setup
    from mlagentbench.runner.start import resume_run
    from mlagentbench.terminal.live import live_display

    setup = restore_setup(RunFolder(run).spec.replace(task=task), print_progress) if task else None
    with _offer_resume_on_interrupt(run), live_display() as on_open:
        result = resume_run(run, from_step, print_progress, on_open, setup)
    _print_result(result, as_json)


def _print_result(result: Any, as_json: bool) -> None:
    from mlagentbench.terminal.show import show_result

    if as_json:
        print_json(result.model_dump(mode="json"))
    else:
        show_result(result)
    if result.ending == "fault":
        raise typer.Exit(1)


def show(
    what: Annotated[
        str, typer.Argument(metavar="RUN|BUNDLE|TASK", help="A run folder, a bundle, or a task.")
    ],
    step: Annotated[int | None, typer.Option("--step", help="Show one step in full.")] = None,
    diff: Annotated[bool, typer.Option("--diff", help="Show what changed in the workspace.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show a run step by step, or a task. A step can be shown in full, or as a diff."""
    from mlagentbench.task import Task

    if what in Task.names() or Path(what, "task.toml").is_file():
        if step is not None or diff:
            raise UsageError(f"{what} is a task; --step and --diff are for runs.")
        from mlagentbench.terminal.show_task import collect_card, show_task

        print_json(collect_card(what)) if as_json else show_task(what)
    elif Path(what).exists():
        from mlagentbench.bundles.read import open_run_or_bundle
        from mlagentbench.terminal.show import show_run

        with open_run_or_bundle(Path(what)) as folder:
            show_run(folder, step, diff, as_json, what)
    else:
        raise UsageError(f"{what} is neither a run folder nor a task. Tasks: {', '.join(Task.names())}.")


def grade(
    folder: Annotated[
        Path, typer.Argument(metavar="RUN|FOLDER", help="A run, a batch, or a folder of runs.")
    ],
    every_step: Annotated[
        bool, typer.Option("--every-step", help="Grade the workspace after each step; saved in the run.")
    ] = False,
    task: MovedTask = "",
    as_json: AsJson = False,
) -> None:
    """Grade runs again from their snapshots. Their results are not changed."""
    from mlagentbench.analysis.anytime import grade_steps
    from mlagentbench.analysis.runs import read_runs
    from mlagentbench.formatting import format_score, print_progress

    if task and every_step:
        raise UsageError("--task and --every-step cannot be combined.")
    runs = read_runs([folder])
    faults = grade_steps(runs, print_progress) if every_step else []
    grades = [grade for run in runs for grade in _grades_of(run, every_step, task)]
    if as_json:
        print_json(grades)
    else:
        for row in grades:
            name = f"{row['run']}   " if len(runs) > 1 else ""
            print(f"{name}step {row['step']:>4}   {format_score(row['score']):>12}   {row['invalid']}")
    if faults:
        raise typer.Exit(1)


def _grades_of(run: Any, every_step: bool, task: str) -> list[dict[str, Any]]:
    from mlagentbench.analysis.anytime import read_step_grades
    from mlagentbench.formatting import print_progress
    from mlagentbench.runner.verify import regrade

    if every_step:
        grades = read_step_grades(run, own_grader_only=False)
        return [{"run": run.name, **grade.model_dump(mode="json", exclude={"key"})} for grade in grades]
    step, grade = regrade(run.folder, print_progress, task)
    return [{"run": run.name, "step": step, **grade.model_dump(mode="json")}]


def verify(
    run: Annotated[
        Path,
        typer.Argument(metavar="RUN|BUNDLE|FOLDER", help="A run, a file made by export, or a batch."),
    ],
    trusted: Annotated[
        bool, typer.Option("--trust-agent", help="Also run an agent that came from a file.")
    ] = False,
    task: MovedTask = "",
    as_json: AsJson = False,
) -> None:
    """Recompute every hash and score that a run claims. Of a batch, all runs are checked."""
    from mlagentbench.analysis.runs import find_run_folders
    from mlagentbench.bundles.read import open_run_or_bundle

    with open_run_or_bundle(run) as path:
        folders = list(find_run_folders(path)) if path.is_dir() else []
        if (len(folders) <= 1 and (path / "run.json").is_file()) or not folders:
            _verify_one(path, trusted, task, as_json)
        else:
            _verify_all(path, folders, trusted, task, as_json)


def _verify_one(path: Path, trusted: bool, task: str, as_json: bool) -> None:
    checks = _check_claims(path, trusted, task)
    failed = sum(not check.holds for check in checks)
    if as_json:
        print_json([check.model_dump() for check in checks])
    else:
        for check in checks:
            detail = f": {check.detail}" if check.detail else ""
            print(f"{'ok  ' if check.holds else 'FAIL'}  {check.what}{detail}")
        print(f"{len(checks)} checks, {failed} failed" if failed else f"{len(checks)} checks, all hold")
    if failed:
        raise typer.Exit(1)


def _verify_all(parent: Path, folders: list[Path], trusted: bool, task: str, as_json: bool) -> None:
    """Verify every finished run; an unfinished one is named, a damaged one fails."""
    from mlagentbench.errors import Fault

    rows = []
    for path in folders:
        name, problems, status = str(path.relative_to(parent)), list[str](), "ok"
        try:
            if (path / "result.json").is_file():
                checks = [check for check in _check_claims(path, trusted, task) if not check.holds]
                problems = [f"{check.what}: {check.detail}".removesuffix(": ") for check in checks]
                status = "FAIL" if problems else "ok"
            else:
                status = "unfinished"
        except (UsageError, Fault) as error:
            status, problems = "FAIL", [str(error)]
        rows.append({"run": name, "status": status, "problems": problems})
        if not as_json:
            print(f"{status:<4}  {name}", flush=True)
            for problem in problems:
                print(f"      {problem}")
    counts = {status: sum(row["status"] == status for row in rows) for status in ("ok", "FAIL", "unfinished")}
    if as_json:
        print_json(rows)
    else:
        print(
            f"{len(rows)} runs: {counts['ok']} hold, {counts['FAIL']} fail, {counts['unfinished']} unfinished"
        )
    if counts["FAIL"]:
        raise typer.Exit(1)


def _check_claims(path: Path, trusted: bool, task: str) -> list[Any]:
    from mlagentbench.formatting import print_progress
    from mlagentbench.runner.folder import RunFolder
    from mlagentbench.runner.setup import restore_setup
    from mlagentbench.runner.verify import verify_run

    folder = RunFolder(path)
    spec = folder.spec.replace(task=task) if task else folder.spec
    return verify_run(folder, restore_setup(spec, print_progress), trusted)
