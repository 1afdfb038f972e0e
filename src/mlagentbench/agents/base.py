"""What an agent is, and how one is loaded by name or from a file."""

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
from mlagentbench.environment import Environment
from mlagentbench.errors import UsageError
from mlagentbench.models.base import Model
from mlagentbench.records import ProgramInfo, Role


class Agent(ABC):
    """Works on a task until the environment is done.

    Limits, recording, errors and resuming are handled by the environment. For a resumed run to reproduce its
    steps, an agent takes random numbers from `self.random` and reads the time from `env.steps`.

    Options of an agent are keyword parameters of its `__init__` after `seed`; users pass them with
    `--set NAME=VALUE`. Type annotations are checked.

    Attributes:
        ranked: False for agents that see more than a competing agent may; they are left out of leaderboards.
        interactive: Whether a person takes part.
        needs_model: Whether the agent requires `--model`.
        needs_tools: Whether its model must be able to call tools.
        restarts_on_resume: Whether a resumed run repeats all steps with the recorded replies, because the
            agent cannot be fast-forwarded.
        option_aliases: Earlier names of options, which runs on disk may hold.
        requirements: What the agent needs besides a model, for `list agents`.
        program: The external program that it runs, known after `prepare`; it is recorded in run.json.
        program_lock: The versions and hashes of what was installed for the program.
        models: The models by role that `env.ask` uses.
        random: Random numbers that depend on the seed only.
    """

    ranked = True
    interactive = False
    needs_model = False
    needs_tools = False
    restarts_on_resume = False
    option_aliases: Mapping[str, str] = MappingProxyType({})
    requirements = ""
    program: ProgramInfo | None = None
    program_lock = ""
    models: Mapping[Role, Model] = MappingProxyType({})

    def __init__(self, seed: int = 0) -> None:
        """Create the agent.

        Args:
            seed: The seed of `self.random`.
        """
        self.random = Random(seed)

    def check_sandbox(self, sandbox: str) -> None:  # noqa: B027 - most agents work in any sandbox
        """Raise UsageError, before the run starts, if the agent cannot work in this sandbox."""

    def prepare(self) -> None:  # noqa: B027 - most agents need no preparation
        """Do slow preparations, such as installing packages, before the clock of the run starts."""

    @abstractmethod
    def run(self, env: Environment) -> None:
        """Work on the task until `env.done`.

        Args:
            env: The environment. `env.step(call)` runs an action and returns its observation;
                `env.ask(messages)` asks the model.

        Raises:
            RunOver: Acting after the end is not an error of the agent; it may let this exception pass.
        """


RENAMED = {
    "contestant": "ranked",
    "begins_again": "restarts_on_resume",
    "require": "check_sandbox",
}


def load_agent_class(name: str) -> type[Agent]:
    """Load an agent by name.

    Args:
        name: The name of an agent, or a file that ends in .py.

    Returns:
        Its class.

    Raises:
        UsageError: There is no such agent, or the file does not define exactly one.
    """
    if name.endswith(".py"):
        agent_class = discovery.find_single_subclass(discovery.load_module_from_file(Path(name)), Agent)  # type: ignore[type-abstract]
    elif name in discovery.plugin_names("agents"):
        agent_class = discovery.load_class("agents", name, Agent)  # type: ignore[type-abstract]
    else:
        available = ", ".join(discovery.plugin_names("agents"))
        raise UsageError(f"No such agent: {name!r}. Available: {available}; or pass a file: --agent PATH.py")
    for old, new in RENAMED.items():
        if old in vars(agent_class):
            raise UsageError(f"The agent {name} defines {old}, which is called {new} since version 0.2.")
    return agent_class


def instantiate_agent(
    agent_class: type[Agent],
    seed: int,
    options: Mapping[str, Any] = MappingProxyType({}),
    sandbox: str = "bwrap",
) -> Agent:
    """Create an agent with its options.

    Args:
        agent_class: The agent.
        seed: Its seed.
        options: Its options by name.
        sandbox: The name of the sandbox that the run will use.

    Returns:
        The agent, without models.

    Raises:
        UsageError: An option does not exist or has the wrong type, or the agent refuses the sandbox.
    """
    name = agent_class.__name__
    options = {agent_class.option_aliases.get(option, option): value for option, value in options.items()}
    parameters = dict(list(inspect.signature(agent_class.__init__).parameters.items())[2:])
    for option, value in options.items():
        if option not in parameters:
            raise UsageError(
                f"The agent {name} has no option {option!r}. Available: {', '.join(parameters) or 'none'}."
            )
        default = parameters[option].default
        if default not in (None, Parameter.empty) and type(value) is not type(default):
            raise UsageError(
                f"The option {option} of {name} must be {_with_article(type(default))}, not {value!r}."
            )
    _check_option_types(agent_class, options)
    try:
        agent = agent_class(seed, **options)
        agent.check_sandbox(sandbox)
        return agent
    except UsageError:
        raise
    except Exception as error:
        raise UsageError(f"The agent {name} cannot be created: {type(error).__name__}: {error}") from error


def _with_article(option_type: type) -> str:
    return f"{'an' if option_type.__name__[0] in 'aeiou' else 'a'} {option_type.__name__}"


def _check_option_types(agent_class: type[Agent], options: Mapping[str, Any]) -> None:
    """Check options against their annotations, as far as these can be evaluated."""
    try:
        hints = get_type_hints(agent_class.__init__, include_extras=True)
        adapters = {name: TypeAdapter(hints[name]) for name in options if name in hints}
    except (NameError, TypeError, PydanticUserError):  # imported for type checkers only, or not data
        return
    for name, adapter in adapters.items():
        try:
            adapter.validate_python(options[name], strict=True)
        except ValidationError as error:
            reason = error.errors()[0]["msg"].removeprefix("Input ")
            raise UsageError(
                f"The option {name} of {agent_class.__name__} {reason}, not {options[name]!r}."
            ) from error
