"""Settings: runs of a task are comparable if edition, start, grader, data and baseline are the same."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import NamedTuple

from blake3 import blake3

from mlagentbench.analysis.runs import Run
from mlagentbench.errors import UsageError
from mlagentbench.formatting import baseline_command
from mlagentbench.records import Baseline, Better, DataKind, Levels, Record, Start
from mlagentbench.task import Task

SHORT_HASH_DIGITS = 8  # digits of a hash in labels and messages


class ComparisonKey(NamedTuple):
    """What must be equal for two scores to be comparable; grader, data and baseline are hashes."""

    task: str
    edition: str
    start: str
    grader: str
    data: str
    baseline: str

    @classmethod
    def from_run(cls, run: Run) -> "ComparisonKey":
        """The key of a run."""
        spec = run.spec
        content = spec.baseline.model_dump_json(exclude={"hardware"}) if spec.baseline else ""
        baseline = blake3(content.encode()).hexdigest() if content else ""
        return cls(run.task, spec.edition, spec.start, spec.hashes.grader, spec.hashes.data, baseline)

    def shorten(self, part: str) -> str:
        """The value of one part for labels and messages; hashes are shortened."""
        value = str(getattr(self, part))
        return value if part in ("task", "edition", "start") else value[:SHORT_HASH_DIGITS] or "none"


class Setting(Record):
    """The conditions of a group of runs of one task; scores are comparable only within a setting."""

    task: str
    label: str
    category: str
    edition: str
    metric: str
    better: Better
    start: Start
    baseline: Baseline | None
    levels: tuple[Levels, ...]
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
    """The parts that are not equal in all of these keys."""
    return [
        part
        for part, values in zip(ComparisonKey._fields, zip(*keys, strict=True), strict=True)
        if len(set(values)) > 1
    ]


def refuse_mixed_starts(runs: Sequence[Run]) -> None:
    """Refuse runs from different starts, whose successes and averages mean different things.

    Raises:
        UsageError: There are runs from the starter and from a stronger solution, or from two of these.
    """
    _refuse_mixed("Starts", {run.spec.start for run in runs})


def refuse_mixed_editions(runs: Sequence[Run]) -> None:
    """Refuse runs of different editions.

    Raises:
        UsageError: There are runs of both editions.
    """
    _refuse_mixed("Editions", {run.spec.edition for run in runs})


def _refuse_mixed(what: str, values: Iterable[str]) -> None:
    if len(names := sorted(values, key=lambda name: (name != "starter", name))) > 1:
        raise UsageError(
            f"{what} cannot be mixed, but there are runs of {' and '.join(names)}."
            f" Leave one out with --exclude {names[-1]}"
        )


def label_runs(runs: Sequence[Run]) -> list[str]:
    """The task name of each run; if the task has several settings, with what distinguishes this one."""
    keys = [ComparisonKey.from_run(run) for run in runs]
    by_task: dict[str, list[ComparisonKey]] = defaultdict(list)
    for key in dict.fromkeys(keys):
        by_task[key.task].append(key)
    kinds = {run.spec.hashes.data: run.spec.kind for run in runs if run.spec.kind}
    labels = {
        key: _format_label(key, _distinguishing_parts(task_keys), kinds)
        for task_keys in by_task.values()
        for key in task_keys
    }
    return [labels[key] for key in keys]


def _distinguishing_parts(keys: Sequence[ComparisonKey]) -> list[str]:
    """The parts that distinguish these keys, without the baseline if the other parts suffice."""
    parts = find_differing_parts(keys)
    others = [part for part in parts if part != "baseline"]
    distinct = {tuple(getattr(key, part) for part in others) for key in keys}
    return others if len(distinct) == len(keys) else parts


def _format_label(key: ComparisonKey, parts: Sequence[str], kinds: Mapping[str, DataKind]) -> str:
    prefixes = {"edition": "", "start": "from ", "data": f"{kinds.get(key.data, 'data')} "}
    if key.start != "starter" and "start" not in parts:
        parts = ["start", *parts]  # a hard start is never shown as an ordinary run
    details = ", ".join(f"{prefixes.get(part, f'{part} ')}{key.shorten(part)}" for part in parts)
    return f"{key.task} ({details})" if details else key.task


def collect_settings(runs: Sequence[Run]) -> tuple[Setting, ...]:
    """All settings of these runs, sorted by label."""
    groups: dict[str, list[Run]] = defaultdict(list)
    for label, run in zip(label_runs(runs), runs, strict=True):
        groups[label].append(run)
    return tuple(_build_setting(label, groups[label]) for label in sorted(groups, key=str.lower))


def _build_setting(label: str, runs: list[Run]) -> Setting:
    spec = runs[0].spec
    return Setting(
        task=runs[0].task,
        label=label,
        category=task_category(spec.task),
        edition=spec.edition,
        metric=spec.metric,
        better=spec.better,
        start=spec.start,
        baseline=spec.baseline,
        levels=tuple(dict.fromkeys(run.spec.levels for run in runs if run.spec.levels != Levels())),
        grader=spec.hashes.grader,
        data=spec.hashes.data,
        kind=spec.kind,
        task_hashes=_sorted_unique(run.spec.hashes.task for run in runs),
        runtimes=_sorted_unique(run.spec.hashes.runtime for run in runs),
        versions=_sorted_unique(run.spec.version for run in runs),
        hardware=_sorted_unique(map(_describe_machine, runs)),
        sandboxes=_sorted_unique(run.spec.sandbox for run in runs),
        limits=_sorted_unique(map(_describe_limits, runs)),
        runs=len(runs),
    )


@cache
def task_category(name: str) -> str:
    """The category of a task; "other" if the task is not installed here."""
    try:
        return Task.load(name).config.category
    except UsageError:
        return "other"


def _describe_machine(run: Run) -> str:
    hardware = run.spec.hardware
    gpu = f", {hardware.gpu}" if run.spec.gpu and hardware.gpu else ""
    return f"{hardware.cpu}, {hardware.cores} cores, {hardware.memory_gb:g} GB{gpu}"


def _describe_limits(run: Run) -> str:
    limits = run.spec.limits
    tokens = f", {limits.tokens:,} tokens" if limits.tokens else ""
    dollars = f", ${limits.dollars:g}" if limits.dollars else ""
    return f"{limits.steps} steps, {limits.hours:g} h{tokens}{dollars}"


def _sorted_unique(values: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(set(values)))


def collect_warnings(settings: Sequence[Setting]) -> list[str]:
    """What limits the comparability of metrics from these settings."""
    counts = Counter(setting.task for setting in settings)
    warnings = [
        f"{task} was run in {count} settings that are not comparable; each counts as a separate task"
        for task, count in counts.items()
        if count > 1
    ]
    for setting in settings:
        if len(setting.hardware) > 1:
            warnings.append(f"{setting.label} was run on different machines: {'; '.join(setting.hardware)}")
        if len(setting.limits) > 1:
            warnings.append(f"{setting.label} was run with different limits: {'; '.join(setting.limits)}")
        if len(setting.task_hashes) > 1:
            warnings.append(f"{setting.label}: the description or the starter changed between runs")
        if len(setting.levels) > 1:
            warnings.append(f"{setting.label}: progress was measured against different levels")
        if setting.baseline is None:
            command = baseline_command(
                setting.task, setting.edition, setting.data, setting.kind, setting.start
            )
            warnings.append(f"{setting.label}: no baseline, so runs are not judged. Measure it: {command}")
    return warnings
