"""What an action is: a function of the world and of arguments whose schema is the function's own signature."""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from difflib import unified_diff
from functools import cache, cached_property
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from mlagentbench import discovery
from mlagentbench.environment.model_calls import ModelCalls
from mlagentbench.errors import ActionError, PromptTooLong, UsageError
from mlagentbench.records import Execution, Limits, Message, Prompt, Role, Step
from mlagentbench.runtimes.base import Runtime
from mlagentbench.sandbox.access_log.recording import AccessLog
from mlagentbench.sandbox.base import Sandbox, SandboxSpec
from mlagentbench.sandbox.output import CommandOutput
from mlagentbench.sandbox.repl import Repl
from mlagentbench.system.stop_token import StopToken
from mlagentbench.workspace.files import Workspace
from mlagentbench.workspace.store import Store

if TYPE_CHECKING:
    from mlagentbench.endpoint.external_program import ExternalProgram

AskPerson = Callable[[str], str]
MAX_REPLY_TOKENS = 4000  # tokens that a model may answer with
MAX_RESEARCH_LOG_CHARS = 40_000  # characters of the research log
MAX_DIFF_CHARS = 10_000  # characters of a difference
MAX_DIFF_LINE_PAIRS = 4_000_000  # lines times lines of it: beyond, finding it can take minutes


@dataclass
class ActionContext:
    """What actions work on."""

    workspace: Workspace
    store: Store
    sandbox: Sandbox
    runtime: Runtime
    limits: Limits
    outputs_dir: Path
    model_calls: ModelCalls
    seed: int = 0
    ask_person: AskPerson | None = None
    stop_token: StopToken = field(default_factory=StopToken)
    steps: list[Step] = field(default_factory=list)
    step_time_limit_s: float = 0.0  # what the step at hand may take
    research_notes: list[str] = field(default_factory=list)  # the research log
    repl: Repl | None = None
    external_program: "ExternalProgram | None" = None
    output: CommandOutput | None = None
    execution: Execution | None = None
    access_log: AccessLog | None = None  # the access ledger

    def __post_init__(self) -> None:
        self.store.mapped_inodes = self.mapped_inodes

    def mapped_inodes(self) -> set[int]:
        """The files that are memory of somebody who lives on between two steps, by inode."""
        return {inode for each in (self.repl, self.external_program) if each for inode in each.mapped_inodes}

    @property
    def step_output_path(self) -> Path:
        """Where the whole output of the step at hand goes."""
        self.outputs_dir.mkdir(exist_ok=True)
        return self.outputs_dir / f"step-{len(self.steps) + 1:04d}.txt"

    @property
    def program_output_path(self) -> Path:
        """Where the whole output of an outside program goes."""
        self.outputs_dir.mkdir(exist_ok=True)
        return self.outputs_dir / "program.txt"

    def sandbox_spec(self) -> SandboxSpec:
        """What the agent's commands may see and use; read-only is what is read-only now."""
        return SandboxSpec(
            workspace=self.workspace.root,
            runtime=self.runtime,
            limits=self.limits,
            read_only_paths=tuple(self.workspace.find_read_only_paths()),
            environment={"SEED": str(self.seed)},
            uid=self.workspace.owner,
            stop_token=self.stop_token,
            access_log=self.access_log,
            is_workspace_idle=lambda: not self.repl or self.repl.stayed_paused,
        )

    def research_log_text(self) -> str:
        """All notes; of very many the latest."""
        if not self.research_notes:
            raise ActionError("the research log is empty")
        return "\n\n".join(self.research_notes)[-MAX_RESEARCH_LOG_CHARS:]

    def ask_model(self, text: str, role: Role, repeated_chars: int = 0) -> str:
        """What a model says to one message, in which it must repeat `room` characters, or about as many."""
        prompt = Prompt(
            messages=(Message(role="user", text=text),), max_tokens=MAX_REPLY_TOKENS + repeated_chars // 2
        )
        try:
            return self.model_calls.ask(prompt, role).text
        except UsageError as error:
            raise ActionError("this run has no model that could do that") from error
        except PromptTooLong as error:
            raise ActionError(f"the model cannot take so much at once: {error}") from error

    def close(self) -> None:
        """End what outlives a step but must not outlive the run."""
        if self.repl:
            self.repl.close()
            self.repl = None
        if self.external_program:
            self.external_program.close()
            self.external_program = None
        if self.access_log:
            self.access_log.close()
        self.sandbox.release_workspace(SandboxSpec(self.workspace.root, self.runtime))


