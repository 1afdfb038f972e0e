"""A table of entrants over tasks that refuses whatever cannot be compared."""

from collections import defaultdict
from collections.abc import Sequence

from mlagentbench.errors import UsageError
from mlagentbench.records import Record
from mlagentbench.reports import statistics
from mlagentbench.reports.metrics import Cell, Numbers, apart, summarise
from mlagentbench.reports.runs import Run
from mlagentbench.reports.settings import DIGITS, Key, Setting, differing, warnings

SURE = 0.95  # of all resamples have the rank between the two that are given


class Place(Record):
    """One entrant; no rank if it has not been judged on every task."""

    rank: int | None
    low: int | None = None  # ranks in 95 % of all resamples
    high: int | None = None
    ranks: tuple[float, ...] = ()  # the chance of each rank
    who: str
    overall: Cell
    marks: tuple[str, ...]


class Leaderboard(Record):
    """By success rate over all tasks, with the noise test."""

    edition: str
    tasks: tuple[str, ...]
    places: tuple[Place, ...]
    settings: tuple[Setting, ...]
    warnings: tuple[str, ...]


def without(runs: Sequence[Run], names: Sequence[str]) -> list[Run]:
    """The runs that are of none of these editions, and whose grader, data and baseline begin with none of these."""
    if short := [name for name in names if len(name) < 4]:
        raise UsageError(f"--without {short[0]} is too short: an edition, or the first {DIGITS} digits of a hash")
    left = [run for run in runs if not any(_is(Key.of(run), name) for name in names)]
    for name in names:
        if not any(_is(Key.of(run), name) for run in runs):
            raise UsageError(f"--without {name}: no run has an edition, a grader, data or a baseline of that name")
    if not left:
        raise UsageError(f"nothing is left without {' and '.join(names)}")
    return left


def _is(key: Key, name: str) -> bool:
    return key.edition == name or any(each.startswith(name) for each in (key.grader, key.data, key.baseline))


def leaderboard(runs: Sequence[Run], unfinished: bool = False) -> Leaderboard:
    """The table; with `unfinished`, runs without a result are left out and counted, else they are refused."""
    _refuse_mixtures(runs)
    if (open_ones := [run for run in runs if run.result is None]) and not unfinished:
        raise UsageError(
            f"{len(open_ones)} of {len(runs)} runs are unfinished, such as {open_ones[0].folder.path}: finish them,"
            " or pass --unfinished to leave them out"
        )
    summary = summarise(runs)
    groups: dict[tuple[str, str], list[Run]] = defaultdict(list)
    for run in runs:
        groups[run.who, run.task].append(run)
    judged = {place: Numbers(group).success for place, group in groups.items()}
    complete = [cell for cell in summary.overall if all(judged.get((cell.who, task)) for task in summary.tasks)]
    chances = statistics.ranks([[judged[cell.who, task] for task in summary.tasks] for cell in complete])
    ranked = [_place(cell, complete, tuple(map(float, row))) for cell, row in zip(complete, chances, strict=True)]
    others = [_unranked(cell, judged, summary.tasks) for cell in summary.overall if cell not in complete]
    return Leaderboard(
        edition=runs[0].spec.edition,
        tasks=summary.tasks,
        places=tuple(sorted([*ranked, *others], key=_order)),
        settings=summary.settings,
        warnings=tuple(warnings(summary.settings)),
    )


def _refuse_mixtures(runs: Sequence[Run]) -> None:
    keys: dict[Key, list[Run]] = defaultdict(list)
    for run in runs:
        keys[Key.of(run)].append(run)
    if len(editions := sorted({key.edition for key in keys})) > 1:
        raise UsageError(
            f"editions cannot be mixed, and there are runs of {' and '.join(editions)}:"
            f" leave one out with --without {editions[-1]}"
        )
    for task in sorted({key.task for key in keys}):
        own = [key for key in keys if key.task == task]
        if names := differing(own):
            name = next(iter(names))
            told = [f"{key.short(name)} (such as {keys[key][0].folder.path})" for key in _by(own, name)]
            raise UsageError(
                f"{task} was graded against a different {' and '.join(names)}: {name} {' or '.join(told)};"
                f" leave one out with --without {_by(own, name)[-1].short(name)}"
            )


def _by(keys: Sequence[Key], name: str) -> list[Key]:
    """One key for each value of a part of them."""
    return list({str(getattr(key, name)): key for key in keys}.values())


def _place(cell: Cell, among: Sequence[Cell], chances: tuple[float, ...]) -> Place:
    rate = cell.success_rate.value or 0.0
    low = statistics.quantile(chances, (1 - SURE) / 2)
    high = statistics.quantile(chances, (1 + SURE) / 2)
    return Place(
        rank=1 + sum((other.success_rate.value or 0.0) > rate + 1e-12 for other in among),
        low=low + 1,
        high=high + 1,
        ranks=chances,
        who=cell.who,
        overall=cell,
        marks=tuple(apart(cell)),
    )


def _unranked(cell: Cell, judged: dict[tuple[str, str], list[float]], tasks: Sequence[str]) -> Place:
    lacks = [task for task in tasks if not judged.get((cell.who, task))]
    words = f"no rank: nothing to judge on {', '.join(lacks)}"
    return Place(rank=None, who=cell.who, overall=cell, marks=(words, *apart(cell)))


def _order(place: Place) -> tuple[bool, float, float, float, str]:
    cell = place.overall
    figures = (cell.success_rate.value, cell.improved_rate.value, cell.improvement.value)
    one, two, three = (-(figure or 0.0) for figure in figures)
    return place.rank is None, one, two, three, place.who.lower()
