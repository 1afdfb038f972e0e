"""Makes a task's twin: the same rows with other names and units, so that memorized values do not help."""

import csv
import secrets
import shutil
from collections.abc import Iterable, Iterator
from decimal import Decimal
from functools import cache, partial
from hashlib import sha256
from pathlib import Path

from blake3 import blake3

from mlagentbench.errors import TaskFault, UsageError
from mlagentbench.preparation.prepare import PreparedData, open_prepared_data, prepare_data, seal_data
from mlagentbench.system.cache import build_once
from mlagentbench.system.progress import ProgressCallback
from mlagentbench.task import Task, Twin

MISSING_VALUES = {"", "NA", "N/A", "NaN", "nan", "None", "null", "NULL", "<NA>", "n/a"}  # as in pandas
SYLLABLES = [a + b for a in "bdfgklmnprstvz" for b in "aeiou"]
MIN_FACTOR, MAX_FACTOR = 1.15, 1.85  # of units; above 1, so that no two numbers become the same
MIN_YEAR_SHIFT, MAX_YEAR_SHIFT = 20, 60


def prepare_twin(task: Task, edition: str, progress: ProgressCallback) -> PreparedData:
    """Make a new twin of a task's default instance; its seed is stored only in its private folder.

    Raises:
        UsageError: If the task has no twin.
        TaskFault: If the tables do not match the rules in task.toml.
    """
    if task.config.twin is None:
        raise UsageError(
            f"Task {task.name} has no twin: its data is not tabular. "
            f"Use a fresh instance instead: mlagentbench prepare {task.name} --fresh"
        )
    rules, origin, seed = task.config.twin, prepare_data(task, edition, progress), secrets.randbits(63)
    key = blake3(f"{origin.hash} {seed} {rules.model_dump_json()}".encode()).hexdigest()[:16]
    target = origin.folder.with_name(f"{edition}-twin-{key}")
    progress(f"Relabeling data of {task.name} ({edition})")
    build_once(target, lambda folder: write_twin(task, rules, origin, seed, folder))
    return open_prepared_data(target)


def write_twin(task: Task, rules: Twin, origin: PreparedData, seed: int, folder: Path) -> None:
    """Write the twin of prepared data to `folder`."""
    for name in ("public", "private"):
        shutil.copytree(origin.folder / name, folder / name, copy_function=shutil.copyfile)
    try:
        tables = [CsvTable(path) for path in sorted(folder.rglob("*.csv"))]
        columns = {column for table in tables for column in table.header}
        if missing := sorted(set(rules.columns) - columns):
            raise TaskFault(
                f"task {task.name}: [twin] in task.toml names the column {missing[0]}, which no table has"
            )
        relabeling = Relabeling(rules, tables, seed)
        for table in tables:
            table.rewrite(relabeling)
    except (csv.Error, ValueError) as error:  # rows of different lengths, or text in place of a number
        raise TaskFault(f"task {task.name}: cannot make a twin of its tables: {error}") from error
    seal_data(task, folder, {"twin": seed})


class CsvTable:
    """A csv file; cells that the twin does not change keep their exact text."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with path.open(encoding="utf-8", newline="") as file:
            self.header, *rows = csv.reader(file)
        self.columns = list(zip(*rows, strict=True)) if rows else [() for _ in self.header]

    def cells(self, columns: tuple[str, ...]) -> Iterator[str]:
        """Yield the cells of some columns, without missing values."""
        named = zip(self.header, self.columns, strict=True)
        return (
            cell for name, cells in named if name in columns for cell in cells if cell not in MISSING_VALUES
        )

    def rewrite(self, relabeling: "Relabeling") -> None:
        """Relabel the cells and shuffle the rows; rows with the same id stay together in their order."""
        named = zip(self.header, self.columns, strict=True)
        rows = list(zip(*(relabeling.relabel_column(name, cells) for name, cells in named), strict=True))
        columns = (index for index, name in enumerate(self.header) if name in relabeling.rules.ids)
        id_column = next(columns, None)
        if id_column is not None:
            position = cache(lambda name: relabeling.draw_number(f"row {name}"))
            rows.sort(key=lambda row: position(row[id_column].partition("_")[0]))
        with self.path.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([self.header, *rows])


class Relabeling:
    """The new names and units of a twin, drawn by hashes because random generators may change."""

    def __init__(self, rules: Twin, tables: list[CsvTable], seed: int) -> None:
        self.rules, self.seed = rules, seed
        ids = {cell.partition("_")[0] for table in tables for cell in table.cells(rules.ids)}
        words = {word for table in tables for cell in table.cells(rules.words) for word in cell.split()}
        shuffled = sorted(ids, key=lambda name: self.draw_number(f"id {name}"))
        self.ids = dict(zip(sorted(ids), shuffled, strict=True))
        self.words = self._invent_words(sorted(words))
        self.factors = {
            column: self._draw_factor(index) for index, unit in enumerate(rules.units) for column in unit
        }
        choices = MAX_YEAR_SHIFT - MIN_YEAR_SHIFT + 1
        self.year_shift = MIN_YEAR_SHIFT + self.draw_number("years") % choices

    def relabel_column(self, name: str, cells: Iterable[str]) -> Iterable[str]:
        """Return the new cells of a column."""
        if name not in self.rules.columns:
            return cells
        relabel = cache(partial(self._relabel_cell, name))
        return [cell if cell in MISSING_VALUES else relabel(cell) for cell in cells]

    def _relabel_cell(self, column: str, cell: str) -> str:
        if column in self.rules.ids:
            name, separator, rest = cell.partition("_")
            return self.ids[name] + separator + rest
        if column in self.rules.words:
            return " ".join(self.words[word] for word in cell.split())
        if column in self.factors:
            return _rescale(cell, self.factors[column], 0)
        return _rescale(cell, 1, self.year_shift)

    def draw_number(self, purpose: str) -> int:
        """Draw the number for a purpose; it depends only on the seed and the purpose."""
        return int.from_bytes(sha256(f"{self.seed} {purpose}".encode()).digest())

    def _invent_words(self, words: list[str]) -> dict[str, str]:
        """Map each word to a new, unique word."""
        renamed: dict[str, str] = {}
        taken = set(words)
        for word in words:
            number = self.draw_number(f"word {word}")
            while (new := _to_syllables(number)) in taken:
                number += 1
            taken.add(new)
            renamed[word] = new
        return renamed

    def _draw_factor(self, index: int) -> float:
        return MIN_FACTOR + (MAX_FACTOR - MIN_FACTOR) * (self.draw_number(f"unit {index}") % 10_007) / 10_006


def _rescale(cell: str, factor: float, shift: int) -> str:
    """Return the new number with as many decimals: more of them would reveal the factor."""
    value = float(cell) * factor + shift
    return f"{value:.{max(0, -int(Decimal(cell).as_tuple().exponent))}f}"


def _to_syllables(number: int) -> str:
    syllables = [SYLLABLES[number // len(SYLLABLES) ** digit % len(SYLLABLES)] for digit in range(3)]
    return "".join(syllables).capitalize()