class Action:
    """One thing that an agent can do."""

    def __init__(self, module: ModuleType) -> None:
        short = module.__name__.rpartition(".")[2]
        self.name: str = getattr(module, "NAME", short.replace("_", " ").title())
        self.changes_workspace: bool = getattr(module, "CHANGES", True)
        self.reruns_on_resume: bool = getattr(module, "REPLAYED", False)  # what it does is nowhere on disk
        self.ends_run: bool = getattr(module, "ENDS", False)
        self.needs_person: bool = getattr(module, "INTERACTIVE", False)
        self.is_internal: bool = getattr(module, "HIDDEN", False)  # for the harness's own use
        self.needs_model: bool = getattr(module, "MODEL", False)  # whether it asks one
        self._function: Callable[..., str] = getattr(module, short)
        text, _, arguments = inspect.cleandoc(self._function.__doc__ or "").partition("Args:\n")
        self.description = " ".join(text.split())
        self._notes = dict(line.strip().split(": ", 1) for line in arguments.splitlines() if ": " in line)

    @cached_property
    def arguments(self) -> type[BaseModel]:
        """The arguments as a record."""
        fields: dict[str, Any] = {}
        for name, parameter in list(inspect.signature(self._function).parameters.items())[1:]:
            default = ... if parameter.default is parameter.empty else parameter.default
            fields[name] = (parameter.annotation, Field(default, description=self._notes.get(name, "")))
        return create_model(self.name, __config__=ConfigDict(extra="forbid"), **fields)

    @property
    def schema(self) -> dict[str, Any]:
        """The arguments as JSON schema, for models that call tools."""
        return self.arguments.model_json_schema()

    @property
    def usage(self) -> str:
        """How to call it, for whoever got it wrong."""
        told = {name: info.description or "..." for name, info in self.arguments.model_fields.items()}
        return "{" + ", ".join(f'"{name}": [{note}]' for name, note in told.items()) + "}"

    def __call__(self, world: ActionContext, args: dict[str, Any]) -> str:
        """Check the arguments, then act."""
        try:
            checked = self.arguments.model_validate(args)
        except ValidationError as error:
            first = error.errors()[0]
            name = ".".join(str(part) for part in first["loc"])
            what = {"missing": "is missing", "extra_forbidden": "is not an argument of it"}
            problem = what.get(first["type"], first["msg"].lower())
            raise ActionError(f"{self.name}: {name} {problem}. The arguments are: {self.usage}") from error
        return self._function(world, **{name: getattr(checked, name) for name in self.arguments.model_fields})


def load_actions(interactive: bool = False, models: bool = False) -> dict[str, Action]:
    """All actions, by the names that agents use; some need a person, some a model."""
    found = (
        action
        for action in _load_all_actions()
        if action.needs_person <= interactive and action.needs_model <= models
    )
    return {action.name: action for action in found}


@cache
def _load_all_actions() -> tuple[Action, ...]:
    """Made once: the classes of their arguments are heavy, and of every run would stay until the collector comes by."""
    return tuple(Action(discovery.load_plugin("actions", name)) for name in discovery.plugin_names("actions"))


def format_text_diff(old: str, new: str, old_name: str, new_name: str) -> str:
    """What is different between two texts, cut to what an observation can hold; of too many lines, only how many."""
    before, after = old.splitlines(), new.splitlines()
    if _count_differing_line_pairs(before, after) > MAX_DIFF_LINE_PAIRS:
        return (
            f"{len(before):,} lines became {len(after):,}; they are too many, and too different, to compare"
        )
    change = "\n".join(unified_diff(before, after, old_name, new_name, lineterm=""))
    return (
        change
        if len(change) <= MAX_DIFF_CHARS
        else f"{change[:MAX_DIFF_CHARS]}\n[... {len(change) - MAX_DIFF_CHARS:,} more characters ...]"
    )


def _count_differing_line_pairs(before: Sequence[str], after: Sequence[str]) -> int:
    """How many pairs of lines there are between what both begin with and what both end with."""
    shorter = min(len(before), len(after))
    same = next((at for at in range(shorter) if before[at] != after[at]), shorter)
    alike = next((at for at in range(shorter - same) if before[-1 - at] != after[-1 - at]), shorter - same)
    return (len(before) - same - alike) * (len(after) - same - alike)


def number_lines(lines: Sequence[str], first: int) -> str:
    """Lines with their numbers."""
    return "\n".join(f"{first + index:>5} {line}" for index, line in enumerate(lines))
