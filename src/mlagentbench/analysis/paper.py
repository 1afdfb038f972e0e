"""Published results of the paper (Huang, Vora, Liang, Leskovec: MLAgentBench, ICML 2024), for comparison."""

import csv
from functools import cache
from pathlib import Path

from mlagentbench.records import Record

RUNS_PER_CELL = 8
DATA_DIR = Path(__file__).parent / "data"


class PaperTable(Record):
    """One table, as fractions: cells[task][agent]."""

    tasks: tuple[str, ...]
    agents: tuple[str, ...]
    cells: dict[str, dict[str, float]]


@cache
def load_success_rates() -> PaperTable:
    """Table 3: share of runs whose final submission beats the starter's mean score by more than 10 %."""
    return _load_table("success_rate.csv")


@cache
def load_improvements() -> PaperTable:
    """Table 4: mean improvement among runs with a valid submission."""
    return _load_table("improvement.csv")


def _load_table(name: str) -> PaperTable:
    with (DATA_DIR / name).open(newline="") as file:
        _, *agents = next(rows := csv.reader(file))
        cells = {
            task: {agent: float(percent) / 100 for agent, percent in zip(agents, row, strict=True)}
            for task, *row in rows
        }
    return PaperTable(tasks=tuple(cells), agents=tuple(agents), cells=cells)
