"""The figures that the paper printed (Huang, Vora, Liang, Leskovec: MLAgentBench, ICML 2024), to compare with."""

import csv
from functools import cache
from pathlib import Path

from mlagentbench.records import Record

RUNS = 8  # in a cell
DATA = Path(__file__).parent / "data"


class Printed(Record):
    """One table, as shares of one: cells[task][entrant]."""

    tasks: tuple[str, ...]
    entrants: tuple[str, ...]
    cells: dict[str, dict[str, float]]

    @property
    def averages(self) -> dict[str, float]:
        """Of each entrant over the tasks, each of one weight."""
        return {who: sum(row[who] for row in self.cells.values()) / len(self.cells) for who in self.entrants}


@cache
def success_rate() -> Printed:
    """Table 3: runs whose last submission improves more than 10 % on the starter's mean score."""
    return _read("success_rate.csv")


@cache
def improvement() -> Printed:
    """Table 4: mean improvement among runs with a valid submission."""
    return _read("improvement.csv")


def _read(name: str) -> Printed:
    with (DATA / name).open(newline="") as file:
        _, *entrants = next(rows := csv.reader(file))
        cells = {task: dict(zip(entrants, (float(each) / 100 for each in row), strict=True)) for task, *row in rows}
    return Printed(tasks=tuple(cells), entrants=tuple(entrants), cells=cells)
