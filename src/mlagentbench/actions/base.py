"""What an action is: a function of the run's context and of arguments. Its signature is the schema."""

import inspect
from collections.abc import Callable, Sequence
from copy import copy
from difflib import unified_diff
from functools import cache, cached_property
from types import ModuleType
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from mlagentbench import discovery
from mlagentbench.environment.context import ActionContext
from mlagentbench.errors import ActionError, UsageError
from mlagentbench.formatting import fill_placeholders, format_quantity
from mlagentbench.records import Limits

MAX_DIFF_CHARS = 10_000
MAX_DIFF_LINE_PAIRS = 4_000_000  # lines times lines: beyond that, computing a diff can take minutes

ActionFunction = Callable[..., str]
ARGUMENT_PROBLEMS = {"missing": "is missing", "extra_forbidden": "is not an argument of this action"}


class Action:
    """One thing that an agent can do. Made by the decorator `action`.

    Attributes:
        name: The name that agents use, such as "Read File".
        description: The function's docstring without its arguments. In it, {{script_minutes}} is replaced by
            the time limit of a script.
        changes_workspace: Whether a snapshot is taken after it.
        reruns_on_resume: Whether a resumed run runs it again, because its effect is not on disk.
        ends_run: Whether it submits the workspace.
        needs_person: Whether it is offered only in interactive runs.
        needs_model: Whether it is offered only in runs with a model.
        is_internal: Whether it is for the harness itself and never offered to agents.
    """

    def __init__(
        self,
        function: ActionFunction,
        *,
        name: str = "",
        changes_workspace: bool = True,
        reruns_on_resume: bool = False,
        ends_run: bool = False,
        needs_person: bool = False,
        needs_model: bool = False,
        is_internal: bool = False,
    ) -> None:
        self.name = name or function.__name__.replace("_", " ").title()
        self.changes_workspace = changes_workspace
        self.reruns_on_resume = reruns_on_resume
        self.ends_run = ends_run
        self.needs_person = needs_person
        self.needs_model = needs_model
        self.is_internal = is_internal
        self._function = function
        text, _, arguments = inspect.cleandoc(function.__doc__ or "").partition("Args:\n")
        self.description = " ".join(text.split())
        self._argument_docs = dict(
            line.strip().split(": ", 1) for line in arguments.splitlines() if ": " in line
        )

    def with_limits(self, limits: Limits) -> "Action":
        """The same action; its description states the limits of a run."""
        filled = fill_placeholders(
            self.description, {"script_minutes": format_quantity(limits.script_minutes, "minute")}
        )
        if filled == self.description:
            return self
        _ = self.arguments  # computed once, and shared by the copies
        described = copy(self)
        described.description = filled
        return described

    @cached_property
    def arguments(self) -> type[BaseModel]:
        """The arguments as a pydantic model."""
        fields: dict[str, Any] = {}
        for name, parameter in list(inspect.signature(self._function).parameters.items())[1:]:
            default = ... if parameter.default is parameter.empty else parameter.default
            fields[name] = (
                parameter.annotation,
                Field(default, description=self._argument_docs.get(name, "")),
            )
        return create_model(self.name, __config__=ConfigDict(extra="forbid"), **fields)

    @property
    def schema(self) -> dict[str, Any]:
        """The arguments as JSON schema, for models that call tools."""
        return self.arguments.model_json_schema()

    @property
    def usage(self) -> str:
        """The arguments as a JSON object with their descriptions."""
        docs = {name: info.description or "..." for name, info in self.arguments.model_fields.items()}
        return "{" + ", ".join(f'"{name}": [{doc}]' for name, doc in docs.items()) + "}"

    def __call__(self, context: ActionContext, args: dict[str, Any]) -> str:
        """Check the arguments and run the action.

        Raises:
            ActionError: An argument is wrong, or the action failed.
        """
        try:
            checked = self.arguments.model_validate(args)
        except ValidationError as error:
            first = error.errors()[0]
            name = ".".join(str(part) for part in first["loc"])
            problem = ARGUMENT_PROBLEMS.get(first["type"], first["msg"].lower())
            raise ActionError(f"{self.name}: {name} {problem}. The arguments are: {self.usage}") from error
        return self._function(
            context, **{name: getattr(checked, name) for name in self.arguments.model_fields}
        )


def action(
    *,
    name: str = "",
    changes_workspace: bool = True,
    reruns_on_resume: bool = False,
    ends_run: bool = False,
    needs_person: bool = False,
    needs_model: bool = False,
    is_internal: bool = False,
) -> Callable[[ActionFunction], Action]:
    """Turn a function into an Action; the keywords are the attributes of Action.

    The function takes the ActionContext first. Its other parameters are the arguments of the action,
    described in its docstring under "Args:". It returns the observation and raises ActionError for failures
    that the agent should see.
    """

    def decorate(function: ActionFunction) -> Action:
        return Action(
            function,
            name=name,
            changes_workspace=changes_workspace,
            reruns_on_resume=reruns_on_resume,
            ends_run=ends_run,
            needs_person=needs_person,
            needs_model=needs_model,
            is_internal=is_internal,
        )

    return decorate


def load_actions(
    interactive: bool = False, models: bool = False, limits: Limits | None = None
) -> dict[str, Action]:
    """Load the actions of a run by name; some need a person, some a model.

    Args:
        interactive: Whether a person takes part.
        models: Whether the run has a model.
        limits: The limits that descriptions state, by default those of a task that sets none.
    """
    return {
        action.name: action.with_limits(limits or Limits())
        for action in _load_all_actions()
        if action.needs_person <= interactive and action.needs_model <= models
    }


@cache
def _load_all_actions() -> tuple[Action, ...]:
    """Load all actions, once: their argument classes are large and would otherwise accumulate per run."""
    return tuple(_load_action(name) for name in discovery.plugin_names("actions"))


def _load_action(name: str) -> Action:
    plugin = discovery.load_plugin("actions", name)
    loaded = getattr(plugin, name.replace("-", "_"), None) if isinstance(plugin, ModuleType) else plugin
    if not isinstance(loaded, Action):
        raise UsageError(
            f"The action {name} must be a function with that name, decorated with @action(); got {loaded!r}."
        )
    return loaded


def format_text_diff(old: str, new: str, old_name: str, new_name: str) -> str:
    """Format a unified diff of two texts, truncated for an observation; for huge diffs only the sizes."""
    before, after = old.splitlines(), new.splitlines()
    if _count_differing_line_pairs(before, after) > MAX_DIFF_LINE_PAIRS:
        return f"{len(before):,} lines became {len(after):,}; the diff is too large to show"
    diff = "\n".join(unified_diff(before, after, old_name, new_name, lineterm=""))
    if len(diff) <= MAX_DIFF_CHARS:
        return diff
    return f"{diff[:MAX_DIFF_CHARS]}\n[... {len(diff) - MAX_DIFF_CHARS:,} more characters ...]"


def _count_differing_line_pairs(before: Sequence[str], after: Sequence[str]) -> int:
    """Count the pairs of lines that remain between the common beginning and the common end."""
    shorter = min(len(before), len(after))
    prefix = next((index for index in range(shorter) if before[index] != after[index]), shorter)
    rest = shorter - prefix
    suffix = next((index for index in range(rest) if before[-1 - index] != after[-1 - index]), rest)
    return (len(before) - prefix - suffix) * (len(after) - prefix - suffix)


def number_lines(lines: Sequence[str], first: int) -> str:
    """Format lines with their numbers."""
    return "\n".join(f"{first + index:>5} {line}" for index, line in enumerate(lines))
