"""Commands about what is available and prepared: list, prepare, baseline, doctor."""

import json
from collections.abc import Sequence
from typing import Annotated

import typer

from mlagentbench.cli.options import (
    AsJson,
    EditionName,
    Gpu,
    Instance,
    SandboxName,
    StartName,
    TaskName,
    TaskNames,
    print_json,
)
from mlagentbench.errors import UsageError


def list_(
    what: Annotated[
        str, typer.Argument(metavar="KIND", help="tasks, agents, actions, models or runtimes.")
    ] = "tasks",
    as_json: AsJson = False,
) -> None:
    """List tasks, agents, actions, models or runtimes."""
    from mlagentbench.terminal.lists import collect_rows, show_list

    rows = collect_rows(what)
    print_json(rows) if as_json else show_list(rows)


def prepare(
    tasks: TaskNames = None,
    edition: EditionName = "open",
    fresh: Annotated[bool, typer.Option("--fresh", help="Draw new data with a new hidden seed.")] = False,
    twin: Annotated[
        bool, typer.Option("--twin", help="Relabel the data with a hidden seed; tables only.")
    ] = False,
    data_only: Annotated[bool, typer.Option("--data-only", help="Do not build runtimes yet.")] = False,
    agents: Annotated[
        list[str] | None,
        typer.Option("--agent", help="Install the program of this agent, and no tasks unless named."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Prepare the data and runtimes of tasks. Downloads, splits and builds once; safe to repeat."""
    from mlagentbench.formatting import print_progress
    from mlagentbench.preparation.prepare import prepare_data
    from mlagentbench.preparation.twin import prepare_twin
    from mlagentbench.runtimes.base import ensure_runtime
    from mlagentbench.task import Task

    if fresh and twin:
        raise UsageError("--fresh draws other rows, --twin relabels the same rows. Choose one.")
    prepared = _prepare_agents(agents or (), as_json)
    for task in [Task.load(name) for name in tasks or ([] if agents else Task.names())]:
        has_data = "paper" in task.config.editions if edition == "paper" else True
        if not tasks and not (has_data and (task.config.twin or not twin)):
            continue
        if not data_only:
            ensure_runtime(task.config.runtime, print_progress)
        if twin:
            data = prepare_twin(task, edition, print_progress)
        else:
            data = prepare_data(task, edition, print_progress, fresh=fresh)
        prepared.append({"task": task.name, "edition": edition, "instance": data.instance, "hash": data.hash})
        if not as_json:
            print(f"{task.name} ({edition}) is ready: instance {data.instance}")
    if as_json:
        print_json(prepared)


def _prepare_agents(names: Sequence[str], as_json: bool) -> list[dict[str, str]]:
    """Install the programs of agents; returns a row for each."""
    from mlagentbench.agents.base import instantiate_agent, load_agent_class

    rows = []
    for agent_class in [load_agent_class(name) for name in names]:
        agent = instantiate_agent(agent_class, 0)
        agent.prepare()
        if agent.program:
            rows.append({"agent": agent.program.name, **agent.program.model_dump(exclude={"name"})})
            if not as_json:
                print(f"{agent.program.name} {agent.program.version} is installed")
    return rows


def baseline(
    task: TaskName,
    count: Annotated[int, typer.Option("-n", min=2, help="Number of runs, each with its own seed.")] = 8,
    edition: EditionName = "open",
    sandbox: SandboxName = "auto",
    instance: Instance = "",
    start: StartName = "starter",
    gpu: Gpu = "",
    as_json: AsJson = False,
) -> None:
    """Measure the scores of the starter, or of another start."""
    from mlagentbench.formatting import format_score, print_progress
    from mlagentbench.grading.verdict import find_unreachable_success
    from mlagentbench.levels import score_to_beat
    from mlagentbench.runner.setup import prepare_setup
    from mlagentbench.runner.start import measure_baseline
    from mlagentbench.task import parse_start

    setup = prepare_setup(
        task,
        edition,
        sandbox,
        print_progress,
        instance,
        gpu,
        start=parse_start(start),
        warn_if_unjudged=False,
    )
    measured, scores = measure_baseline(setup, count, print_progress)
    if as_json:
        print_json(
            {"task": task, "edition": edition, "start": start, **measured.model_dump(), "scores": scores}
        )
        return
    mean, sd = format_score(measured.mean), format_score(measured.sd)
    print(f"{start} of {task} ({edition}): {mean} ± {sd}, n = {measured.n}, {measured.hardware}")
    print(f"For task.toml, below [editions.{edition}.levels]:")
    values = f"mean = {measured.mean:.6g}, sd = {measured.sd:.6g}, n = {measured.n}"
    print(f"{start} = {{ {values}, hardware = {json.dumps(measured.hardware)} }}")
    if start == "starter":
        config, levels = setup.task.config, setup.levels.replace(starter=measured)
        needed = format_score(score_to_beat(measured, config.better))
        print(f"Success needs {'more' if config.better == 'higher' else 'less'} than {needed}, beyond noise.")
        if problem := find_unreachable_success(levels, config.metric, config.better):
            print(problem)


def doctor(as_json: AsJson = False) -> None:
    """Check this machine: isolation, limits, GPU and runtimes."""
    from mlagentbench.terminal.doctor import run_checks

    checks = run_checks()
    if as_json:
        print_json([check.model_dump() for check in checks])
    else:
        for check in checks:
            status = "ok  " if check.good else "FAIL" if check.needed else "-   "
            print(f"{status}  {check.what}: {check.detail}")
    if not all(check.good for check in checks if check.needed):
        raise typer.Exit(1)
