"""Every task of the suite as a task of Inspect, made when it is asked for."""

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
from mlagentbench.records import AgentSpec
from mlagentbench.system.hardware import detect_hardware
from mlagentbench.task import Task

INSPECT_REACT = "react"  # Inspect's own, and not ours of that name
EXTERNAL_SOLVER = "inspect"  # in the record: it may as well be another solver


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
) -> InspectTask:
    """One sample, which is the task; epochs repeat it, each with its number as the seed."""
    try:
        found = Task.load(name)
        found.edition(edition)
        if agent != INSPECT_REACT:
            _check_agent(agent, agent_options or {}, isolation)
    except UsageError as error:
        raise PrerequisiteError(str(error)) from error
    limits = {key: value for key, value in (("steps", steps), ("hours", hours)) if value is not None}
    who = AgentSpec(agent=EXTERNAL_SOLVER if agent == INSPECT_REACT else agent, options=agent_options or {})
    place = Path(runs).absolute()
    run_limits = found.config.limits.replace(**limits)
    statement = build_problem_statement(found, edition, run_limits, detect_hardware(), gpu)
    instructions = fill_prompt("tools", task=statement.strip(), steps=str(run_limits.steps))
    return InspectTask(
        name=found.name.replace("-", "_"),
        dataset=[
            Sample(
                id=found.name,
                input=[
                    ChatMessageSystem(content=instructions),
                    ChatMessageUser(content=fill_prompt("tools_begin")),
                ],
                metadata={"edition": edition, "metric": found.config.metric, "better": found.config.better},
            )
        ],
        setup=open_run(
            SampleSettings(found.load_name, who, place, edition, instance, isolation, gpu, limits)
        ),
        solver=inspect_react() if agent == INSPECT_REACT else benchmark_agent(agent, agent_options),
        scorer=verdict(),
        cleanup=_close_run,
        version=found.hash[:16],
        metadata={"title": found.config.title, "category": found.config.category},
    )


def _check_agent(agent: str, options: dict[str, Any], isolation: str) -> None:
    kind = agents.load_agent_class(agent)
    if kind.interactive:
        raise UsageError(f"the agent {agent} needs a person at a terminal")
    agents.instantiate_agent(kind, 0, options, isolation)


async def _close_run(state: TaskState) -> None:
    if attempt := SampleRun.active.get(state.uuid):
        await attempt.close()


TASK_PARAMETERS = list(signature(create_task).parameters.values())[1:]


def _register_suite_task(name: str) -> Callable[..., InspectTask]:
    def make(**told: Any) -> InspectTask:
        return create_task(name, **told)

    make.__doc__ = f"The task {name} of MLAgentBench."
    make.__signature__ = Signature(TASK_PARAMETERS)  # type: ignore[attr-defined]  # by which Inspect knows what can be told
    return task(name=name.replace("-", "_"))(make)


def _create_folder_task(task_folder: str, **told: Any) -> InspectTask:
    """A task that is in a folder, and not in the suite."""
    return create_task(task_folder, **told)


_folder_parameter = Parameter("task_folder", Parameter.POSITIONAL_OR_KEYWORD, annotation=str)
_create_folder_task.__signature__ = Signature([_folder_parameter, *TASK_PARAMETERS])  # type: ignore[attr-defined]
folder_task = task(name="folder")(_create_folder_task)
suite_tasks = {name: _register_suite_task(name) for name in Task.names()}
