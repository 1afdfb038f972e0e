"""Compares two agents in the settings they share: which is better, by how much, how surely, on which task."""

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

SIGNIFICANCE_LEVEL = 0.05  # adjusted p-values below it count as a difference on a task
Side = Literal["a", "b", ""]


class Measure(Record):
    """One metric of both agents, averaged over the common tasks, and a minus b with its 95 % interval."""

    name: str
    a: float
    b: float
    difference: float
    low: float | None
    high: float | None
    chance: float  # probability that a is better
    tasks: int

    @property
    def better(self) -> Side:
        """The better side, if the interval excludes zero."""
        if self.low is None or self.high is None:
            return ""
        return "a" if self.low > 0 else "b" if self.high < 0 else ""


class TaskDifference(Record):
    """Both agents on one task.

    The test ranks all runs by score, invalid ones last. `adjusted` is corrected for the number of tasks.
    """

    task: str
    a: Cell
    b: Cell
    p_value: float
    adjusted: float
    better: Side  # empty if the difference is not significant


class Comparison(Record):
    """The whole comparison; `left_out` lists what is not comparable."""

    a: str
    b: str
    measures: tuple[Measure, ...]
    tasks: tuple[TaskDifference, ...]
    left_out: tuple[str, ...]
    warnings: tuple[str, ...]


def compare(a: Sequence[Run], b: Sequence[Run], names: tuple[str, str] = ("", "")) -> Comparison:
    """Compare the runs of agent `a` with those of agent `b`.

    Args:
        a: Runs of the first agent.
        b: Runs of the second agent.
        names: What to call the two agents; by default their labels.

    Raises:
        UsageError: The agents have no comparable runs.
    """
    by_key_a, by_key_b = _group_by_key(a), _group_by_key(b)
    common = [key for key in by_key_a if key in by_key_b and by_key_a[key].judged and by_key_b[key].judged]
    left_out = tuple(_explain_left_out(by_key_a, by_key_b))
    if not common:
        raise UsageError(f"Nothing to compare: {'; '.join(left_out)}")
    first, second = names[0] or a[0].agent_label, names[1] or b[0].agent_label
    compared = [run for key in common for run in (*by_key_a[key].runs, *by_key_b[key].runs)]
    rows = _compare_tasks(common, (by_key_a, by_key_b), (first, second))
    warnings = list(collect_warnings(collect_settings(compared)))
    for agent, cells in ((first, [row.a for row in rows]), (second, [row.b for row in rows])):
        warnings += [
            f"{agent} on {cell.task}: {caveat}" for cell in cells for caveat in describe_caveats(cell)
        ]
    if len(common) == 1:
        warnings.append("only one task: the result may not hold for other tasks")
    return Comparison(
        a=first,
        b=second,
        measures=tuple(_compute_measures([(by_key_a[key], by_key_b[key]) for key in common])),
        tasks=tuple(rows),
        left_out=left_out,
        warnings=tuple(warnings),
    )


def select_sides(a: str, b: str, within: Sequence[Path]) -> tuple[list[Run], list[Run], tuple[str, str]]:
    """The runs of both sides, and what to call them.

    Without `within`, `a` and `b` are folders with the runs of one agent each. With `within`, they are the
    labels of two agents that have runs in those folders.
    """
    if within:
        runs = read_runs(within)
        return _runs_of(a, runs), _runs_of(b, runs), (a, b)
    first, second = (read_runs([Path(folder)]) for folder in (a, b))
    for folder, runs in ((a, first), (b, second)):
        if len(names := sorted({run.agent_label for run in runs})) > 1:
            raise UsageError(
                f"{folder} has runs of {len(names)} agents: {', '.join(names)}."
                f" Name the two to compare: mlagentbench compare {names[0]!r} {names[1]!r} --in {folder}"
            )
    label_a, label_b = first[0].agent_label, second[0].agent_label
    if label_a == label_b:
        return first, second, (f"{label_a} in {a}", f"{label_b} in {b}")
    return first, second, (label_a, label_b)


