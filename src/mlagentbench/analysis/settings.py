"""What makes runs comparable: edition, grader, data and baseline; a task in two settings is two tasks."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from blake3 import blake3

from mlagentbench.analysis.runs import Run
from mlagentbench.formatting import baseline_command
from mlagentbench.records import Baseline, Better, DataKind, Record

SHORT_HASH_DIGITS = 8  # of a hash, for people


class ComparisonKey(NamedTuple):
    """What must be the same for two scores to be compared; all but task and edition are hashes."""

    task: str
    edition: str
    grader: str
    data: str
    baseline: str

    @classmethod
    def from_run(cls, run: Run) -> "ComparisonKey":
        """That of one run."""
        spec = run.spec
        known = spec.baseline.model_dump_json(exclude={"hardware"}) if spec.baseline else ""
        baseline = blake3(known.encode()).hexdigest() if known else ""
        return cls(run.task, spec.edition, spec.hashes.grader, spec.hashes.data, baseline)

    def shorten(self, name: str) -> str:
        """One part of it, for people."""
        value = str(getattr(self, name))
        return value if name in ("task", "edition") else value[:SHORT_HASH_DIGITS] or "none"


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
    kind: DataKind | None  # of the data
    task_hashes: tuple[str, ...]
    runtimes: tuple[str, ...]
    versions: tuple[str, ...]
    hardware: tuple[str, ...]
    sandboxes: tuple[str, ...]
    limits: tuple[str, ...]
    runs: int


def find_differing_parts(keys: Sequence[ComparisonKey]) -> list[str]:
    """Which parts of these keys are not the same in all."""
    return [
        name
        for name, values in zip(ComparisonKey._fields, zip(*keys, strict=True), strict=True)
        if len(set(values)) > 1
    ]


def label_runs(runs: Sequence[Run]) -> list[str]:
    """For each run the name of its task, with what tells its setting apart where there are several."""
    keys = [ComparisonKey.from_run(run) for run in runs]
    found: dict[str, list[ComparisonKey]] = defaultdict(list)
    for key in dict.fromkeys(keys):
        found[key.task].append(key)
    kinds = {run.spec.hashes.data: run.spec.kind for run in runs if run.spec.kind}
    named = {
        key: _format_label(key, _distinguishing_parts(among), kinds)
        for among in found.values()
        for key in among
    }
    return [named[key] for key in keys]


def _distinguishing_parts(keys: Sequence[ComparisonKey]) -> list[str]:
    """The parts by which these are told apart; other data has another baseline, which need not be told besides."""
    parts = find_differing_parts(keys)
    fewer = [name for name in parts if name != "baseline"]
    return fewer if len({tuple(getattr(key, name) for name in fewer) for key in keys}) == len(keys) else parts


def _format_label(key: ComparisonKey, parts: Sequence[str], kinds: Mapping[str, DataKind]) -> str:
    words = {"edition": "", "data": f"{kinds.get(key.data, 'data')} "}
    told = ", ".join(f"{words.get(name, f'{name} ')}{key.shorten(name)}" for name in parts)
    return f"{key.task} ({told})" if told else key.task


def collect_settings(runs: Sequence[Run]) -> tuple[Setting, ...]:
    """All settings, in the order of their labels."""
    groups: dict[str, list[Run]] = defaultdict(list)
    for label, run in zip(label_runs(runs), runs, strict=True):
        groups[label].append(run)
    return tuple(_build_setting(label, groups[label]) for label in sorted(groups, key=str.lower))


def _build_setting(label: str, runs: list[Run]) -> Setting:
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
        task_hashes=_sorted_unique(each.spec.hashes.task for each in runs),
        runtimes=_sorted_unique(each.spec.hashes.runtime for each in runs),
        versions=_sorted_unique(each.spec.version for each in runs),
        hardware=_sorted_unique(map(_describe_machine, runs)),
        sandboxes=_sorted_unique(each.spec.sandbox for each in runs),
        limits=_sorted_unique(map(_describe_limits, runs)),
        runs=len(runs),
    )


def _describe_machine(run: Run) -> str:
    own = run.spec.hardware
    gpu = f", {own.gpu}" if run.spec.gpu and own.gpu else ""
    return f"{own.cpu}, {own.cores} cores, {own.memory_gb:g} GB{gpu}"


def _describe_limits(run: Run) -> str:
    own = run.spec.limits
    tokens = f", {own.tokens:,} tokens" if own.tokens else ""
    dollars = f", ${own.dollars:g}" if own.dollars else ""
    return f"{own.steps} steps, {own.hours:g} h{tokens}{dollars}"


def _sorted_unique(values: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(set(values)))


def collect_warnings(found: Sequence[Setting]) -> list[str]:
    """What a reader of figures from these settings must know."""
    told = []
    for task in dict.fromkeys(setting.task for setting in found):
        if (count := sum(setting.task == task for setting in found)) > 1:
            told += [
                f"{task} was run in {count} settings, which are not comparable: each stands as a task of its own"
            ]
    for setting in found:
        for what, values in (
            ("on different machines", setting.hardware),
            ("within different limits", setting.limits),
        ):
            if len(values) > 1:
                told += [f"{setting.label} was run {what}: {'; '.join(values)}"]
        if len(setting.task_hashes) > 1:
            told += [f"{setting.label}: its description or starter changed between runs"]
        if setting.baseline is None:
            how = baseline_command(setting.task, setting.edition, setting.data, setting.kind)
            told += [f"{setting.label}: no baseline is known, so nothing is judged: {how}"]
    return told
