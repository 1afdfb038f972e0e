"""A task is a folder. This module reads it and reports mistakes in one line."""

import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

from pydantic import Field, ValidationError, model_validator

from mlagentbench.discovery import installed_plugins, load_entry_point
from mlagentbench.errors import UsageError
from mlagentbench.formatting import PLACEHOLDER, fill_placeholders, to_single_line
from mlagentbench.records import STARTS, Better, Levels, Limits, Record, Scale, Start
from mlagentbench.system.hashing import hash_tree
from mlagentbench.system.key_suggestions import suggest_key

BUILTIN_TASKS_DIR = Path(__file__).parent / "tasks"
REQUIRED_FILES = ("task.toml", "description.md", "prepare.py", "grade.py")
REQUIRED_FOLDERS = ("starter", "reference")
REQUIRED_PARTS = REQUIRED_FILES + REQUIRED_FOLDERS


class Source(Record):
    """An archive that preparation downloads, pinned by its hash."""

    kind: Literal["pypi", "npm", "kaggle", "hub", "url"]
    name: str
    version: str = ""
    file: str = Field(min_length=1)
    sha256: str = Field(pattern="^[0-9a-f]{64}$|^$", default="")


class Edition(Record):
    """One version of a task's data: its sources, its size, and the scores measured on it."""

    size: str
    # Values of the {{names}} in description.md that differ between editions.
    placeholders: dict[str, str] = Field(default_factory=dict)
    sources: tuple[Source, ...] = ()
    levels: Levels = Levels()

    @model_validator(mode="before")
    @classmethod
    def _read_old_keys(cls, given: Any) -> Any:
        """Accept the keys `baseline` and `reference` (a number) of older task files."""
        if not isinstance(given, dict) or not {"baseline", "reference"} & given.keys():
            return given
        levels = {**given.get("levels", {})}
        if "baseline" in given:
            levels.setdefault("starter", given["baseline"])
        if "reference" in given:
            levels.setdefault("reference", {"mean": given["reference"], "sd": 0, "n": 1})
        return {
            **{key: value for key, value in given.items() if key not in ("baseline", "reference")},
            "levels": levels,
        }


