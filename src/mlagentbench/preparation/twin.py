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
from mlagentbench.home import build
from mlagentbench.preparation.download import Say
from mlagentbench.preparation.prepare import Prepared, finish, opened, prepared
from mlagentbench.task import Task, Twin

ABSENT = {"", "NA", "N/A", "NaN", "nan", "None", "null", "NULL", "<NA>", "n/a"}  # as pandas reads them
SYLLABLES = [a + b for a in "bdfgklmnprstvz" for b in "aeiou"]
LEAST, MOST = 1.15, 1.85  # new units in an old one: more than one, so that no two numbers become the same
YEARS = (20, 60)  # by how many years at least and at most a calendar is put forward


def twin(task: Task, edition: str, say: Say) -> Prepared:
    """A new twin of the task's default instance, drawn by a seed that only its private folder knows."""
    if task.config.twin is None:
        raise UsageError(
            f"task {task.name} has no twin: its data is no table; try: mlagentbench prepare {task.name} --fresh"
        )
    rules, origin, seed = task.config.twin, prepared(task, edition, say), secrets.randbits(63)
    key = blake3(f"{origin.hash} {seed} {rules.model_dump_json()}".encode()).hexdigest()[:16]
    target = origin.folder.with_name(f"{edition}-twin-{key}")
    say(f"relabelling the data of {task.name} ({edition})")
    build(target, lambda folder: relabel(task, rules, origin, seed, folder))
    return opened(target)


def relabel(task: Task, rules: Twin, origin: Prepared, seed: int, folder: Path) -> None:
    """Write the twin of prepared data to `folder`."""
    for room in ("public", "private"):
        shutil.copytree(origin.folder / room, folder / room, copy_function=shutil.copyfile)
    try:
        tables = [Table(path) for path in sorted(folder.rglob("*.csv"))]
        columns = {column for table in tables for column in table.head}
        if missing := sorted(set(rules.columns) - columns):
            raise TaskFault(f"task {task.name}: task.toml names the column {missing[0]} in [twin], which no table has")
        draw = Draw(rules, tables, seed)
        for table in tables:
            table.rewrite(draw)
    except (csv.Error, ValueError) as error:  # rows of different lengths, or a word where a number should be
        raise TaskFault(f"task {task.name}: no twin can be made of its tables: {error}") from error
    finish(task, folder, {"twin": seed})


class Table:
    """A csv file whose cells stay as they are written, but for what the twin has otherwise."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with path.open(encoding="utf-8", newline="") as file:
            self.head, *rows = csv.reader(file)
        self.columns = list(zip(*rows, strict=True)) if rows else [() for _ in self.head]

    def cells(self, columns: tuple[str, ...]) -> Iterator[str]:
        """What stands in some columns."""
        named = zip(self.head, self.columns, strict=True)
        return (cell for name, cells in named if name in columns for cell in cells if cell not in ABSENT)

    def rewrite(self, draw: "Draw") -> None:
        """Write the file anew: cells relabelled, rows in another order, those of one id together as they were."""
        named = zip(self.head, self.columns, strict=True)
        rows = list(zip(*(draw.column(name, cells) for name, cells in named), strict=True))
        by = next((place for place, name in enumerate(self.head) if name in draw.rules.ids), None)
        if by is not None:
            order = cache(lambda name: draw.number(f"row {name}"))
            rows.sort(key=lambda row: order(row[by].partition("_")[0]))
        with self.path.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([self.head, *rows])


class Draw:
    """What everything is called in the twin. Hashes decide, because random generators may change."""

    def __init__(self, rules: Twin, tables: list[Table], seed: int) -> None:
        self.rules, self.seed = rules, seed
        ids = {cell.partition("_")[0] for table in tables for cell in table.cells(rules.ids)}
        words = {word for table in tables for cell in table.cells(rules.words) for word in cell.split()}
        by_chance = sorted(ids, key=lambda name: self.number(f"id {name}"))
        self.ids = dict(zip(sorted(ids), by_chance, strict=True))
        self.words = self._named(sorted(words))
        self.factors = {column: self._factor(place) for place, unit in enumerate(rules.units) for column in unit}
        self.years = YEARS[0] + self.number("years") % (YEARS[1] - YEARS[0] + 1)

    def column(self, name: str, cells: Iterable[str]) -> Iterable[str]:
        """What the cells of a column become."""
        if name not in self.rules.columns:
            return cells
        become = cache(partial(self._become, name))
        return [cell if cell in ABSENT else become(cell) for cell in cells]

    def _become(self, column: str, cell: str) -> str:
        if column in self.rules.ids:
            name, line, rest = cell.partition("_")
            return self.ids[name] + line + rest
        if column in self.rules.words:
            return " ".join(self.words[word] for word in cell.split())
        if column in self.factors:
            return _written(cell, self.factors[column], 0)
        return _written(cell, 1, self.years)

    def number(self, what: str) -> int:
        """A number for a purpose."""
        return int.from_bytes(sha256(f"{self.seed} {what}".encode()).digest())

    def _named(self, words: list[str]) -> dict[str, str]:
        """New words that nobody knows, no two alike."""
        found: dict[str, str] = {}
        taken = set(words)
        for word in words:
            number = self.number(f"word {word}")
            while (new := _pronounced(number)) in taken:
                number += 1
            taken.add(new)
            found[word] = new
        return found

    def _factor(self, place: int) -> float:
        return LEAST + (MOST - LEAST) * (self.number(f"unit {place}") % 10_007) / 10_006


def _written(cell: str, factor: float, shift: int) -> str:
    """Another number with as many decimals: more of them would tell the factor."""
    value = float(cell) * factor + shift
    return f"{value:.{max(0, -int(Decimal(cell).as_tuple().exponent))}f}"


def _pronounced(number: int) -> str:
    syllables = [SYLLABLES[number // len(SYLLABLES) ** place % len(SYLLABLES)] for place in range(3)]
    return "".join(syllables).capitalize()
