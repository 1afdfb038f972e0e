"""The commands about many runs: batch, watch, stop."""

import json
import os
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Annotated, Any

import typer

from mlagentbench.errors import UsageError
from mlagentbench.options import AsJson, WithLedger, print_json

Several = list[str] | None
Place = Annotated[Path, typer.Argument(metavar="RUN|FOLDER", help="The folder of a batch, of a run, or of runs.")]


def batch(
    plan: Annotated[Path | None, typer.Argument(metavar="[PLAN]", help="A plan.toml; or use the options.")] = None,
    out: Annotated[Path | None, typer.Option("--out", help="Folder of the batch; runs/NAME for NAME.toml.")] = None,
    jobs: Annotated[int | None, typer.Option("--jobs", min=1, help="Runs at a time; else one, or one a GPU.")] = None,
    gpu: Annotated[str, typer.Option("--gpu", help="GPUs, one for each run, in turn: 0,1 or all.")] = "",
    tasks: Annotated[Several, typer.Option("--task", help="A task; may be repeated.")] = None,
    agents: Annotated[Several, typer.Option("--agent", help="An agent; may be repeated.")] = None,
    models: Annotated[Several, typer.Option("--model", help="A model; may be repeated.")] = None,
    fast_model: Annotated[str | None, typer.Option("--fast-model", help="One for summaries.")] = None,
    edit_model: Annotated[str | None, typer.Option("--edit-model", help="One for rewriting scripts.")] = None,
    repetitions: Annotated[int | None, typer.Option("--repetitions", min=1, help="Seeds 0, 1, 2, ...")] = None,
    seeds: Annotated[list[int] | None, typer.Option("--seed", min=0, help="A seed; may be repeated.")] = None,
    edition: Annotated[str | None, typer.Option("--edition", help="open (the default) or paper.")] = None,
    isolation: Annotated[str | None, typer.Option("--sandbox", help="bwrap (the default) or none.")] = None,
    instance: Annotated[str | None, typer.Option("--instance", help="Data drawn by prepare --fresh.")] = None,
    steps: Annotated[int | None, typer.Option("--steps", help="Most steps of a run.")] = None,
    hours: Annotated[float | None, typer.Option("--hours", help="Most hours of a run.")] = None,
    tokens: Annotated[int | None, typer.Option("--tokens", help="Most tokens of a run.")] = None,
    dollars: Annotated[float | None, typer.Option("--dollars", help="Most dollars of a run.")] = None,
    memory: Annotated[float | None, typer.Option("--memory", help="GB that a script may use.")] = None,
    budget_dollars: Annotated[float | None, typer.Option("--budget-dollars", help="Most for all runs.")] = None,
    budget_hours: Annotated[float | None, typer.Option("--budget-hours", help="Most for all, added up.")] = None,
    ledger: WithLedger = False,
    tries: Annotated[int | None, typer.Option("--tries", min=1, help="Of a run that ends as a fault.")] = None,
    as_json: AsJson = False,
) -> None:
    """Run every combination of a plan, or go on with a batch that was stopped or killed."""
    from mlagentbench.runner.batch.conduct import conduct, slots_of
    from mlagentbench.runner.batch.plan import read
    from mlagentbench.terminal.progress import drawing, summary
    from mlagentbench.words import say

    given: dict[str, Any] = {"tasks": tasks, "agents": agents, "models": models, "seeds": seeds}
    given |= {"fast_model": fast_model, "edit_model": edit_model, "repetitions": repetitions, "tries": tries}
    given |= {"edition": edition, "sandbox": isolation, "instance": instance, "ledger": ledger}
    limits = {"steps": steps, "hours": hours, "tokens": tokens, "dollars": dollars, "memory_gb": memory}
    given |= {"limits": _given(limits), "budget": _given({"dollars": budget_dollars, "hours": budget_hours})}
    given = {name: value for name, value in given.items() if value}
    folder = out or (Path("runs", plan.stem) if plan else None)
    if folder is None:
        raise UsageError("pass --out FOLDER: the same command with the same folder goes on with a batch")
    wanted = read(plan, given) if plan or given else None
    with redirect_stdout(sys.stderr), drawing() as show:  # whatever an agent prints is no result
        ended = conduct(folder, wanted, slots_of(jobs, gpu), say, show)
    if as_json:
        print_json([result.model_dump(mode="json") for result in ended.results])
    for line in summary(ended, folder):
        say(line)
    code = 130 if ended.interrupted else 0 if ended.good else 1
    if ended.abandoned:
        sys.stdout.flush()
        os._exit(code)  # a thread that waits for a model would keep us; what it loses is done again
    raise typer.Exit(code)


def _given(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def watch(
    folder: Place,
    once: Annotated[bool, typer.Option("--once", help="Look once, and do not wait for the end.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show a batch, a run or a folder of runs as it goes on, from its files alone."""
    from mlagentbench.terminal.watch import looks, show_all

    if as_json:
        for view in looks(folder, once):
            told = view.model_dump(mode="json")
            print(json.dumps({**told, "totals": view.totals.model_dump(mode="json")}), flush=True)
    else:
        show_all(folder, once)


def stop(folder: Place) -> None:
    """Ask whoever works on a run or a batch to stop cleanly; resume, or the same batch command, goes on."""
    from mlagentbench.runner.batch.stop import stop as ask

    stopped, still = ask(folder)
    for path in stopped:
        print(f"stopped: {path}")
    for path in still:
        print(f"asked, but it is still at something that cannot be cut short: {path}")
    if still:
        raise typer.Exit(1)
