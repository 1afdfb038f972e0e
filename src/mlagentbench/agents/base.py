"""What an agent must do, and how one is found."""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Mapping
from inspect import Parameter
from pathlib import Path
from random import Random
from types import MappingProxyType
from typing import Any, get_type_hints

from pydantic import PydanticUserError, TypeAdapter, ValidationError

from mlagentbench import discovery
from mlagentbench.environment.environment import Environment
from mlagentbench.errors import UsageError
from mlagentbench.models.base import Model
from mlagentbench.records import Role


class Agent(ABC):
    """Something that works on a task until the environment is done.

    Limits, recording, errors and resuming are the environment's business. An agent that draws random numbers takes
    them from `self.random`, and reads the time from `env.steps`: then a resumed run repeats itself by itself.
    """

    ranked = True  # False for those that see more than a contestant may
    interactive = False
    needs_model = False
    restarts_on_resume = False  # whether a resumed run must do its steps again, with the recorded replies
    models: Mapping[Role, Model] = {}  # what `env.ask` asks

    def __init__(self, seed: int = 0) -> None:
        self.random = Random(seed)

    def check_sandbox(self, sandbox: str) -> None:  # noqa: B027 - most work in any
        """Refuse a sandbox in which it cannot do what it was told, before a run begins."""

    def prepare(self) -> None:  # noqa: B027 - most need nothing
        """Make ready what takes long, before the clock of the run begins."""

    @abstractmethod
    def run(self, env: Environment) -> None:
        """Work until `env.done`."""


def load_agent_class(name: str) -> type[Agent]:
    """An agent by its name, or from a file."""
    if name.endswith(".py"):
        return discovery.find_single_subclass(discovery.load_module_from_file(Path(name)), Agent)  # type: ignore[type-abstract]
    if name not in discovery.plugin_names("agents"):
        known = ", ".join(discovery.plugin_names("agents"))
        raise UsageError(f"no agent {name!r}; there are: {known}; or give a file: --agent PATH.py")
    return discovery.find_single_subclass(discovery.load_plugin("agents", name), Agent)  # type: ignore[type-abstract]


def instantiate_agent(
    agent_class: type[Agent],
    seed: int,
    options: Mapping[str, Any] = MappingProxyType({}),
    sandbox: str = "bwrap",
) -> Agent:
    """An agent ready to run, with what it may be told besides its seed."""
    known = dict(list(inspect.signature(agent_class.__init__).parameters.items())[2:])
    for name, value in options.items():
        if name not in known:
            raise UsageError(
                f"the agent {agent_class.__name__} has no option {name!r}; it has: {', '.join(known) or 'none'}"
            )
        if (default := known[name].default) not in (None, Parameter.empty) and type(value) is not type(
            default
        ):
            raise UsageError(
                f"the option {name} of {agent_class.__name__} is a {type(default).__name__}, unlike {value!r}"
            )
    _check_option_types(agent_class, options)
    try:
        agent = agent_class(seed, **options)
        agent.check_sandbox(sandbox)
        return agent
    except UsageError:
        raise
    except Exception as error:
        raise UsageError(
            f"the agent {agent_class.__name__} cannot be made: {type(error).__name__}: {error}"
        ) from error


def _check_option_types(kind: type[Agent], options: Mapping[str, Any]) -> None:
    """Hold options to their annotations, as far as these can be understood: they are anybody's code."""
    try:
        hints = get_type_hints(kind.__init__, include_extras=True)
        wanted = {name: TypeAdapter(hints[name]) for name in options if name in hints}
    except (NameError, TypeError, PydanticUserError):  # what only a type checker imports, or no data
        return
    for name, adapter in wanted.items():
        try:
            adapter.validate_python(options[name], strict=True)
        except ValidationError as error:
            why = error.errors()[0]["msg"].removeprefix("Input ")
            raise UsageError(
                f"the option {name} of {kind.__name__} {why}, unlike {options[name]!r}"
            ) from error
