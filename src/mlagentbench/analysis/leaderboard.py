"""Ranks agents over all tasks; refuses runs that are not comparable."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Literal

from mlagentbench.analysis import statistics
from mlagentbench.analysis.metrics import Cell, RunValues, describe_caveats, summarize_runs
from mlagentbench.analysis.runs import Run
from mlagentbench.analysis.settings import (
    SHORT_HASH_DIGITS,
    ComparisonKey,
    Setting,
    collect_warnings,
    find_differing_parts,
    label_runs,
    refuse_mixed_editions,
    refuse_mixed_starts,
)
from mlagentbench.errors import UsageError
from mlagentbench.records import Record

RANK_CONFIDENCE = 0.95  # share of resamples in which the rank lies within the given interval


RankedBy = Literal["progress", "success"]


class Placement(Record):
    """The row of one agent; no rank unless it has judged runs on every task."""

    rank: int | None
    low: int | None = None  # interval of the rank in 95 % of resamples
    high: int | None = None
    ranks: tuple[float, ...] = ()  # probability of each rank
    agent: str
    overall: Cell
    notes: tuple[str, ...]


class Leaderboard(Record):
    """Agents ordered by their mean progress, or by their success rate if the levels are not known."""

    edition: str
    start: str
    ranked_by: RankedBy
    tasks: tuple[str, ...]
    places: tuple[Placement, ...]
    settings: tuple[Setting, ...]
    warnings: tuple[str, ...]


def exclude_runs(runs: Sequence[Run], names: Sequence[str]) -> list[Run]:
    """The runs that match none of these names.

    Args:
        runs: All runs.
        names: Editions, starts, or prefixes of the hash of a grader, data or baseline.

    Raises:
        UsageError: A name is too short or matches no run, or no run is left.
    """
    if short := [name for name in names if len(name) < 4]:
        raise UsageError(
            f"--exclude {short[0]} is too short."
            f" Pass an edition, or the first {SHORT_HASH_DIGITS} digits of a hash."
        )
    remaining = [
        run for run in runs if not any(_matches(ComparisonKey.from_run(run), name) for name in names)
    ]
    for name in names:
        if not any(_matches(ComparisonKey.from_run(run), name) for run in runs):
            raise UsageError(f"--exclude {name}: no run has such an edition, start, grader, data or baseline")
    if not remaining:
        raise UsageError(f"No runs left without {' and '.join(names)}")
    return remaining


def _matches(key: ComparisonKey, name: str) -> bool:
    if name in (key.edition, key.start):
        return True
    return any(part.startswith(name) for part in (key.grader, key.data, key.baseline))


def build_leaderboard(runs: Sequence[Run], skip_unfinished: bool = False) -> Leaderboard:
    """Rank the agents of these runs.

    Args:
        runs: Runs of one edition, with the same grader, data and baseline for each task.
        skip_unfinished: Leave out and count runs without a result, instead of refusing them.

    Raises:
        UsageError: Runs are not comparable, or some are unfinished.
    """
    _refuse_incomparable(runs)
    unfinished = [run for run in runs if run.result is None]
    if unfinished and not skip_unfinished:
        raise UsageError(
            f"{len(unfinished)} of {len(runs)} runs are unfinished, such as {unfinished[0].folder.path}."
            " Finish them, or pass --skip-unfinished to leave them out."
        )
    summary = summarize_runs(runs)
    groups: dict[tuple[str, str], list[Run]] = defaultdict(list)
    for run in runs:
        groups[run.agent_label, run.task].append(run)
    tasks_by_label = dict(zip(label_runs(runs), (run.task for run in runs), strict=True))
    values = {key: RunValues(group) for key, group in groups.items()}
    ranked_by: RankedBy = "progress"
    if any(len(task.progress) < len(task.judged) for task in values.values()):
        ranked_by = "success"
    outcomes = {key: getattr(task, ranked_by) for key, task in values.items()}
    tasks = [tasks_by_label[label] for label in summary.tasks]
    complete = [cell for cell in summary.overall if all(outcomes.get((cell.agent, task)) for task in tasks)]
    probabilities = statistics.rank_probabilities(
        [[outcomes[cell.agent, task] for task in tasks] for cell in complete]
    )
    ranked = [
        _rank_agent(cell, complete, tuple(map(float, row)), ranked_by)
        for cell, row in zip(complete, probabilities, strict=True)
    ]
    unranked = [_unranked_agent(cell, outcomes, tasks) for cell in summary.overall if cell not in complete]
    return Leaderboard(
        edition=runs[0].spec.edition,
        start=runs[0].spec.start,
        ranked_by=ranked_by,
        tasks=summary.tasks,
        places=tuple(sorted([*ranked, *unranked], key=lambda place: _sort_key(place, ranked_by))),
        settings=summary.settings,
        warnings=tuple(collect_warnings(summary.settings)),
    )


def _refuse_incomparable(runs: Sequence[Run]) -> None:
    keys: dict[ComparisonKey, list[Run]] = defaultdict(list)
    for run in runs:
        keys[ComparisonKey.from_run(run)].append(run)
    refuse_mixed_editions(runs)
    refuse_mixed_starts(runs)
    for task in sorted({key.task for key in keys}):
        task_keys = [key for key in keys if key.task == task]
        if parts := find_differing_parts(task_keys):
            part = parts[0]
            variants = _distinct_by(task_keys, part)
            examples = [f"{key.shorten(part)} (such as {keys[key][0].folder.path})" for key in variants]
            raise UsageError(
                f"Runs of {task} differ in {' and '.join(parts)}: {part} {' or '.join(examples)}."
                f" Leave one out with --exclude {variants[-1].shorten(part)}"
            )


def _distinct_by(keys: Sequence[ComparisonKey], part: str) -> list[ComparisonKey]:
    """One key for each distinct value of this part."""
    return list({str(getattr(key, part)): key for key in keys}.values())


def _ranking_value(cell: Cell, ranked_by: RankedBy) -> float:
    estimate = cell.progress if ranked_by == "progress" else cell.success_rate
    return estimate.value or 0.0


def _rank_agent(
    cell: Cell, ranked: Sequence[Cell], probabilities: tuple[float, ...], ranked_by: RankedBy
) -> Placement:
    own = _ranking_value(cell, ranked_by)
    low = statistics.quantile_index(probabilities, (1 - RANK_CONFIDENCE) / 2)
    high = statistics.quantile_index(probabilities, (1 + RANK_CONFIDENCE) / 2)
    return Placement(
        rank=1 + sum(_ranking_value(other, ranked_by) > own + 1e-12 for other in ranked),
        low=low + 1,
        high=high + 1,
        ranks=probabilities,
        agent=cell.agent,
        overall=cell,
        notes=tuple(describe_caveats(cell)),
    )


def _unranked_agent(
    cell: Cell, outcomes: dict[tuple[str, str], list[float]], tasks: Sequence[str]
) -> Placement:
    missing = [task for task in tasks if not outcomes.get((cell.agent, task))]
    reason = f"no rank: no judged run on {', '.join(missing)}"
    return Placement(rank=None, agent=cell.agent, overall=cell, notes=(reason, *describe_caveats(cell)))


def _sort_key(placement: Placement, ranked_by: RankedBy) -> tuple[bool, float, float, float, str]:
    cell = placement.overall
    metrics = (_ranking_value(cell, ranked_by), cell.improved_rate.value, cell.improvement.value)
    first, improved, improvement = (-(value or 0.0) for value in metrics)
    return placement.rank is None, first, improved, improvement, placement.agent.lower()
