"""Commands about many runs: batch, watch, stop."""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Annotated, Any

import typer

from mlagentbench.cli.options import (
    AgentOptions,
    AsJson,
    MaxDollars,
    MaxHours,
    MaxMemory,
    MaxSteps,
    MaxTokens,
    RecordAccess,
    drop_none,
    parse_agent_options,
    print_json,
)
from mlagentbench.errors import UsageError

Names = list[str] | None
RunOrFolder = Annotated[
    Path, typer.Argument(metavar="RUN|FOLDER", help="A batch, a run, or a folder of runs.")
]


def batch(
    plan: Annotated[
        Path | None, typer.Argument(metavar="PLAN", help="A plan.toml; or use the options.")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", help="Batch folder; runs/NAME for NAME.toml.")] = None,
    jobs: Annotated[
        int | None, typer.Option("--jobs", min=1, help="Parallel runs; default: 1, or one per GPU.")
    ] = None,
    gpu: Annotated[str, typer.Option("--gpu", help="GPUs to distribute, one per run: 0,1 or all.")] = "",
    tasks: Annotated[Names, typer.Option("--task", help="A task; repeatable.")] = None,
    agents: Annotated[Names, typer.Option("--agent", help="An agent; repeatable.")] = None,
    models: Annotated[Names, typer.Option("--model", help="A model; repeatable.")] = None,
    fast_model: Annotated[str | None, typer.Option("--fast-model", help="Model for summaries.")] = None,
    edit_model: Annotated[
        str | None, typer.Option("--edit-model", help="Model for rewriting scripts.")
    ] = None,
    repetitions: Annotated[
        int | None, typer.Option("--repetitions", min=1, help="Seeds 0, 1, 2, ...")
    ] = None,
    seeds: Annotated[list[int] | None, typer.Option("--seed", min=0, help="A seed; repeatable.")] = None,
    edition: Annotated[str | None, typer.Option("--edition", help="open (default) or paper.")] = None,
    sandbox: Annotated[str | None, typer.Option("--sandbox", help="auto (default); see run --help.")] = None,
    start: Annotated[str | None, typer.Option("--start", help="starter, reference or expert.")] = None,
    instance: Annotated[
        str | None, typer.Option("--instance", help="Data made by prepare --fresh or --twin.")
    ] = None,
    steps: MaxSteps = None,
    hours: MaxHours = None,
    tokens: MaxTokens = None,
    dollars: MaxDollars = None,
    memory: MaxMemory = None,
    budget_dollars: Annotated[
        float | None, typer.Option("--budget-dollars", help="Cost limit of the batch.")
    ] = None,
    budget_hours: Annotated[
        float | None, typer.Option("--budget-hours", help="Limit on the summed hours of all runs.")
    ] = None,
    record_access: RecordAccess = False,
    tries: Annotated[
        int | None, typer.Option("--tries", min=1, help="Attempts for a run that ends in a fault.")
    ] = None,
    options: AgentOptions = None,
    on: Annotated[str, typer.Option("--on", help="local, or ray: a Ray cluster.")] = "local",
    address: Annotated[
        str, typer.Option("--address", help="Ray: the cluster's address, or auto; default: start one here.")
    ] = "",
    shared: Annotated[
        bool, typer.Option("--shared", help="Ray: all nodes see --out; send nothing back.")
    ] = False,
    cpus: Annotated[
        float | None, typer.Option("--cpus-per-run", help="Ray: CPUs per run; default 1.")
    ] = None,
    gpus: Annotated[
        float | None, typer.Option("--gpus-per-run", help="Ray: GPUs per run; 0.5 shares one.")
    ] = None,
    memory_per_run: Annotated[
        float | None, typer.Option("--memory-per-run", help="Ray: GB per run; default: the script limit.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run every combination of a plan. The same command continues a batch that was stopped or killed."""
    from mlagentbench.formatting import print_progress
    from mlagentbench.runner.batch.orchestrator import run_batch
    from mlagentbench.runner.batch.plan import read_plan
    from mlagentbench.terminal.progress import progress_display, summarize_batch

    limits = {"steps": steps, "hours": hours, "tokens": tokens, "dollars": dollars, "memory_gb": memory}
    overrides: dict[str, Any] = {
        "tasks": tasks,
        "agents": agents,
        "models": models,
        "fast_model": fast_model,
        "edit_model": edit_model,
        "seeds": seeds,
        "repetitions": repetitions,
        "tries": tries,
        "edition": edition,
        "sandbox": sandbox,
        "instance": instance,
        "start": start,
        "options": parse_agent_options(options),
        "record_access": record_access,
        "limits": drop_none(limits),
        "budget": drop_none({"dollars": budget_dollars, "hours": budget_hours}),
    }
    overrides = {name: value for name, value in overrides.items() if value}
    folder = out or (Path("runs", plan.stem) if plan else None)
    if folder is None:
        raise UsageError("Pass --out FOLDER. The same command with the same folder continues the batch.")
    combined = read_plan(plan, overrides) if plan or overrides else None
    resources = drop_none({"cpus": cpus, "gpus": gpus, "memory_gb": memory_per_run})
    # What agents print is not part of the result, so it goes to standard error.
    with (
        redirect_stdout(sys.stderr),
        _open_runner(on, jobs, gpu, address, shared, resources) as (runner_factory, slots),
        progress_display() as on_status,
    ):
        outcome = run_batch(folder, combined, slots, print_progress, on_status, runner_factory)
    if as_json:
        print_json([result.model_dump(mode="json") for result in outcome.results])
    for line in summarize_batch(outcome, folder):
        print_progress(line)
    code = 130 if outcome.interrupted else 0 if outcome.is_complete else 1
    if outcome.has_unstopped_runs:
        sys.stdout.flush()
        os._exit(code)  # a thread that waits for a model would block the exit; its work is repeated on resume
    raise typer.Exit(code)


@contextmanager
def _open_runner(
    on: str, jobs: int | None, gpu: str, address: str, shared: bool, resources: dict[str, float]
) -> Iterator[tuple[Any, list[str]]]:
    """What runs the jobs, and its slots."""
    from mlagentbench.runner.batch.local_runner import LocalRunner
    from mlagentbench.runner.batch.orchestrator import assign_gpus_to_slots

    if on in ("local", "here"):
        if address or shared or resources:
            raise UsageError("--address, --shared and the per-run resources are for --on ray.")
        yield LocalRunner, assign_gpus_to_slots(jobs, gpu)
        return
    if on != "ray":
        raise UsageError(f"Cannot run on {on!r}. Available: local, ray.")
    if gpu:
        raise UsageError("Ray assigns the GPUs of its nodes. Pass --gpus-per-run instead of --gpu.")
    from mlagentbench.runner.batch.ray.connection import connect_runner

    with connect_runner(address, shared, resources, jobs) as runner_and_slots:
        yield runner_and_slots


def watch(
    folder: RunOrFolder,
    once: Annotated[bool, typer.Option("--once", help="Print the current status and exit.")] = False,
    as_json: AsJson = False,
) -> None:
    """Follow a batch, a run or a folder of runs. Reads files only."""
    from mlagentbench.terminal.watch import poll_status, watch_folder

    if not as_json:
        watch_folder(folder, once)
        return
    for status in poll_status(folder, once):
        totals = status.totals.model_dump(mode="json")
        print(json.dumps({**status.model_dump(mode="json"), "totals": totals}), flush=True)


def stop(folder: RunOrFolder, as_json: AsJson = False) -> None:
    """Ask a run or a batch to stop cleanly. It can be resumed later."""
    from mlagentbench.runner.batch.stop_request import request_stop

    stopped, still_running = request_stop(folder)
    if as_json:
        print_json(
            {"stopped": [str(path) for path in stopped], "still": [str(path) for path in still_running]}
        )
    else:
        for path in stopped:
            print(f"stopped: {path}")
        for path in still_running:
            print(f"Stop requested; waiting for an operation that cannot be interrupted: {path}")
    if still_running:
        raise typer.Exit(1)
