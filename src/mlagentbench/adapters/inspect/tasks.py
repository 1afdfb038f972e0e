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

from mlagentbench.adapters.inspect.attempt import Attempt, Terms
from mlagentbench.adapters.inspect.contestants import inspect_react, opened, ours
from mlagentbench.adapters.inspect.scoring import verdict
from mlagentbench.agents import base as agents
from mlagentbench.errors import UsageError
from mlagentbench.language.prompts import fill
from mlagentbench.records import Contestant
from mlagentbench.task import Task

REACT = "react"  # Inspect's own, and not ours of that name
OUTSIDE = "inspect"  # in the record: it may as well be another solver


def made(
    name: str,
    edition: str = "open",
    instance: str = "",
    steps: int | None = None,
    hours: float | None = None,
    agent: str = REACT,
    agent_options: dict[str, Any] | None = None,
    runs: str = "runs/inspect",
    gpu: str = "",
    isolation: str = "bwrap",
) -> InspectTask:
    """One sample, which is the task; epochs repeat it, each with its number as the seed."""
    try:
        found = Task.load(name)
        found.edition(edition)
        if agent != REACT:
            _check(agent, agent_options or {}, isolation)
    except UsageError as error:
        raise PrerequisiteError(str(error)) from error
    limits = {key: value for key, value in (("steps", steps), ("hours", hours)) if value is not None}
    who = Contestant(agent=OUTSIDE if agent == REACT else agent, options=agent_options or {})
    place = Path(runs).absolute()
    told = fill("tools", task=found.description, steps=str(limits.get("steps", found.config.limits.steps)))
    return InspectTask(
        name=found.name.replace("-", "_"),
        dataset=[
            Sample(
                id=found.name,
                input=[ChatMessageSystem(content=told), ChatMessageUser(content=fill("tools_begin"))],
                metadata={"edition": edition, "metric": found.config.metric, "better": found.config.better},
            )
        ],
        setup=opened(Terms(found.origin, who, place, edition, instance, isolation, gpu, limits)),
        solver=inspect_react() if agent == REACT else ours(agent, agent_options),
        scorer=verdict(),
        cleanup=_close,
        version=found.hash[:16],
        metadata={"title": found.config.title, "category": found.config.category},
    )


def _check(agent: str, options: dict[str, Any], isolation: str) -> None:
    kind = agents.load(agent)
    if kind.interactive:
        raise UsageError(f"the agent {agent} needs a person at a terminal")
    agents.make(kind, 0, options, isolation)


async def _close(state: TaskState) -> None:
    if attempt := Attempt.open.get(state.uuid):
        await attempt.close()


PARAMETERS = list(signature(made).parameters.values())[1:]


def _offered(name: str) -> Callable[..., InspectTask]:
    def make(**told: Any) -> InspectTask:
        return made(name, **told)

    make.__doc__ = f"The task {name} of MLAgentBench."
    make.__signature__ = Signature(PARAMETERS)  # type: ignore[attr-defined]  # by which Inspect knows what can be told
    return task(name=name.replace("-", "_"))(make)


def _in_folder(task_folder: str, **told: Any) -> InspectTask:
    """A task that is in a folder, and not in the suite."""
    return made(task_folder, **told)


_first = Parameter("task_folder", Parameter.POSITIONAL_OR_KEYWORD, annotation=str)
_in_folder.__signature__ = Signature([_first, *PARAMETERS])  # type: ignore[attr-defined]
folder = task(name="folder")(_in_folder)
suite = {name: _offered(name) for name in Task.names()}
