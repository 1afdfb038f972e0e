"""Two entrants held against each other on what both did in the same settings: better, by how much, how sure, where."""

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

from mlagentbench.analysis import statistics
from mlagentbench.analysis.metrics import Cell, RunValues, build_cell, describe_caveats
from mlagentbench.analysis.runs import Run, read_runs
from mlagentbench.analysis.settings import (
    ComparisonKey,
    collect_settings,
    collect_warnings,
    find_differing_parts,
)
from mlagentbench.errors import UsageError
from mlagentbench.records import Record

SIGNIFICANCE_LEVEL = 0.05  # below it a task's difference is taken for one
Side = Literal["a", "b", ""]


class Measure(Record):
    """One figure of both, each a mean over the common tasks, and first minus second with its 95 % interval."""

    name: str
    a: float
    b: float
    difference: float
    low: float | None
    high: float | None
    chance: float  # that a is better
    tasks: int

    @property
    def better(self) -> Side:
        """Who is, if the interval leaves no doubt."""
        if self.low is None or self.high is None:
            return ""
        return "a" if self.low > 0 else "b" if self.high < 0 else ""


class TaskDifference(Record):
    """Both on one task. The test ranks all their runs by score, invalid ones last; adjusted is for many tasks."""

    task: str
    a: Cell
    b: Cell
    p_value: float
    adjusted: float
    better: Side  # empty if chance may explain it


class Comparison(Record):
    """All of it; what is not comparable is left out, and named."""

    a: str
    b: str
    measures: tuple[Measure, ...]
    tasks: tuple[TaskDifference, ...]
    left_out: tuple[str, ...]
    warnings: tuple[str, ...]


def compare(a: Sequence[Run], b: Sequence[Run], names: tuple[str, str] = ("", "")) -> Comparison:
    """The runs of one entrant against those of another."""
    ours, theirs = _group_by_key(a), _group_by_key(b)
    common = [key for key in ours if key in theirs and ours[key].judged and theirs[key].judged]
    left_out = tuple(_explain_left_out(ours, theirs))
    if not common:
        raise UsageError(f"there is nothing to compare: {'; '.join(left_out)}")
    first, second = names[0] or a[0].agent_label, names[1] or b[0].agent_label
    compared = [run for key in common for run in (*ours[key].runs, *theirs[key].runs)]
    rows = _compare_tasks(common, (ours, theirs), (first, second))
    told = list(collect_warnings(collect_settings(compared)))
    for who, cells in ((first, [row.a for row in rows]), (second, [row.b for row in rows])):
        told += [f"{who} on {cell.task}: {words}" for cell in cells for words in describe_caveats(cell)]
    if len(common) == 1:
        told.append("one task only: it says nothing of others")
    return Comparison(
        a=first,
        b=second,
        measures=tuple(_compute_measures([(ours[key], theirs[key]) for key in common])),
        tasks=tuple(rows),
        left_out=left_out,
        warnings=tuple(told),
    )


def select_sides(a: str, b: str, within: Sequence[Path]) -> tuple[list[Run], list[Run], tuple[str, str]]:
    """The runs of two folders of one entrant each, or of two entrants that are named; and what to call them."""
    if within:
        runs = read_runs(within)
        return _runs_of(a, runs), _runs_of(b, runs), (a, b)
    first, second = (read_runs([Path(each)]) for each in (a, b))
    for folder, runs in ((a, first), (b, second)):
        if len(names := sorted({run.agent_label for run in runs})) > 1:
            told = " ".join(repr(name) for name in names[:2])
            raise UsageError(
                f"{folder} has runs of {len(names)} entrants: {', '.join(names)};"
                f" name the two that are meant: compare {told} --in {folder}"
            )
    one, other = first[0].agent_label, second[0].agent_label
    return first, second, (one, other) if one != other else (f"{one} in {a}", f"{other} in {b}")


def _runs_of(who: str, runs: Sequence[Run]) -> list[Run]:
    own = [run for run in runs if run.agent_label == who]
    if not own:
        names = ", ".join(sorted({run.agent_label for run in runs}))
        raise UsageError(f"no run is of {who!r}; there are: {names}")
    return own


def _group_by_key(runs: Sequence[Run]) -> dict[ComparisonKey, RunValues]:
    found: dict[ComparisonKey, list[Run]] = defaultdict(list)
    for run in runs:
        found[ComparisonKey.from_run(run)].append(run)
    return {key: RunValues(found[key]) for key in sorted(found)}


def _explain_left_out(
    ours: dict[ComparisonKey, RunValues], theirs: dict[ComparisonKey, RunValues]
) -> Iterator[str]:
    for side, other, name in ((ours, theirs, "first"), (theirs, ours, "second")):
        for key, found in side.items():
            same = [each for each in other if each.task == key.task]
            if key in other:
                if not found.judged:
                    yield f"{key.task}: no run of the {name} can be judged (faults, unfinished, or no baseline)"
            elif not same:
                yield f"{key.task}: only the {name} has runs of it"
            elif side is ours:
                names = find_differing_parts([key, same[0]])
                yield f"{key.task}: the {' and '.join(names)} {'differ' if len(names) > 1 else 'differs'}"


def _compare_tasks(
    common: Sequence[ComparisonKey],
    sides: tuple[dict[ComparisonKey, RunValues], dict[ComparisonKey, RunValues]],
    names: tuple[str, str],
) -> list[TaskDifference]:
    p_values = [
        statistics.mann_whitney_p_value(_comparable_scores(sides[0][key]), _comparable_scores(sides[1][key]))
        for key in common
    ]
    rows = []
    for key, p_value, adjusted in zip(common, p_values, statistics.holm_adjust(p_values), strict=True):
        a, b = (build_cell(key.task, who, side[key]) for who, side in zip(names, sides, strict=True))
        better: Side = ""
        if adjusted < SIGNIFICANCE_LEVEL:
            above = statistics.probability_of_superiority(
                _comparable_scores(sides[0][key]), _comparable_scores(sides[1][key])
            )
            better = "a" if above > 0.5 else "b"
        rows.append(
            TaskDifference(task=key.task, a=a, b=b, p_value=p_value, adjusted=adjusted, better=better)
        )
    return rows


def _comparable_scores(of: RunValues) -> list[float]:
    """Scores so that more is better, invalid ones below all others."""
    sign = 1 if of.runs[0].spec.better == "higher" else -1
    return [-math.inf if result.score is None else sign * result.score for result in of.judged]


def _compute_measures(pairs: Sequence[tuple[RunValues, RunValues]]) -> Iterator[Measure]:
    """Success with the noise test first: it decides."""
    for name, sides in (
        ("success rate", [(a.success, b.success) for a, b in pairs]),
        ("success rate by the paper's rule", [(a.improved, b.improved) for a, b in pairs]),
        (
            "improvement of valid submissions",
            [(a.improvements_or_zero, b.improvements_or_zero) for a, b in pairs],
        ),
    ):
        known = [(a, b) for a, b in sides if a and b]
        if not known:
            continue
        first, second = [a for a, _ in known], [b for _, b in known]
        found = statistics.paired_difference(first, second)
        yield Measure(
            name=name,
            a=sum(sum(values) / len(values) for values in first) / len(known),
            b=sum(sum(values) / len(values) for values in second) / len(known),
            difference=found.value,
            low=found.interval.low,
            high=found.interval.high,
            chance=found.chance,
            tasks=len(known),
        )
