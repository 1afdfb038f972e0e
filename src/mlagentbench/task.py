"""A task is a folder; this module reads it and says in one line what is wrong with it."""

import tomllib
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from mlagentbench.errors import UsageError
from mlagentbench.formatting import to_single_line
from mlagentbench.records import Baseline, Better, Limits, Record
from mlagentbench.system.hashing import hash_tree

BUILTIN_TASKS_DIR = Path(__file__).parent / "tasks"
REQUIRED_FILES = ("task.toml", "description.md", "prepare.py", "grade.py")
REQUIRED_FOLDERS = ("starter", "reference")
REQUIRED_PARTS = REQUIRED_FILES + REQUIRED_FOLDERS


class Source(Record):
    """One archive that preparation downloads, pinned by its hash."""

    kind: Literal["pypi", "npm", "kaggle", "hub", "url"]
    name: str
    version: str = ""
    file: str = Field(min_length=1)
    sha256: str = Field(pattern="^[0-9a-f]{64}$|^$", default="")


class Edition(Record):
    """One size and origin of a task's data, with what was measured on it."""

    size: str
    sources: tuple[Source, ...] = ()
    baseline: Baseline | None = None
    reference: float | None = None


class Twin(Record):
    """What a twin may have otherwise without starter, reference and description noticing; columns of any table."""

    ids: tuple[str, ...] = Field(min_length=1)  # what stands before the first _ changes places with others
    words: tuple[str, ...] = ()  # every word becomes another, the same in all these columns
    units: tuple[tuple[str, ...], ...] = ()  # numbers; columns that are measured in one unit stand together
    years: tuple[str, ...] = ()  # of one calendar

    @property
    def columns(self) -> tuple[str, ...]:
        """All that are named."""
        return (*self.ids, *self.words, *self.years, *(column for unit in self.units for column in unit))


class TaskConfig(Record):
    """What task.toml may say; anything else is an error."""

    title: str
    category: str
    modality: str
    metric: str
    better: Better
    runtime: str
    submission: str = "submission.csv"
    read_only: tuple[str, ...] = ()
    repeatable: float = Field(ge=0, default=1e-9)
    grading_minutes: float = Field(gt=0, default=10.0)
    limits: Limits = Limits()
    twin: Twin | None = None
    editions: dict[Literal["open", "paper"], Edition]


class Task:
    """One task folder, and the parts of it."""

    def __init__(self, folder: Path, origin: str = "") -> None:
        self.folder = folder.resolve()
        self._origin = origin
        self.name = self.folder.name
        missing = [name for name in REQUIRED_FILES if not (self.folder / name).is_file()]
        missing += [f"the folder {name}" for name in REQUIRED_FOLDERS if not (self.folder / name).is_dir()]
        if missing:
            raise UsageError(f"task {self.name}: {missing[0]} is missing in {self.folder}")
        self.description = _read_text(self.folder / "description.md")
        self.config = _read_config(self.folder / "task.toml")

    @classmethod
    def load(cls, name: str) -> "Task":
        """The task called `name` in the suite, or the one in the folder `name`."""
        if name in cls.names():
            return cls(BUILTIN_TASKS_DIR / name)
        if Path(name).is_dir():
            return cls(Path(name))
        raise UsageError(f"no task {name!r}; there are: {', '.join(cls.names())}")

    @staticmethod
    def names() -> list[str]:
        """All the tasks of the suite, in order."""
        return sorted((path.parent.name for path in BUILTIN_TASKS_DIR.glob("*/task.toml")), key=str.lower)

    def edition(self, name: str) -> Edition:
        """One of the task's editions."""
        found = {str(key): edition for key, edition in self.config.editions.items()}
        if name not in found:
            raise UsageError(f"task {self.name} has no edition {name!r}; there are: {', '.join(found)}")
        return found[name]

    @property
    def load_name(self) -> str:
        """What `load` must be told to find this task again, where it came from if this is a copy."""
        if self._origin:
            return self._origin
        return self.name if self.folder.parent == BUILTIN_TASKS_DIR.resolve() else str(self.folder)

    @property
    def starter(self) -> Path:
        """The files that the agent begins with."""
        return self.folder / "starter"

    @property
    def has_rules(self) -> bool:
        """Whether its grader looks for what is against the rules in an agent's scripts."""
        return "def violations(" in _read_text(self.folder / "grade.py")

    @property
    def hash(self) -> str:
        """The content of the task: what the agent is told and given, and how it is judged."""
        return hash_tree(self.folder)

    @property
    def grader_hash(self) -> str:
        """The content of what decides the score, answers aside; a starter may be what a submission is timed against."""
        return hash_tree(self.folder / "grade.py", self.starter, Path(__file__).parent / "grading")


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from error


def _read_config(path: Path) -> TaskConfig:
    try:
        return TaskConfig.model_validate(tomllib.loads(_read_text(path)))
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path}: not valid TOML: {error}") from error
    except ValidationError as error:
        raise UsageError(f"{path}: {describe_validation_error(error)}") from error


def describe_validation_error(error: ValidationError) -> str:
    """What is wrong with a record, in one line."""
    first = min(
        error.errors(), key=lambda each: each["type"] != "extra_forbidden"
    )  # a typing error explains the rest
    where = ".".join(str(part) for part in first["loc"]) or "it"
    what = "no such key" if first["type"] == "extra_forbidden" else first["msg"].lower()
    more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
    return f"{to_single_line(where)}: {to_single_line(what)}{more}"