def _runs_of(agent: str, runs: Sequence[Run]) -> list[Run]:
    """The runs of an agent, by its label, or by the beginning of only one label, such as its name."""
    labels = sorted({run.agent_label for run in runs})
    matching = [label for label in labels if label == agent] or [
        label for label in labels if label.startswith((f"{agent} ", f"{agent}.py"))
    ]
    if len(matching) > 1:
        raise UsageError(f"There are several agents {agent!r}. Name one: {', '.join(map(repr, matching))}.")
    if not matching:
        raise UsageError(f"No runs of agent {agent!r}. Available: {', '.join(labels)}.")
    return [run for run in runs if run.agent_label == matching[0]]


def _group_by_key(runs: Sequence[Run]) -> dict[ComparisonKey, RunValues]:
    groups: dict[ComparisonKey, list[Run]] = defaultdict(list)
    for run in runs:
        groups[ComparisonKey.from_run(run)].append(run)
    return {key: RunValues(groups[key]) for key in sorted(groups)}


def _explain_left_out(a: dict[ComparisonKey, RunValues], b: dict[ComparisonKey, RunValues]) -> Iterator[str]:
    for side, other, name in ((a, b, "first"), (b, a, "second")):
        for key, values in side.items():
            same_task = [other_key for other_key in other if other_key.task == key.task]
            if key in other:
                if not values.judged:
                    yield f"{key.task}: the {name} has no judged run (faults, unfinished, or no baseline)"
            elif not same_task:
                yield f"{key.task}: only the {name} has runs"
            elif side is a:
                parts = find_differing_parts([key, same_task[0]])
                yield f"{key.task}: the {' and '.join(parts)} {'differ' if len(parts) > 1 else 'differs'}"


def _compare_tasks(
    common: Sequence[ComparisonKey],
    sides: tuple[dict[ComparisonKey, RunValues], dict[ComparisonKey, RunValues]],
    names: tuple[str, str],
) -> list[TaskDifference]:
    scores = [(_comparable_scores(sides[0][key]), _comparable_scores(sides[1][key])) for key in common]
    p_values = [statistics.mann_whitney_p_value(first, second) for first, second in scores]
    adjusted_p_values = statistics.holm_adjust(p_values)
    rows = []
    for key, pair, p_value, adjusted in zip(common, scores, p_values, adjusted_p_values, strict=True):
        a, b = (build_cell(key.task, name, side[key]) for name, side in zip(names, sides, strict=True))
        better: Side = ""
        if adjusted < SIGNIFICANCE_LEVEL:
            better = "a" if statistics.probability_of_superiority(*pair) > 0.5 else "b"
        rows.append(
            TaskDifference(task=key.task, a=a, b=b, p_value=p_value, adjusted=adjusted, better=better)
        )
    return rows


def _comparable_scores(values: RunValues) -> list[float]:
    """Scores with the sign such that higher is better; invalid submissions are below all others."""
    sign = 1 if values.runs[0].spec.better == "higher" else -1
    return [-math.inf if result.score is None else sign * result.score for result in values.judged]


def _compute_measures(pairs: Sequence[tuple[RunValues, RunValues]]) -> Iterator[Measure]:
    """The metrics to compare; the first one decides: progress if it is known everywhere, else success."""
    progress = [(a.progress, b.progress) for a, b in pairs]
    measures = [("progress", progress)] if all(a and b for a, b in progress) else []
    for name, sides in (
        *measures,
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
        difference = statistics.paired_difference(first, second)
        yield Measure(
            name=name,
            a=sum(sum(values) / len(values) for values in first) / len(known),
            b=sum(sum(values) / len(values) for values in second) / len(known),
            difference=difference.value,
            low=difference.interval.low,
            high=difference.interval.high,
            chance=difference.chance,
            tasks=len(known),
        )
