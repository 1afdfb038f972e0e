"""Every task of the suite as an Inspect task, created on demand."""

from collections.abc import Callable
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Any

from inspect_ai import Task as InspectTask
from inspect_ai import task
from inspect_ai._util.error import PrerequisiteError
from inspect_ai.dataset import Sample
from inspect_ai.model import ChatMessageSystem, ChatMessageUser
from inspect_ai.solver import TaskState

from mlagentbench.adapters.inspect.sample_run import SampleRun, SampleSettings
from mlagentbench.adapters.inspect.scoring import verdict
from mlagentbench.adapters.inspect.solvers import benchmark_agent, inspect_react, open_run
from mlagentbench.agents import base as agents
from mlagentbench.environment.problem_statement import build_problem_statement
from mlagentbench.errors import UsageError
from mlagentbench.language.prompts import fill_prompt
from mlagentbench.records import AgentSpec, Start
from mlagentbench.runner.baselines import find_levels_before_preparation
from mlagentbench.system.hardware import detect_hardware
from mlagentbench.task import Task

INSPECT_REACT = "react"  # Inspect's own agent, not the one of the benchmark with that name
EXTERNAL_SOLVER = "inspect"  # the agent's name in the record; it may be any other solver of Inspect


def create_task(
    name: str,
    edition: str = "open",
    instance: str = "",
    steps: int | None = None,
    hours: float | None = None,
    agent: str = INSPECT_REACT,
    agent_options: dict[str, Any] | None = None,
    runs: str = "runs/inspect",
    gpu: str = "",
    isolation: str = "bwrap",
    start: Start = "starter",
) -> InspectTask:
    """Create an Inspect task with one sample; epochs repeat it, with the epoch as the seed."""
    try:
        benchmark_task = Task.load(name)
        benchmark_task.edition(edition)
        benchmark_task.solution(start)
        if agent != INSPECT_REACT:
            _check_agent(agent, agent_options or {}, isolation)
    except UsageError as error:
        raise PrerequisiteError(str(error)) from error
    limits = {key: value for key, value in (("steps", steps), ("hours", hours)) if value is not None}
    config = benchmark_task.config
    run_limits = config.limits.replace(**limits)
    levels = find_levels_before_preparation(benchmark_task, edition, instance)
    statement = build_problem_statement(
        benchmark_task, edition, run_limits, detect_hardware(), gpu, start, levels, has_model=True
    )
    instructions = fill_prompt("tools", task=statement.strip(), steps=str(run_limits.steps))
    settings = SampleSettings(
        task=benchmark_task.load_name,
        agent=AgentSpec(
            agent=EXTERNAL_SOLVER if agent == INSPECT_REACT else agent, options=agent_options or {}
        ),
        runs=Path(runs).absolute(),
        edition=edition,
        instance=instance,
        start=start,
        isolation=isolation,
        gpu=gpu,
        limits=limits,
    )
    return InspectTask(
        name=benchmark_task.name.replace("-", "_"),
        dataset=[
            Sample(
                id=benchmark_task.name,
                input=[
                    ChatMessageSystem(content=instructions),
                    ChatMessageUser(content=fill_prompt("tools_begin")),
                ],
                metadata={
                    "edition": edition,
                    "start": start,
                    "metric": config.metric,
                    "better": config.better,
                },
            )
        ],
        setup=open_run(settings),
        solver=inspect_react() if agent == INSPECT_REACT else benchmark_agent(agent, agent_options),
        scorer=verdict(),
        cleanup=_close_run,
        version=benchmark_task.hash[:16],
        metadata={"title": config.title, "category": config.category},
    )


def _check_agent(agent: str, options: dict[str, Any], isolation: str) -> None:
    agent_class = agents.load_agent_class(agent)
    if agent_class.interactive:
        raise UsageError(f"The agent {agent} needs a person at a terminal.")
    agents.instantiate_agent(agent_class, 0, options, isolation)


async def _close_run(state: TaskState) -> None:
    if run := SampleRun.active.get(state.uuid):
        await run.close()


TASK_PARAMETERS = list(signature(create_task).parameters.values())[1:]


def _register_suite_task(name: str) -> Callable[..., InspectTask]:
    def create(**options: Any) -> InspectTask:
        return create_task(name, **options)

    create.__doc__ = f"The task {name} of MLAgentBench."
    # Inspect reads the accepted options from the signature.
    create.__signature__ = Signature(TASK_PARAMETERS)  # type: ignore[attr-defined]
    return task(name=name.replace("-", "_"))(create)


def _create_folder_task(task_folder: str, **options: Any) -> InspectTask:
    """A task in a folder, outside the suite."""
    return create_task(task_folder, **options)


_folder_parameter = Parameter("task_folder", Parameter.POSITIONAL_OR_KEYWORD, annotation=str)
_create_folder_task.__signature__ = Signature([_folder_parameter, *TASK_PARAMETERS])  # type: ignore[attr-defined]
folder_task = task(name="folder")(_create_folder_task)
suite_tasks = {name: _register_suite_task(name) for name in Task.names()}
