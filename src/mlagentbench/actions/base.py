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
from mlagentbench.errors import ActionError, PromptTooLong, UsageError
from mlagentbench.ledger import Ledger
from mlagentbench.records import Execution, Limits, Message, Prompt, Role, Step
from mlagentbench.runtimes.base import Runtime
from mlagentbench.sandbox.access.listening import Book
from mlagentbench.sandbox.base import Box, Sandbox
from mlagentbench.sandbox.output import Output
from mlagentbench.sandbox.repl import Repl
from mlagentbench.stopping import Stopping
from mlagentbench.workspace.files import Workspace
from mlagentbench.workspace.store import Store

if TYPE_CHECKING:
    from mlagentbench.endpoint.outside import Outside

Person = Callable[[str], str]
REPLY = 4000  # tokens that a model may answer with
LATEST = 40_000  # characters of the research log
SHOWN = 10_000  # characters of a difference
PAIRS = 4_000_000  # lines times lines of it: beyond, finding it can take minutes


@dataclass
class World:
    """What actions work on."""

    workspace: Workspace
    store: Store
    sandbox: Sandbox
    runtime: Runtime
    limits: Limits
    outputs: Path
    ledger: Ledger
    seed: int = 0
    person: Person | None = None
    stopping: Stopping = field(default_factory=Stopping)
    steps: list[Step] = field(default_factory=list)
    seconds: float = 0.0  # what the step at hand may take
    log: list[str] = field(default_factory=list)  # the research log
    repl: Repl | None = None
    outside: "Outside | None" = None
    output: Output | None = None
    execution: Execution | None = None
    book: Book | None = None  # the access ledger

    def __post_init__(self) -> None:
        self.store.mapped = self.mapped

    def mapped(self) -> set[int]:
        """The files that are memory of somebody who lives on between two steps, by inode."""
        return {inode for each in (self.repl, self.outside) if each for inode in each.mapped}

    @property
    def output_file(self) -> Path:
        """Where the whole output of the step at hand goes."""
        self.outputs.mkdir(exist_ok=True)
        return self.outputs / f"step-{len(self.steps) + 1:04d}.txt"

    @property
    def program_output(self) -> Path:
        """Where the whole output of an outside program goes."""
        self.outputs.mkdir(exist_ok=True)
        return self.outputs / "program.txt"

    def box(self) -> Box:
        """What the agent's commands may see and use; read-only is what is read-only now."""
        return Box(
            workspace=self.workspace.root,
            runtime=self.runtime,
            limits=self.limits,
            read_only=tuple(self.workspace.read_only_paths()),
            environment={"SEED": str(self.seed)},
            owner=self.workspace.owner,
            stopping=self.stopping,
            book=self.book,
            calm=lambda: not self.repl or self.repl.at_rest,
        )

    def research_log(self) -> str:
        """All notes; of very many the latest."""
        if not self.log:
            raise ActionError("the research log is empty")
        return "\n\n".join(self.log)[-LATEST:]

    def ask(self, text: str, role: Role, room: int = 0) -> str:
        """What a model says to one message, in which it must repeat `room` characters, or about as many."""
        prompt = Prompt(messages=(Message(role="user", text=text),), max_tokens=REPLY + room // 2)
        try:
            return self.ledger.ask(prompt, role).text
        except UsageError as error:
            raise ActionError("this run has no model that could do that") from error
        except PromptTooLong as error:
            raise ActionError(f"the model cannot take so much at once: {error}") from error

    def close(self) -> None:
        """End what outlives a step but must not outlive the run."""
        if self.repl:
            self.repl.close()
            self.repl = None
        if self.outside:
            self.outside.close()
            self.outside = None
        if self.book:
            self.book.close()
        self.sandbox.release(Box(self.workspace.root, self.runtime))


class Action:
    """One thing that an agent can do."""

    def __init__(self, module: ModuleType) -> None:
        short = module.__name__.rpartition(".")[2]
        self.name: str = getattr(module, "NAME", short.replace("_", " ").title())
        self.changes: bool = getattr(module, "CHANGES", True)
        self.replayed: bool = getattr(module, "REPLAYED", False)  # what it does is nowhere on disk
        self.ends: bool = getattr(module, "ENDS", False)
        self.interactive: bool = getattr(module, "INTERACTIVE", False)
        self.hidden: bool = getattr(module, "HIDDEN", False)  # for the harness's own use
        self.model: bool = getattr(module, "MODEL", False)  # whether it asks one
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
    def form(self) -> str:
        """How to call it, for whoever got it wrong."""
        told = {name: info.description or "..." for name, info in self.arguments.model_fields.items()}
        return "{" + ", ".join(f'"{name}": [{note}]' for name, note in told.items()) + "}"

    def __call__(self, world: World, args: dict[str, Any]) -> str:
        """Check the arguments, then act."""
        try:
            checked = self.arguments.model_validate(args)
        except ValidationError as error:
            first = error.errors()[0]
            name = ".".join(str(part) for part in first["loc"])
            what = {"missing": "is missing", "extra_forbidden": "is not an argument of it"}
            problem = what.get(first["type"], first["msg"].lower())
            raise ActionError(f"{self.name}: {name} {problem}. The arguments are: {self.form}") from error
        return self._function(world, **{name: getattr(checked, name) for name in self.arguments.model_fields})


def load(interactive: bool = False, models: bool = False) -> dict[str, Action]:
    """All actions, by the names that agents use; some need a person, some a model."""
    found = (action for action in _all() if action.interactive <= interactive and action.model <= models)
    return {action.name: action for action in found}


@cache
def _all() -> tuple[Action, ...]:
    """Made once: the classes of their arguments are heavy, and of every run would stay until the collector comes by."""
    return tuple(Action(discovery.plugin("actions", name)) for name in discovery.names("actions"))


def difference(old: str, new: str, old_name: str, new_name: str) -> str:
    """What is different between two texts, cut to what an observation can hold; of too many lines, only how many."""
    before, after = old.splitlines(), new.splitlines()
    if _pairs(before, after) > PAIRS:
        return f"{len(before):,} lines became {len(after):,}; they are too many, and too different, to compare"
    change = "\n".join(unified_diff(before, after, old_name, new_name, lineterm=""))
    return change if len(change) <= SHOWN else f"{change[:SHOWN]}\n[... {len(change) - SHOWN:,} more characters ...]"


def _pairs(before: Sequence[str], after: Sequence[str]) -> int:
    """How many pairs of lines there are between what both begin with and what both end with."""
    shorter = min(len(before), len(after))
    same = next((at for at in range(shorter) if before[at] != after[at]), shorter)
    alike = next((at for at in range(shorter - same) if before[-1 - at] != after[-1 - at]), shorter - same)
    return (len(before) - same - alike) * (len(after) - same - alike)


def numbered(lines: Sequence[str], first: int) -> str:
    """Lines with their numbers."""
    return "\n".join(f"{first + index:>5} {line}" for index, line in enumerate(lines))
