"""The figures that the paper printed (Huang, Vora, Liang, Leskovec: MLAgentBench, ICML 2024), to compare with."""

import csv
from functools import cache
from pathlib import Path

from mlagentbench.records import Record

RUNS_PER_CELL = 8  # in a cell
DATA_DIR = Path(__file__).parent / "data"


class PaperTable(Record):
    """One table, as shares of one: cells[task][entrant]."""

    tasks: tuple[str, ...]
    agents: tuple[str, ...]
    cells: dict[str, dict[str, float]]

    @property
    def averages(self) -> dict[str, float]:
        """Of each entrant over the tasks, each of one weight."""
        return {who: sum(row[who] for row in self.cells.values()) / len(self.cells) for who in self.agents}


@cache
def load_success_rates() -> PaperTable:
    """Table 3: runs whose last submission improves more than 10 % on the starter's mean score."""
    return _load_table("success_rate.csv")


@cache
def load_improvements() -> PaperTable:
    """Table 4: mean improvement among runs with a valid submission."""
    return _load_table("improvement.csv")


def _load_table(name: str) -> PaperTable:
    with (DATA_DIR / name).open(newline="") as file:
        _, *entrants = next(rows := csv.reader(file))
        cells = {
            task: dict(zip(entrants, (float(each) / 100 for each in row), strict=True)) for task, *row in rows
        }
    return PaperTable(tasks=tuple(cells), agents=tuple(entrants), cells=cells)
