"""A task's twin: the same rows under other names and in other units, so that remembered values help nobody."""

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

MISSING_VALUES = {
    "",
    "NA",
    "N/A",
    "NaN",
    "nan",
    "None",
    "null",
    "NULL",
    "<NA>",
    "n/a",
}  # as pandas reads them
SYLLABLES = [a + b for a in "bdfgklmnprstvz" for b in "aeiou"]
MIN_FACTOR, MAX_FACTOR = (
    1.15,
    1.85,
)  # new units in an old one: more than one, so that no two numbers become the same
YEAR_SHIFT_RANGE = (20, 60)  # by how many years at least and at most a calendar is put forward


def prepare_twin(task: Task, edition: str, say: ProgressCallback) -> PreparedData:
    """A new twin of the task's default instance, drawn by a seed that only its private folder knows."""
    if task.config.twin is None:
        raise UsageError(
            f"task {task.name} has no twin: its data is no table; try: mlagentbench prepare {task.name} --fresh"
        )
    rules, origin, seed = task.config.twin, prepare_data(task, edition, say), secrets.randbits(63)
    key = blake3(f"{origin.hash} {seed} {rules.model_dump_json()}".encode()).hexdigest()[:16]
    target = origin.folder.with_name(f"{edition}-twin-{key}")
    say(f"relabelling the data of {task.name} ({edition})")
    build_once(target, lambda folder: write_twin(task, rules, origin, seed, folder))
    return open_prepared_data(target)


def write_twin(task: Task, rules: Twin, origin: PreparedData, seed: int, folder: Path) -> None:
    """Write the twin of prepared data to `folder`."""
    for room in ("public", "private"):
        shutil.copytree(origin.folder / room, folder / room, copy_function=shutil.copyfile)
    try:
        tables = [CsvTable(path) for path in sorted(folder.rglob("*.csv"))]
        columns = {column for table in tables for column in table.header}
        if missing := sorted(set(rules.columns) - columns):
            raise TaskFault(
                f"task {task.name}: task.toml names the column {missing[0]} in [twin], which no table has"
            )
        draw = Relabeling(rules, tables, seed)
        for table in tables:
            table.rewrite(draw)
    except (csv.Error, ValueError) as error:  # rows of different lengths, or a word where a number should be
        raise TaskFault(f"task {task.name}: no twin can be made of its tables: {error}") from error
    seal_data(task, folder, {"twin": seed})


class CsvTable:
    """A csv file whose cells stay as they are written, but for what the twin has otherwise."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with path.open(encoding="utf-8", newline="") as file:
            self.header, *rows = csv.reader(file)
        self.columns = list(zip(*rows, strict=True)) if rows else [() for _ in self.header]

    def cells(self, columns: tuple[str, ...]) -> Iterator[str]:
        """What stands in some columns."""
        named = zip(self.header, self.columns, strict=True)
        return (
            cell for name, cells in named if name in columns for cell in cells if cell not in MISSING_VALUES
        )

    def rewrite(self, draw: "Relabeling") -> None:
        """Write the file anew: cells relabelled, rows in another order, those of one id together as they were."""
        named = zip(self.header, self.columns, strict=True)
        rows = list(zip(*(draw.relabel_column(name, cells) for name, cells in named), strict=True))
        by = next((place for place, name in enumerate(self.header) if name in draw.rules.ids), None)
        if by is not None:
            order = cache(lambda name: draw.draw_number(f"row {name}"))
            rows.sort(key=lambda row: order(row[by].partition("_")[0]))
        with self.path.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([self.header, *rows])


class Relabeling:
    """What everything is called in the twin. Hashes decide, because random generators may change."""

    def __init__(self, rules: Twin, tables: list[CsvTable], seed: int) -> None:
        self.rules, self.seed = rules, seed
        ids = {cell.partition("_")[0] for table in tables for cell in table.cells(rules.ids)}
        words = {word for table in tables for cell in table.cells(rules.words) for word in cell.split()}
        by_chance = sorted(ids, key=lambda name: self.draw_number(f"id {name}"))
        self.ids = dict(zip(sorted(ids), by_chance, strict=True))
        self.words = self._invent_words(sorted(words))
        self.factors = {
            column: self._draw_factor(place) for place, unit in enumerate(rules.units) for column in unit
        }
        self.years = YEAR_SHIFT_RANGE[0] + self.draw_number("years") % (
            YEAR_SHIFT_RANGE[1] - YEAR_SHIFT_RANGE[0] + 1
        )

    def relabel_column(self, name: str, cells: Iterable[str]) -> Iterable[str]:
        """What the cells of a column become."""
        if name not in self.rules.columns:
            return cells
        become = cache(partial(self._relabel_cell, name))
        return [cell if cell in MISSING_VALUES else become(cell) for cell in cells]

    def _relabel_cell(self, column: str, cell: str) -> str:
        if column in self.rules.ids:
            name, line, rest = cell.partition("_")
            return self.ids[name] + line + rest
        if column in self.rules.words:
            return " ".join(self.words[word] for word in cell.split())
        if column in self.factors:
            return _rescale(cell, self.factors[column], 0)
        return _rescale(cell, 1, self.years)

    def draw_number(self, what: str) -> int:
        """A number for a purpose."""
        return int.from_bytes(sha256(f"{self.seed} {what}".encode()).digest())

    def _invent_words(self, words: list[str]) -> dict[str, str]:
        """New words that nobody knows, no two alike."""
        found: dict[str, str] = {}
        taken = set(words)
        for word in words:
            number = self.draw_number(f"word {word}")
            while (new := _to_syllables(number)) in taken:
                number += 1
            taken.add(new)
            found[word] = new
        return found

    def _draw_factor(self, place: int) -> float:
        return MIN_FACTOR + (MAX_FACTOR - MIN_FACTOR) * (self.draw_number(f"unit {place}") % 10_007) / 10_006


def _rescale(cell: str, factor: float, shift: int) -> str:
    """Another number with as many decimals: more of them would tell the factor."""
    value = float(cell) * factor + shift
    return f"{value:.{max(0, -int(Decimal(cell).as_tuple().exponent))}f}"


def _to_syllables(number: int) -> str:
    syllables = [SYLLABLES[number // len(SYLLABLES) ** place % len(SYLLABLES)] for place in range(3)]
    return "".join(syllables).capitalize()
