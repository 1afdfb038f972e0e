"""What makes runs comparable: edition, grader, data and baseline; a task in two settings is two tasks."""

from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence

from mlagentbench.records import Baseline, Better, Record
from mlagentbench.reports.runs import Run

DIGITS = 8  # of a hash, for people


class Setting(Record):
    """The conditions of some runs of one task; scores are comparable within one setting only."""

    task: str
    label: str
    edition: str
    metric: str
    better: Better
    baseline: Baseline | None
    grader: str
    data: str
    runtimes: tuple[str, ...]
    versions: tuple[str, ...]
    hardware: tuple[str, ...]
    sandboxes: tuple[str, ...]
    runs: int


def key(run: Run) -> tuple[str, ...]:
    """What must be the same for two scores to be compared."""
    spec = run.spec
    baseline = spec.baseline.model_dump_json(exclude={"hardware"}) if spec.baseline else ""
    return run.task, spec.edition, spec.hashes.grader, spec.hashes.data, baseline


def differing(keys: Sequence[tuple[str, ...]]) -> list[str]:
    """Which parts of the keys of one task are not the same in all."""
    names = ("task", "edition", "grader", "data", "baseline")
    return [name for name, values in zip(names, zip(*keys, strict=True), strict=True) if len(set(values)) > 1]


def labels(runs: Sequence[Run]) -> list[str]:
    """For each run the name of its task, with what tells its setting apart where there are several."""
    return _labels([key(run) for run in runs])


def _labels(keys: Sequence[tuple[str, ...]]) -> list[str]:
    found: dict[str, list[tuple[str, ...]]] = defaultdict(list)
    for each in dict.fromkeys(keys):
        found[each[0]].append(each)
    named = {each: _label(each, among) for among in found.values() for each in among}
    return [named[each] for each in keys]


def _label(own: tuple[str, ...], among: list[tuple[str, ...]]) -> str:
    if len(among) == 1:
        return own[0]
    task, edition, grader, data, baseline = own
    parts = {"edition": edition, "grader": f"grader {grader[:DIGITS]}", "data": f"data {data[:DIGITS]}"}
    parts["baseline"] = f"baseline {Baseline.model_validate_json(baseline).mean:g}" if baseline else "no baseline"
    told = ", ".join(parts[name] for name in differing(among))
    same = [each for each in among if each != own and _shown(each) == _shown(own)]
    return f"{task} ({told}{f', {among.index(own) + 1}' if same else ''})"


def _shown(own: tuple[str, ...]) -> Hashable:
    task, edition, grader, data, baseline = own
    mean = f"{Baseline.model_validate_json(baseline).mean:g}" if baseline else ""
    return task, edition, grader[:DIGITS], data[:DIGITS], mean


def settings(runs: Sequence[Run]) -> tuple[Setting, ...]:
    """All settings, in the order of their labels."""
    groups: dict[str, list[Run]] = defaultdict(list)
    for label, run in zip(labels(runs), runs, strict=True):
        groups[label].append(run)
    return tuple(_setting(label, groups[label]) for label in sorted(groups, key=str.lower))


def _setting(label: str, runs: list[Run]) -> Setting:
    spec = runs[0].spec
    machines = [(each.spec.hardware, each.spec.gpu) for each in runs]
    words = [
        f"{m.cpu}, {m.cores} cores, {m.memory_gb:g} GB{f', {m.gpu}' if gpu and m.gpu else ''}" for m, gpu in machines
    ]
    return Setting(
        task=runs[0].task,
        label=label,
        edition=spec.edition,
        metric=spec.metric,
        better=spec.better,
        baseline=spec.baseline,
        grader=spec.hashes.grader,
        data=spec.hashes.data,
        runtimes=_distinct(each.spec.hashes.runtime for each in runs),
        versions=_distinct(each.spec.version for each in runs),
        hardware=_distinct(words),
        sandboxes=_distinct(each.spec.sandbox for each in runs),
        runs=len(runs),
    )


def _distinct(values: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(set(values)))
