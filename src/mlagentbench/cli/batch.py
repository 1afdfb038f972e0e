"""The commands about many runs: batch, watch, stop."""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Annotated, Any

import typer

from mlagentbench.cli.options import AgentOptions, AsJson, RecordAccess, parse_agent_options, print_json
from mlagentbench.errors import UsageError

Names = list[str] | None
Number = float | None
RunOrFolder = Annotated[
    Path, typer.Argument(metavar="RUN|FOLDER", help="The folder of a batch, of a run, or of runs.")
]


def batch(
    plan: Annotated[
        Path | None, typer.Argument(metavar="[PLAN]", help="A plan.toml; or use the options.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder of the batch; runs/NAME for NAME.toml.")
    ] = None,
    jobs: Annotated[
        int | None, typer.Option("--jobs", min=1, help="Runs at a time; else one, or one a GPU.")
    ] = None,
    gpu: Annotated[str, typer.Option("--gpu", help="GPUs, one for each run, in turn: 0,1 or all.")] = "",
    tasks: Annotated[Names, typer.Option("--task", help="A task; may be repeated.")] = None,
    agents: Annotated[Names, typer.Option("--agent", help="An agent; may be repeated.")] = None,
    models: Annotated[Names, typer.Option("--model", help="A model; may be repeated.")] = None,
    fast_model: Annotated[str | None, typer.Option("--fast-model", help="One for summaries.")] = None,
    edit_model: Annotated[str | None, typer.Option("--edit-model", help="One for rewriting scripts.")] = None,
    repetitions: Annotated[
        int | None, typer.Option("--repetitions", min=1, help="Seeds 0, 1, 2, ...")
    ] = None,
    seeds: Annotated[list[int] | None, typer.Option("--seed", min=0, help="A seed; may be repeated.")] = None,
    edition: Annotated[str | None, typer.Option("--edition", help="open (the default) or paper.")] = None,
    isolation: Annotated[
        str | None, typer.Option("--sandbox", help="bwrap (the default); see run --help.")
    ] = None,
    instance: Annotated[
        str | None, typer.Option("--instance", help="Data drawn by prepare --fresh or --twin.")
    ] = None,
    steps: Annotated[int | None, typer.Option("--steps", help="Most steps of a run.")] = None,
    hours: Annotated[float | None, typer.Option("--hours", help="Most hours of a run.")] = None,
    tokens: Annotated[int | None, typer.Option("--tokens", help="Most tokens of a run.")] = None,
    dollars: Annotated[float | None, typer.Option("--dollars", help="Most dollars of a run.")] = None,
    memory: Annotated[float | None, typer.Option("--memory", help="GB that a script may use.")] = None,
    budget_dollars: Annotated[
        float | None, typer.Option("--budget-dollars", help="Most for all runs.")
    ] = None,
    budget_hours: Annotated[
        float | None, typer.Option("--budget-hours", help="Most for all, added up.")
    ] = None,
    record_access: RecordAccess = False,
    tries: Annotated[
        int | None, typer.Option("--tries", min=1, help="Of a run that ends as a fault.")
    ] = None,
    options: AgentOptions = None,
    on: Annotated[str, typer.Option("--on", help="here, or ray: a Ray cluster.")] = "here",
    address: Annotated[
        str, typer.Option("--address", help="Of the cluster, or auto; else one on this machine.")
    ] = "",
    shared: Annotated[
        bool, typer.Option("--shared", help="All nodes see --out: nothing is sent back.")
    ] = False,
    cpus: Annotated[
        Number, typer.Option("--cpus-per-run", help="Set aside on a cluster; 1 by default.")
    ] = None,
    gpus: Annotated[Number, typer.Option("--gpus-per-run", help="None by default; 0.5 shares one.")] = None,
    memory_per_run: Annotated[
        Number, typer.Option("--memory-per-run", help="GB; else the scripts' limit.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run every combination of a plan, or go on with a batch that was stopped or killed."""
    from mlagentbench.formatting import print_progress
    from mlagentbench.runner.batch.orchestrator import run_batch
    from mlagentbench.runner.batch.plan import read_plan
    from mlagentbench.terminal.progress import progress_display, summarize_batch

    given: dict[str, Any] = {"tasks": tasks, "agents": agents, "models": models, "seeds": seeds}
    given |= {"fast_model": fast_model, "edit_model": edit_model, "repetitions": repetitions, "tries": tries}
    given |= {
        "edition": edition,
        "sandbox": isolation,
        "instance": instance,
        "options": parse_agent_options(options),
    }
    given |= {"record_access": record_access}
    limits = {"steps": steps, "hours": hours, "tokens": tokens, "dollars": dollars, "memory_gb": memory}
    given |= {
        "limits": _drop_none(limits),
        "budget": _drop_none({"dollars": budget_dollars, "hours": budget_hours}),
    }
    given = {name: value for name, value in given.items() if value}
    folder = out or (Path("runs", plan.stem) if plan else None)
    if folder is None:
        raise UsageError("pass --out FOLDER: the same command with the same folder goes on with a batch")
    wanted = read_plan(plan, given) if plan or given else None
    needs = _drop_none({"cpus": cpus, "gpus": gpus, "memory_gb": memory_per_run})
    found = _open_executor(on, jobs, gpu, address, shared, needs)
    with (
        redirect_stdout(sys.stderr),
        found as (machines, slots),
        progress_display() as show,
    ):  # what agents print is no result
        ended = run_batch(folder, wanted, slots, print_progress, show, machines)
    if as_json:
        print_json([result.model_dump(mode="json") for result in ended.results])
    for line in summarize_batch(ended, folder):
        print_progress(line)
    code = 130 if ended.interrupted else 0 if ended.is_complete else 1
    if ended.has_unstopped_runs:
        sys.stdout.flush()
        os._exit(code)  # a thread that waits for a model would keep us; what it loses is done again
    raise typer.Exit(code)


@contextmanager
def _open_executor(
    on: str, jobs: int | None, gpu: str, address: str, shared: bool, needs: dict[str, float]
) -> Iterator[tuple[Any, list[str]]]:
    """Who runs jobs, and in which slots."""
    from mlagentbench.runner.batch.local_runner import LocalRunner
    from mlagentbench.runner.batch.orchestrator import assign_gpus_to_slots

    if on == "here":
        if address or shared or needs:
            raise UsageError("--address, --shared and what is set aside per run are for --on ray")
        yield LocalRunner, assign_gpus_to_slots(jobs, gpu)
        return
    if on != "ray":
        raise UsageError(f"there is no {on!r} to run on; there are: here, ray")
    if gpu:
        raise UsageError("Ray hands out the GPUs of its nodes: pass --gpus-per-run instead of --gpu")
    from mlagentbench.runner.batch.ray.connection import connect_runner

    with connect_runner(address, shared, needs, jobs) as found:
        yield found


def _drop_none(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def watch(
    folder: RunOrFolder,
    once: Annotated[bool, typer.Option("--once", help="Look once, and do not wait for the end.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show a batch, a run or a folder of runs as it goes on, from its files alone."""
    from mlagentbench.terminal.watch import poll_views, watch_folder

    if as_json:
        for view in poll_views(folder, once):
            told = view.model_dump(mode="json")
            print(json.dumps({**told, "totals": view.totals.model_dump(mode="json")}), flush=True)
    else:
        watch_folder(folder, once)


def stop(folder: RunOrFolder, as_json: AsJson = False) -> None:
    """Ask whoever works on a run or a batch to stop cleanly; resume, or the same batch command, goes on."""
    from mlagentbench.runner.batch.stop_request import request_stop as ask

    stopped, still = ask(folder)
    if as_json:
        print_json({"stopped": [str(path) for path in stopped], "still": [str(path) for path in still]})
    for path in () if as_json else stopped:
        print(f"stopped: {path}")
    for path in () if as_json else still:
        print(f"asked, but it is still at something that cannot be cut short: {path}")
    if still:
        raise typer.Exit(1)
