"""What makes runs comparable: edition, grader, data and baseline; a task in two settings is two tasks."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from blake3 import blake3

from mlagentbench.records import Baseline, Better, Kind, Record
from mlagentbench.reports.runs import Run
from mlagentbench.words import measuring

DIGITS = 8  # of a hash, for people


class Key(NamedTuple):
    """What must be the same for two scores to be compared; all but task and edition are hashes."""

    task: str
    edition: str
    grader: str
    data: str
    baseline: str

    @classmethod
    def of(cls, run: Run) -> "Key":
        """That of one run."""
        spec = run.spec
        known = spec.baseline.model_dump_json(exclude={"hardware"}) if spec.baseline else ""
        baseline = blake3(known.encode()).hexdigest() if known else ""
        return cls(run.task, spec.edition, spec.hashes.grader, spec.hashes.data, baseline)

    def short(self, name: str) -> str:
        """One part of it, for people."""
        value = str(getattr(self, name))
        return value if name in ("task", "edition") else value[:DIGITS] or "none"


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
    kind: Kind | None  # of the data
    task_hashes: tuple[str, ...]
    runtimes: tuple[str, ...]
    versions: tuple[str, ...]
    hardware: tuple[str, ...]
    sandboxes: tuple[str, ...]
    limits: tuple[str, ...]
    runs: int


def differing(keys: Sequence[Key]) -> list[str]:
    """Which parts of these keys are not the same in all."""
    return [name for name, values in zip(Key._fields, zip(*keys, strict=True), strict=True) if len(set(values)) > 1]


def labels(runs: Sequence[Run]) -> list[str]:
    """For each run the name of its task, with what tells its setting apart where there are several."""
    keys = [Key.of(run) for run in runs]
    found: dict[str, list[Key]] = defaultdict(list)
    for key in dict.fromkeys(keys):
        found[key.task].append(key)
    kinds = {run.spec.hashes.data: run.spec.kind for run in runs if run.spec.kind}
    named = {key: _label(key, _telling(among), kinds) for among in found.values() for key in among}
    return [named[key] for key in keys]


def _telling(keys: Sequence[Key]) -> list[str]:
    """The parts by which these are told apart; other data has another baseline, which need not be told besides."""
    parts = differing(keys)
    fewer = [name for name in parts if name != "baseline"]
    return fewer if len({tuple(getattr(key, name) for name in fewer) for key in keys}) == len(keys) else parts


def _label(key: Key, parts: Sequence[str], kinds: Mapping[str, Kind]) -> str:
    words = {"edition": "", "data": f"{kinds.get(key.data, 'data')} "}
    told = ", ".join(f"{words.get(name, f'{name} ')}{key.short(name)}" for name in parts)
    return f"{key.task} ({told})" if told else key.task


def settings(runs: Sequence[Run]) -> tuple[Setting, ...]:
    """All settings, in the order of their labels."""
    groups: dict[str, list[Run]] = defaultdict(list)
    for label, run in zip(labels(runs), runs, strict=True):
        groups[label].append(run)
    return tuple(_setting(label, groups[label]) for label in sorted(groups, key=str.lower))


def _setting(label: str, runs: list[Run]) -> Setting:
    spec = runs[0].spec
    return Setting(
        task=runs[0].task,
        label=label,
        edition=spec.edition,
        metric=spec.metric,
        better=spec.better,
        baseline=spec.baseline,
        grader=spec.hashes.grader,
        data=spec.hashes.data,
        kind=spec.kind,
        task_hashes=_distinct(each.spec.hashes.task for each in runs),
        runtimes=_distinct(each.spec.hashes.runtime for each in runs),
        versions=_distinct(each.spec.version for each in runs),
        hardware=_distinct(map(_machine, runs)),
        sandboxes=_distinct(each.spec.sandbox for each in runs),
        limits=_distinct(map(_budget, runs)),
        runs=len(runs),
    )


def _machine(run: Run) -> str:
    own = run.spec.hardware
    gpu = f", {own.gpu}" if run.spec.gpu and own.gpu else ""
    return f"{own.cpu}, {own.cores} cores, {own.memory_gb:g} GB{gpu}"


def _budget(run: Run) -> str:
    own = run.spec.limits
    tokens = f", {own.tokens:,} tokens" if own.tokens else ""
    dollars = f", ${own.dollars:g}" if own.dollars else ""
    return f"{own.steps} steps, {own.hours:g} h{tokens}{dollars}"


def _distinct(values: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(set(values)))


def warnings(found: Sequence[Setting]) -> list[str]:
    """What a reader of figures from these settings must know."""
    told = []
    for task in dict.fromkeys(setting.task for setting in found):
        if (count := sum(setting.task == task for setting in found)) > 1:
            told += [f"{task} was run in {count} settings, which are not comparable: each stands as a task of its own"]
    for setting in found:
        for what, values in (("on different machines", setting.hardware), ("within different limits", setting.limits)):
            if len(values) > 1:
                told += [f"{setting.label} was run {what}: {'; '.join(values)}"]
        if len(setting.task_hashes) > 1:
            told += [f"{setting.label}: its description or starter changed between runs"]
        if setting.baseline is None:
            how = measuring(setting.task, setting.edition, setting.data, setting.kind)
            told += [f"{setting.label}: no baseline is known, so nothing is judged: {how}"]
    return told
