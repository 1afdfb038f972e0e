"""A table of entrants over tasks that refuses whatever cannot be compared."""

from collections import defaultdict
from collections.abc import Sequence

from mlagentbench.analysis import statistics
from mlagentbench.analysis.metrics import Cell, RunValues, describe_caveats, summarize_runs
from mlagentbench.analysis.runs import Run
from mlagentbench.analysis.settings import (
    SHORT_HASH_DIGITS,
    ComparisonKey,
    Setting,
    collect_warnings,
    find_differing_parts,
)
from mlagentbench.errors import UsageError
from mlagentbench.records import Record

RANK_CONFIDENCE = 0.95  # of all resamples have the rank between the two that are given


class Placement(Record):
    """One entrant; no rank if it has not been judged on every task."""

    rank: int | None
    low: int | None = None  # ranks in 95 % of all resamples
    high: int | None = None
    ranks: tuple[float, ...] = ()  # the chance of each rank
    agent: str
    overall: Cell
    notes: tuple[str, ...]


class Leaderboard(Record):
    """By success rate over all tasks, with the noise test."""

    edition: str
    tasks: tuple[str, ...]
    places: tuple[Placement, ...]
    settings: tuple[Setting, ...]
    warnings: tuple[str, ...]


def exclude_runs(runs: Sequence[Run], names: Sequence[str]) -> list[Run]:
    """The runs that are of none of these editions, and whose grader, data and baseline begin with none of these."""
    if short := [name for name in names if len(name) < 4]:
        raise UsageError(
            f"--without {short[0]} is too short: an edition, or the first {SHORT_HASH_DIGITS} digits of a hash"
        )
    left = [run for run in runs if not any(_matches(ComparisonKey.from_run(run), name) for name in names)]
    for name in names:
        if not any(_matches(ComparisonKey.from_run(run), name) for run in runs):
            raise UsageError(
                f"--without {name}: no run has an edition, a grader, data or a baseline of that name"
            )
    if not left:
        raise UsageError(f"nothing is left without {' and '.join(names)}")
    return left


def _matches(key: ComparisonKey, name: str) -> bool:
    return key.edition == name or any(each.startswith(name) for each in (key.grader, key.data, key.baseline))


def build_leaderboard(runs: Sequence[Run], skip_unfinished: bool = False) -> Leaderboard:
    """The table; with `unfinished`, runs without a result are left out and counted, else they are refused."""
    _refuse_incomparable(runs)
    if (open_ones := [run for run in runs if run.result is None]) and not skip_unfinished:
        raise UsageError(
            f"{len(open_ones)} of {len(runs)} runs are unfinished, such as {open_ones[0].folder.path}: finish them,"
            " or pass --unfinished to leave them out"
        )
    summary = summarize_runs(runs)
    groups: dict[tuple[str, str], list[Run]] = defaultdict(list)
    for run in runs:
        groups[run.agent_label, run.task].append(run)
    judged = {place: RunValues(group).success for place, group in groups.items()}
    complete = [
        cell for cell in summary.overall if all(judged.get((cell.agent, task)) for task in summary.tasks)
    ]
    chances = statistics.rank_probabilities(
        [[judged[cell.agent, task] for task in summary.tasks] for cell in complete]
    )
    ranked = [
        _rank_agent(cell, complete, tuple(map(float, row)))
        for cell, row in zip(complete, chances, strict=True)
    ]
    others = [
        _unranked_agent(cell, judged, summary.tasks) for cell in summary.overall if cell not in complete
    ]
    return Leaderboard(
        edition=runs[0].spec.edition,
        tasks=summary.tasks,
        places=tuple(sorted([*ranked, *others], key=_sort_key)),
        settings=summary.settings,
        warnings=tuple(collect_warnings(summary.settings)),
    )


def _refuse_incomparable(runs: Sequence[Run]) -> None:
    keys: dict[ComparisonKey, list[Run]] = defaultdict(list)
    for run in runs:
        keys[ComparisonKey.from_run(run)].append(run)
    if len(editions := sorted({key.edition for key in keys})) > 1:
        raise UsageError(
            f"editions cannot be mixed, and there are runs of {' and '.join(editions)}:"
            f" leave one out with --without {editions[-1]}"
        )
    for task in sorted({key.task for key in keys}):
        own = [key for key in keys if key.task == task]
        if names := find_differing_parts(own):
            name = next(iter(names))
            told = [
                f"{key.shorten(name)} (such as {keys[key][0].folder.path})" for key in _distinct_by(own, name)
            ]
            raise UsageError(
                f"{task} was graded against a different {' and '.join(names)}: {name} {' or '.join(told)};"
                f" leave one out with --without {_distinct_by(own, name)[-1].shorten(name)}"
            )


def _distinct_by(keys: Sequence[ComparisonKey], name: str) -> list[ComparisonKey]:
    """One key for each value of a part of them."""
    return list({str(getattr(key, name)): key for key in keys}.values())


def _rank_agent(cell: Cell, among: Sequence[Cell], chances: tuple[float, ...]) -> Placement:
    rate = cell.success_rate.value or 0.0
    low = statistics.quantile_index(chances, (1 - RANK_CONFIDENCE) / 2)
    high = statistics.quantile_index(chances, (1 + RANK_CONFIDENCE) / 2)
    return Placement(
        rank=1 + sum((other.success_rate.value or 0.0) > rate + 1e-12 for other in among),
        low=low + 1,
        high=high + 1,
        ranks=chances,
        agent=cell.agent,
        overall=cell,
        notes=tuple(describe_caveats(cell)),
    )


def _unranked_agent(
    cell: Cell, judged: dict[tuple[str, str], list[float]], tasks: Sequence[str]
) -> Placement:
    lacks = [task for task in tasks if not judged.get((cell.agent, task))]
    words = f"no rank: nothing to judge on {', '.join(lacks)}"
    return Placement(rank=None, agent=cell.agent, overall=cell, notes=(words, *describe_caveats(cell)))


def _sort_key(place: Placement) -> tuple[bool, float, float, float, str]:
    cell = place.overall
    figures = (cell.success_rate.value, cell.improved_rate.value, cell.improvement.value)
    one, two, three = (-(figure or 0.0) for figure in figures)
    return place.rank is None, one, two, three, place.agent.lower()
