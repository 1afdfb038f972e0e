"""Commands that connect other programs: mcp, import."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mlagentbench.cli.options import (
    AsJson,
    EditionName,
    Gpu,
    Instance,
    MaxHours,
    MaxMemory,
    MaxSteps,
    OutFolder,
    SandboxName,
    StartName,
    drop_none,
    print_json,
)
from mlagentbench.errors import UsageError

if TYPE_CHECKING:
    from mlagentbench.runner.session import Session
    from mlagentbench.system.progress import ProgressCallback


def import_(
    logs: Annotated[list[Path], typer.Argument(metavar="LOGS", help="Log folders, or folders of them.")],
    out: Annotated[
        Path, typer.Option("-o", "--out", help="Where the runs are written, one folder each.")
    ] = Path("runs/imported"),
    task: Annotated[
        str, typer.Option("--task", help="The task's original name, if the logs do not tell.")
    ] = "",
    scores: Annotated[
        list[Path] | None, typer.Option("--scores", help="A result file of MLAgentBench.eval.")
    ] = None,
    grade: Annotated[
        str, typer.Option("--grade", help="Grade with this edition's data, where it is the same.")
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Convert log folders of the original MLAgentBench into runs."""
    from mlagentbench.adapters.original.importer import import_logs
    from mlagentbench.formatting import describe_verdict, print_progress

    results = import_logs(logs, out, task, scores or (), grade, print_progress)
    if as_json:
        print_json([result.model_dump(mode="json") for result in results])
        return
    for result in results:
        print(f"{result.folder}: {describe_verdict(result)}")


def mcp(
    task: Annotated[
        str, typer.Argument(metavar="TASK", help="A task, or a folder; omitted with --resume.")
    ] = "",
    http: Annotated[
        int | None, typer.Option("--http", min=0, max=65535, help="Port; 0: any free one.")
    ] = None,
    resume: Annotated[
        Path | None, typer.Option("--resume", help="A run whose client left or was killed.")
    ] = None,
    from_step: Annotated[
        int | None, typer.Option("--from-step", help="With --resume: discard everything after this step.")
    ] = None,
    name: Annotated[str, typer.Option("--name", help="The agent's name in the record.")] = "mcp",
    edition: EditionName = "open",
    steps: MaxSteps = None,
    hours: MaxHours = None,
    memory: MaxMemory = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of the scripts.")] = 0,
    out: OutFolder = None,
    sandbox: SandboxName = "auto",
    instance: Instance = "",
    start: StartName = "starter",
    gpu: Gpu = "",
    model: Annotated[
        str,
        typer.Option(
            "--model",
            help="Model for actions that need one, and for scripts if the task grants it.",
        ),
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Serve a task over the Model Context Protocol. By stdio or HTTP; the client's submission is graded."""
    from mlagentbench.formatting import print_progress
    from mlagentbench.records import AgentSpec
    from mlagentbench.runner.session import open_session
    from mlagentbench.runner.setup import check_setup, choose_run_folder, prepare_setup
    from mlagentbench.task import Task, parse_start
    from mlagentbench.terminal.live import live_display
    from mlagentbench.terminal.show import show_result

    if bool(task) == bool(resume):
        raise UsageError(
            "Name a task or a run to resume: mlagentbench mcp TASK, or mlagentbench mcp --resume RUN"
        )
    try:
        from mlagentbench.adapters.mcp.served_run import describe_new_run, describe_resumed_run
        from mlagentbench.adapters.mcp.transport import serve_run
    except ImportError as error:
        from mlagentbench.system.extras import install_command

        raise UsageError(f"{error.name} is not installed. Install it: {install_command('mcp')}") from error
    agent_spec = AgentSpec(agent=_require_unused_name(name), model=model)
    limits = drop_none({"steps": steps, "hours": hours, "memory_gb": memory})
    folder = resume or out or choose_run_folder(Task.load(task).name, name)
    solution, result = parse_start(start), None
    with suppress(KeyboardInterrupt), live_display() as on_open:
        if resume:
            run = describe_resumed_run(resume, from_step, on_open)
        else:

            @contextmanager
            def open_run(progress: "ProgressCallback") -> Iterator["Session"]:
                setup = prepare_setup(task, edition, sandbox, progress, instance, gpu, start=solution)
                with open_session(setup, agent_spec, folder, seed, limits, on_open=on_open) as session:
                    yield session

            loaded_task, _ = check_setup(task, edition, sandbox, gpu, start=solution)
            run = describe_new_run(
                loaded_task, edition, instance, gpu, solution, limits, bool(model), open_run
            )
        result = serve_run(run, http, print_progress).result
    if result is None:
        hint = (
            f"; continue with: mlagentbench mcp --resume {folder}" if (folder / "run.json").is_file() else ""
        )
        print_progress(f"mlagentbench: the client left before the end{hint}")
        raise typer.Exit(130)
    # On stdio, the client may still read standard output.
    with redirect_stdout(sys.stdout if http is not None else sys.stderr):
        print_json(result.model_dump(mode="json")) if as_json else show_result(result)
    if result.ending == "fault":
        raise typer.Exit(1)


def _require_unused_name(name: str) -> str:
    """A name that is not an agent's, so that no code is looked up when the run is resumed or verified."""
    from mlagentbench import discovery

    if name in discovery.plugin_names("agents") or name.endswith(".py"):
        raise UsageError(f"--name {name} is the name of an agent. Choose another.")
    return name