class Twin(Record):
    """The columns of a table that a twin relabels; starter, reference and description still fit."""

    ids: tuple[str, ...] = Field(min_length=1)  # the part before the first _ is permuted
    words: tuple[str, ...] = ()  # every word is replaced, consistently across these columns
    units: tuple[tuple[str, ...], ...] = ()  # numbers are rescaled; columns with the same unit form a group
    years: tuple[str, ...] = ()  # shifted together

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns named here."""
        return (*self.ids, *self.words, *self.years, *(column for unit in self.units for column in unit))


class GradedFunction(Record):
    """A function in a module of the submission that the grader calls."""

    module: str = Field(min_length=1)
    function: str = Field(min_length=1)


class RuleViolation(Record):
    """Code that breaks a rule of the task if a script contains it."""

    script: str = Field(min_length=1)
    code: str = Field(min_length=1)


class TaskTraits(Record):
    """Properties of a task by which the audit selects attacks; unknown traits are errors."""

    timed_function: GradedFunction | None = None  # the grader times it against the starter's
    byte_model: GradedFunction | None = None  # the grader asks it for the probabilities of the next byte
    text_function: GradedFunction | None = None  # the grader asks it questions in text, as arrays of bytes
    rule_violation: RuleViolation | None = None  # grade.py checks scripts for broken rules
    run_length_masks: bool = False  # the second column of the submission is a run-length mask


class Grants(Record):
    """What scripts of the agent may use besides the workspace and the runtime; unknown grants are errors."""

    model: bool = False  # the run's model, within the budget of the run


class TaskConfig(Record):
    """The keys of task.toml; unknown keys are errors."""

    title: str
    category: str
    modality: str
    metric: str
    better: Better
    scale: Scale = "linear"
    runtime: str
    submission: str = "submission.csv"
    script_outputs: tuple[str, ...] = ()  # files that must be the output of a script
    read_only: tuple[str, ...] = ()
    repeatable: float = Field(ge=0, default=1e-9)
    grading_minutes: float = Field(gt=0, default=10.0)
    limits: Limits = Limits()
    twin: Twin | None = None
    traits: TaskTraits = TaskTraits()
    grants: Grants = Grants()
    editions: dict[Literal["open", "paper"], Edition]


class Task:
    """A task folder.

    Attributes:
        name: The task's id, which is the name of its folder.
        folder: The folder.
        config: The contents of task.toml.
    """

    def __init__(self, folder: Path, origin: str = "") -> None:
        """Read a task folder.

        Args:
            folder: The folder.
            origin: What `load` needs to find the task again, if that is not the folder itself.

        Raises:
            UsageError: A part of the task is missing or wrong.
        """
        self.folder = folder.resolve()
        self._origin = origin
        self.name = self.folder.name
        missing = [name for name in REQUIRED_FILES if not (self.folder / name).is_file()]
        missing += [f"the folder {name}" for name in REQUIRED_FOLDERS if not (self.folder / name).is_dir()]
        if missing:
            raise UsageError(f"Task {self.name}: {missing[0]} is missing in {self.folder}.")
        self._description = _read_text(self.folder / "description.md")
        self.config = _read_config(self.folder / "task.toml")
        self._check_placeholders()
        self._check_script_outputs()

    @classmethod
    def load(cls, name: str) -> "Task":
        """Load the task called `name`, or the one in the folder `name`.

        Raises:
            UsageError: There is no such task, or its folder is incomplete.
        """
        if (BUILTIN_TASKS_DIR / name / "task.toml").is_file() and name in cls.builtin_names():
            return cls(BUILTIN_TASKS_DIR / name)
        if name in installed_plugins("tasks"):
            return cls(_installed_folder(name), origin=name)
        if Path(name).is_dir():
            return cls(Path(name))
        raise UsageError(f"No such task: {name!r}. Available: {', '.join(cls.names())}.")

    @staticmethod
    def names() -> list[str]:
        """All tasks, ours and those of other installed packages, in order."""
        return sorted({*Task.builtin_names(), *installed_plugins("tasks")}, key=str.lower)

    @staticmethod
    def builtin_names() -> list[str]:
        """The tasks of this package, in order."""
        return sorted((path.parent.name for path in BUILTIN_TASKS_DIR.glob("*/task.toml")), key=str.lower)

    def edition(self, name: str) -> Edition:
        """One of the task's editions.

        Raises:
            UsageError: The task has no such edition.
        """
        editions = {str(key): edition for key, edition in self.config.editions.items()}
        if name not in editions:
            raise UsageError(f"Task {self.name} has no edition {name!r}. Available: {', '.join(editions)}.")
        return editions[name]

    def describe(self, edition: str) -> str:
        """The text of description.md for one edition, with its placeholders filled in.

        Agents read `Environment.problem_statement`, which adds the resources and limits of the run.

        Raises:
            UsageError: The task has no such edition.
        """
        return fill_placeholders(self._description, self.edition(edition).placeholders)

    def _check_placeholders(self) -> None:
        """Raise if an edition lacks a placeholder of another one, or if description.md does not use one."""
        defined = {name for edition in self.config.editions.values() for name in edition.placeholders}
        used = defined & set(PLACEHOLDER.findall(self._description))
        for edition_name, edition in self.config.editions.items():
            if missing := sorted(defined - edition.placeholders.keys()):
                raise UsageError(
                    f"Task {self.name}: edition {edition_name} lacks the placeholder {missing[0]!r}."
                )
        if unused := sorted(defined - used):
            raise UsageError(f"Task {self.name}: description.md does not use the placeholder {unused[0]!r}.")

    def _check_script_outputs(self) -> None:
        """Raise if description.md does not name a file of the rule: a wrong name, or an unstated rule."""
        for name in self.config.script_outputs:
            if name not in self._description:
                raise UsageError(f"Task {self.name}: description.md does not mention the file {name!r}.")

    @property
    def load_name(self) -> str:
        """The name or folder with which `load` finds this task again."""
        if self._origin:
            return self._origin
        return self.name if self.folder.parent == BUILTIN_TASKS_DIR.resolve() else str(self.folder)

    @property
    def starter(self) -> Path:
        """The folder with the files that the agent starts from."""
        return self.folder / "starter"

    def solution(self, start: Start) -> Path:
        """The folder of a solution; the files of `reference` and `expert` replace those of the starter.

        Raises:
            UsageError: The task has no such solution.
        """
        parse_start(start)
        if not (self.folder / start).is_dir():
            raise UsageError(f"Task {self.name} has no folder {start}, so a run cannot start from it.")
        return self.folder / start

    @property
    def has_rules(self) -> bool:
        """Whether the grader checks the agent's scripts for rule violations."""
        return "def violations(" in _read_text(self.folder / "grade.py")

    @property
    def runs_submitted_code(self) -> bool:
        """Whether the grader runs code of the submission, in a sandbox of its own."""
        source = _read_text(self.folder / "grade.py")
        return any(name in source for name in ("Program(", "SpeedComparison("))

    @property
    def hash(self) -> str:
        """The hash of the whole task: description, starter, data preparation and grader."""
        return hash_tree(self.folder)

    @property
    def grader_hash(self) -> str:
        """The hash of the code that decides the score, and of the starter, against which some tasks time."""
        package = Path(__file__).parent
        program = package / "sandbox" / "programs" / "submission_runner.py"  # runs submitted code
        return hash_tree(
            self.folder / "grade.py", self.starter, package / "grading", package / "levels.py", program
        )


def parse_start(name: str) -> Start:
    """Check the name of a start.

    Raises:
        UsageError: There is no such start.
    """
    for start in STARTS:
        if start == name:
            return start
    raise UsageError(f"No such start: {name!r}. Available: {', '.join(STARTS)}.")


def _installed_folder(name: str) -> Path:
    """The folder of a task of another package: its entry point is a Path, or a package whose folder it is."""
    plugin = load_entry_point(installed_plugins("tasks")[name])
    folder = Path(plugin.__file__).parent if isinstance(plugin, ModuleType) and plugin.__file__ else plugin
    if not isinstance(folder, Path) or folder.name != name:
        raise UsageError(
            f"The plugin {name} must be a package or a Path of a folder named {name}, not {plugin!r}."
        )
    return folder


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"Cannot read {path}: {error}") from error


def _read_config(path: Path) -> TaskConfig:
    try:
        return TaskConfig.model_validate(tomllib.loads(_read_text(path)))
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path} is not valid TOML: {error}") from error
    except ValidationError as error:
        hint = suggest_key(error, TaskConfig)
        raise UsageError(f"{path}: {describe_validation_error(error)}{hint and f'; {hint}'}") from error


def describe_validation_error(error: ValidationError) -> str:
    """Describe what is wrong with a record in one line; an unknown key first: a typo explains the rest."""
    first = min(error.errors(), key=lambda detail: detail["type"] != "extra_forbidden")
    where = "".join(f"{part}." for part in first["loc"]).removesuffix(".")
    what = "no such key" if first["type"] == "extra_forbidden" else first["msg"].lower()
    more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
    return f"{to_single_line(where)}{': ' if where else ''}{to_single_line(what)}{more}"
