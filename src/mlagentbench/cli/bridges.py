"""The commands that join this benchmark to other programs."""

import sys
from contextlib import redirect_stdout, suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from mlagentbench.cli.options import AsJson, EditionName, Gpu, Instance, SandboxName, print_json
from mlagentbench.errors import UsageError


def import_(
    logs: Annotated[list[Path], typer.Argument(metavar="LOGS...", help="Log folders, or folders of those.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="Where the runs go, a folder each.")] = Path(
        "runs/imported"
    ),
    task: Annotated[
        str, typer.Option("--task", help="The original's name of the task, if the logs do not say.")
    ] = "",
    scores: Annotated[
        list[Path] | None, typer.Option("--scores", help="A result of MLAgentBench.eval.")
    ] = None,
    grade: Annotated[
        str, typer.Option("--grade", help="Grade on our data, where it is the same: an edition.")
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Make runs of ours from log folders of the original MLAgentBench."""
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
        str, typer.Argument(metavar="[TASK]", help="A task, or a folder; none with --resume.")
    ] = "",
    http: Annotated[
        int | None, typer.Option("--http", min=0, max=65535, help="Port; 0 is a free one.")
    ] = None,
    again: Annotated[
        Path | None, typer.Option("--resume", help="A run whose client left, or was killed.")
    ] = None,
    from_step: Annotated[
        int | None, typer.Option("--from-step", help="With --resume: forget what came after.")
    ] = None,
    name: Annotated[str, typer.Option("--name", help="What the contestant is called in the record.")] = "mcp",
    edition: EditionName = "open",
    steps: Annotated[int | None, typer.Option("--steps", min=1, help="Most steps.")] = None,
    hours: Annotated[float | None, typer.Option("--hours", help="Most hours of wall-clock.")] = None,
    memory: Annotated[float | None, typer.Option("--memory", help="GB that a script may use.")] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of the scripts.")] = 0,
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder of the run; must be new or empty.")
    ] = None,
    isolation: SandboxName = "bwrap",
    instance: Instance = "",
    gpu: Gpu = "",
    model: Annotated[
        str, typer.Option("--model", help="One for actions that ask a model; else there are none.")
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Serve a task over the Model Context Protocol, on stdio or HTTP, and grade what the client leaves."""
    from mlagentbench.formatting import print_progress
    from mlagentbench.records import AgentSpec
    from mlagentbench.runner.session import open_session, reopen_session
    from mlagentbench.runner.setup import choose_run_folder, prepare_setup
    from mlagentbench.task import Task
    from mlagentbench.terminal.live import live_display
    from mlagentbench.terminal.show import show_result

    if bool(task) == bool(again):
        raise UsageError(
            "name a task, or a run to go on with: mlagentbench mcp TASK, or mlagentbench mcp --resume RUN"
        )
    try:
        from mlagentbench.adapters.mcp.transport import serve_run
    except ImportError as error:
        raise UsageError(f"{error.name} is not installed: pip install 'mlagentbench[mcp]'") from error
    who = AgentSpec(agent=_require_unused_name(name), model=model)
    limits = _drop_none({"steps": steps, "hours": hours, "memory_gb": memory})
    folder = again or out or choose_run_folder(Task.load(task).name, name)
    result = None
    with suppress(KeyboardInterrupt), live_display() as watch:
        if again:
            opening = reopen_session(again, print_progress, from_step, on_open=watch)
        else:
            setup = prepare_setup(task, edition, isolation, print_progress, instance, gpu)
            opening = open_session(setup, who, folder, seed, limits, on_open=watch)
        result = serve_run(opening, http, print_progress).result
    if result is None:
        begun = f"; go on with: mlagentbench mcp --resume {folder}" if (folder / "run.json").is_file() else ""
        print_progress(f"mlagentbench: left before the end{begun}")
        raise typer.Exit(130)
    with redirect_stdout(
        sys.stdout if http is not None else sys.stderr
    ):  # on stdio a client may still listen
        print_json(result.model_dump(mode="json")) if as_json else show_result(result)
    if result.ending == "fault":
        raise typer.Exit(1)


def _require_unused_name(name: str) -> str:
    """A name under which no agent of ours is looked for when the run is resumed or verified."""
    from mlagentbench import discovery

    if name in discovery.plugin_names("agents") or name.endswith(".py"):
        raise UsageError(f"--name {name} is the name of an agent of ours; choose another")
    return name


def _drop_none(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}
