"""The account of a soak, kept between slices, and the table that is made of it."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from statistics import mean

from pydantic import Field

from mlagentbench.records import Record

# MB and open files by which a batch's process may grow in a hundred runs, on the average of so many long rounds.
# One run with large replies moves the memory by several MB, and a batch keeps each run's result.
FLAT, FILES, ENOUGH = 2.0, 2.0, 3


class SoakReport(Record):
    """soak.json: what was done in all rounds so far, and what came of it."""

    seed: int = 0
    rounds: int = 0
    seconds: float = 0.0
    runs: Mapping[str, int] = Field(default_factory=dict)  # by what their agents did
    blows: Mapping[str, int] = Field(default_factory=dict)
    failures: Mapping[str, int] = Field(default_factory=dict)  # of the model
    bad_replies: int = 0
    steps: int = 0
    model_calls: int = 0
    processes: int = 0
    cut_off: int = 0  # runs that a dead or stopped process left, and another one went on with
    faults: Mapping[str, int] = Field(default_factory=dict)  # tries that ended as such, by their first words
    touched: int = 0  # scores that differ because the script that made them was hit
    repaid: int = 0  # answers of the model that a kill lost, and that were asked for again
    slopes: tuple[float, ...] = ()  # MB in a hundred runs, of batches that were not killed
    descriptors: tuple[float, ...] = ()  # the same for its open files
    peak: float = 0.0  # MB of a batch's process
    broken: tuple[str, ...] = ()

    def plus(self, other: "SoakReport") -> "SoakReport":
        """Both together."""
        added = {}
        for name in type(self).model_fields:
            one, two = getattr(self, name), getattr(other, name)
            added[name] = dict(Counter(one) + Counter(two)) if isinstance(one, Mapping) else one + two
        return self.model_validate({**added, "seed": self.seed, "peak": max(self.peak, other.peak)})

    @property
    def count(self) -> int:
        """All runs."""
        return sum(self.runs.values())

    @property
    def verdict(self) -> tuple[str, ...]:
        """Every promise that was broken."""
        grown: tuple[str, ...] = ()
        for growth, most, what in ((self.slopes, FLAT, "MB"), (self.descriptors, FILES, "open files")):
            if len(growth) >= ENOUGH and mean(growth) > most:
                grown += (f"a batch grows by {mean(growth):.2f} {what} in a hundred runs",)
        return self.broken + grown

    def table(self) -> str:
        """For people."""
        pace = f"{self.count / self.seconds * 60:.0f} a minute" if self.seconds else ""
        lines = [
            ("runs", f"{self.count:,}  ({self.rounds} rounds, {self.seconds / 60:.1f} minutes, {pace})"),
            *((f"  {name}", f"{number:,}") for name, number in sorted(self.runs.items())),
            ("processes of ours", f"{self.processes:,}"),
            ("steps", f"{self.steps:,}"),
            ("model calls", f"{self.model_calls:,}, {self.bad_replies:,} bad replies"),
            *((f"  the model: {name}", f"{number:,}") for name, number in sorted(self.failures.items())),
            ("blows", f"{sum(self.blows.values()):,}"),
            *((f"  {name}", f"{number:,}") for name, number in sorted(self.blows.items())),
            ("runs cut off, and gone on with", f"{self.cut_off:,}"),
            ("faults, counted and tried again", f"{sum(self.faults.values()):,}"),
            *((f"  {name}", f"{number:,}") for name, number in sorted(self.faults.items())),
            ("scores that a hit script changed", f"{self.touched:,}"),
            ("answers lost by kills, asked again", f"{self.repaid:,}"),
            (
                "a batch grows in 100 runs by",
                f"{_average(self.slopes)} MB, {_average(self.descriptors)} open files",
            ),
            ("memory of a batch, most", f"{self.peak:.0f} MB"),
            ("promises broken", f"{len(self.verdict)}"),
        ]
        return "\n".join(f"{name:38} {value}" for name, value in lines)


def _average(growth: tuple[float, ...]) -> str:
    return f"{mean(growth):+.2f}" if growth else "?"


def read_report(path: Path, seed: int) -> SoakReport:
    """The account so far."""
    return SoakReport.model_validate_json(path.read_bytes()) if path.is_file() else SoakReport(seed=seed)


def write_report(path: Path, tally: SoakReport) -> None:
    """Whole or not at all."""
    whole = path.with_suffix(".part")
    whole.write_text(tally.model_dump_json(indent=1))
    whole.rename(path)
