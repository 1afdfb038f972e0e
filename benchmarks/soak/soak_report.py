"""The results of a soak, stored between calls, and the table made from them."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from statistics import mean

from pydantic import Field

from mlagentbench.records import Record

# The process of a batch may grow by this much per hundred runs, on average over at least so many long rounds.
# One run with large replies changes the memory by several MB, and a batch keeps the result of each run.
MAX_GROWTH_MB, MAX_GROWTH_FILES, MIN_LONG_ROUNDS = 2.0, 2.0, 3


class SoakReport(Record):
    """soak.json: what was done in all rounds so far, and the results."""

    seed: int = 0
    rounds: int = 0
    seconds: float = 0.0
    runs: Mapping[str, int] = Field(default_factory=dict)  # by behavior
    injections: Mapping[str, int] = Field(default_factory=dict)
    provider_failures: Mapping[str, int] = Field(default_factory=dict)
    bad_replies: int = 0
    steps: int = 0
    model_calls: int = 0
    processes: int = 0
    interrupted_runs: int = 0  # left by a killed or stopped process, and resumed by another
    faults: Mapping[str, int] = Field(default_factory=dict)  # failed attempts, by the start of their note
    altered_scores: int = 0  # scores that differ because their script was killed
    repeated_replies: int = 0  # model replies lost by a kill and requested again
    memory_growth_mb: tuple[float, ...] = ()  # per hundred runs, for batches that were not killed
    file_growth: tuple[float, ...] = ()  # the same for open files
    peak_mb: float = 0.0  # of the process of a batch
    failed_checks: tuple[str, ...] = ()

    def plus(self, other: "SoakReport") -> "SoakReport":
        """Add two reports."""
        added = {}
        for name in type(self).model_fields:
            first, second = getattr(self, name), getattr(other, name)
            is_mapping = isinstance(first, Mapping)
            added[name] = dict(Counter(first) + Counter(second)) if is_mapping else first + second
        return self.model_validate({**added, "seed": self.seed, "peak_mb": max(self.peak_mb, other.peak_mb)})

    @property
    def count(self) -> int:
        """The number of runs."""
        return sum(self.runs.values())

    @property
    def all_failed_checks(self) -> tuple[str, ...]:
        """The failed checks of all rounds, and too much growth."""
        grown: tuple[str, ...] = ()
        for growth, limit, unit in (
            (self.memory_growth_mb, MAX_GROWTH_MB, "MB"),
            (self.file_growth, MAX_GROWTH_FILES, "open files"),
        ):
            if len(growth) >= MIN_LONG_ROUNDS and mean(growth) > limit:
                grown += (f"a batch grows by {mean(growth):.2f} {unit} per hundred runs",)
        return self.failed_checks + grown

    def table(self) -> str:
        """Format the report as a table."""
        pace = f"{self.count / self.seconds * 60:.0f} per minute" if self.seconds else ""
        lines = [
            ("runs", f"{self.count:,}  ({self.rounds} rounds, {self.seconds / 60:.1f} minutes, {pace})"),
            *((f"  {name}", f"{number:,}") for name, number in sorted(self.runs.items())),
            ("mlagentbench processes", f"{self.processes:,}"),
            ("steps", f"{self.steps:,}"),
            ("model calls", f"{self.model_calls:,}, {self.bad_replies:,} bad replies"),
            *(
                (f"  provider failure: {name}", f"{number:,}")
                for name, number in sorted(self.provider_failures.items())
            ),
            ("injected faults", f"{sum(self.injections.values()):,}"),
            *((f"  {name}", f"{number:,}") for name, number in sorted(self.injections.items())),
            ("runs interrupted and resumed", f"{self.interrupted_runs:,}"),
            ("faults, counted and retried", f"{sum(self.faults.values()):,}"),
            *((f"  {name}", f"{number:,}") for name, number in sorted(self.faults.items())),
            ("scores changed by a killed script", f"{self.altered_scores:,}"),
            ("replies lost by kills, repeated", f"{self.repeated_replies:,}"),
            (
                "growth of a batch per 100 runs",
                f"{_format_mean(self.memory_growth_mb)} MB, {_format_mean(self.file_growth)} open files",
            ),
            ("peak memory of a batch", f"{self.peak_mb:.0f} MB"),
            ("failed checks", f"{len(self.all_failed_checks)}"),
        ]
        return "\n".join(f"{name:38} {value}" for name, value in lines)


def _format_mean(growth: tuple[float, ...]) -> str:
    return f"{mean(growth):+.2f}" if growth else "?"


def read_report(path: Path, seed: int) -> SoakReport:
    """Read the report so far."""
    return SoakReport.model_validate_json(path.read_bytes()) if path.is_file() else SoakReport(seed=seed)


def write_report(path: Path, report: SoakReport) -> None:
    """Write the report atomically."""
    temporary = path.with_suffix(".part")
    temporary.write_text(report.model_dump_json(indent=1))
    temporary.rename(path)
