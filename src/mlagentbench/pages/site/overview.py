"""What a report is based on, in words: runs, agents, machines, versions, and caveats."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from mlagentbench.analysis.runs import Run
from mlagentbench.records import Hardware

MAX_NAMED = 3  # agents, tasks or machines listed by name; more are only counted
ENDING_PHRASES = {
    "submitted": "by submitting",
    "steps": "at the step limit",
    "time": "at the time limit",
    "tokens": "at the token limit",
    "money": "at the cost limit",
    "stopped": "because the agent stopped",
    "crashed": "because the agent crashed",
    "fault": "with a fault",
}


@dataclass(frozen=True)
class Overview:
    """Counts and phrases that accompany every table and figure."""

    runs: int
    faults: int
    unfinished: int
    unsandboxed: int
    with_violations: int
    run_counts: str
    paragraph: str
    footer: str
    editions: tuple[str, ...]

    @property
    def counted(self) -> int:
        """The number of runs that say something about their agents."""
        return self.runs - self.faults - self.unfinished

    @property
    def warnings(self) -> list[str]:
        """One sentence for everything a reader must know before the first number."""
        templates = [
            (
                self.faults,
                "{} ended with a fault or without a grade; excluded from all rates, listed under Runs.",
                ("run", "runs"),
            ),
            (
                self.unfinished,
                "{} unfinished; excluded from all rates, listed under Runs.",
                ("run is", "runs are"),
            ),
            (
                self.unsandboxed,
                "{} not sandboxed: nothing restricted the agent.",
                ("run was", "runs were"),
            ),
            (self.with_violations, "{} a rule of the task.", ("run violated", "runs violated")),
        ]
        sentences = [
            template.format(f"{count} {singular if count == 1 else plural}")
            for count, template, (singular, plural) in templates
            if count
        ]
        if len(self.editions) > 1:
            names = join_with_and(self.editions)
            sentences.append(f"This report mixes the editions {names}; their results cannot be compared.")
        return sentences


def build_overview(runs: Sequence[Run]) -> Overview:
    """Count the runs and describe them in words."""
    results = [run.result for run in runs if run.result]
    counts = {
        "faults": sum(run.is_fault for run in runs),
        "unfinished": sum(run.result is None for run in runs),
        "unsandboxed": sum(run.spec.sandbox == "none" for run in runs),
    }
    editions = tuple(sorted({run.spec.edition for run in runs}))
    run_counts = _format_run_counts(len(runs), **counts)
    return Overview(
        runs=len(runs),
        **counts,
        with_violations=sum(bool(result.violations) for result in results),
        paragraph=_describe_runs(runs, editions),
        run_counts=run_counts,
        footer=_format_footer(runs, editions, run_counts),
        editions=editions,
    )


def _describe_runs(runs: Sequence[Run], editions: tuple[str, ...]) -> str:
    agents = _names_or_count({run.agent_label for run in runs}, "agent")
    tasks = _names_or_count({run.task for run in runs}, "task")
    seeds = pluralize(len({run.spec.seed for run in runs}), "seed")
    dates = sorted({run.spec.started[:10] for run in runs})
    when = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
    machines = _names_or_count(_distinct_machines(runs), "machine")
    return (
        f"{pluralize(len(runs), 'run')} of {agents} on {tasks}; {format_editions(editions)}, {seeds}, {when}."
        f" Hardware: {machines}. Software: {_format_versions(runs)}. {_describe_endings(runs)}"
    )


def _describe_endings(runs: Sequence[Run]) -> str:
    endings = Counter(run.result.ending for run in runs if run.result).most_common()
    phrases = [
        f"{count} ended {ENDING_PHRASES[ending]}" if index == 0 else f"{count} {ENDING_PHRASES[ending]}"
        for index, (ending, count) in enumerate(endings)
    ]
    return f"{join_with_and(phrases)}." if phrases else "No run has ended yet."


def _format_run_counts(runs: int, faults: int, unfinished: int, unsandboxed: int) -> str:
    """The number of runs, always with the faults, unfinished and unsandboxed ones among them."""
    counts = (
        (faults, "fault" if faults == 1 else "faults"),
        (unfinished, "unfinished"),
        (unsandboxed, "unsandboxed"),
    )
    caveats = ", ".join(f"{count} {name}" for count, name in counts if count)
    return pluralize(runs, "run") + (f" ({caveats})" if caveats else "")


def _format_footer(runs: Sequence[Run], editions: tuple[str, ...], run_counts: str) -> str:
    machines = _names_or_count(_distinct_machines(runs), "machine")
    return " · ".join((format_editions(editions), run_counts, _format_versions(runs), machines))


def format_editions(editions: tuple[str, ...]) -> str:
    """The names of editions, e.g. "open and paper editions"."""
    return f"{join_with_and(editions)} edition{'s' * (len(editions) > 1)}"


def _distinct_machines(runs: Sequence[Run]) -> set[str]:
    return {describe_machine(run.spec.hardware, bool(run.spec.gpu)) for run in runs}


def describe_machine(hardware: Hardware, gpu: bool) -> str:
    """CPU, cores and memory; with `gpu` (the runs could use one) also the GPU."""
    parts = [hardware.cpu, f"{hardware.cores} cores", f"{hardware.memory_gb:.0f} GB"]
    return ", ".join(parts + ([hardware.gpu] if gpu and hardware.gpu else []))


def _format_versions(runs: Sequence[Run]) -> str:
    versions = sorted({run.spec.version for run in runs})
    python_versions = sorted({run.spec.hardware.python for run in runs})
    return f"mlagentbench {join_with_and(versions)} and Python {join_with_and(python_versions)}"


def _names_or_count(names: Iterable[str], noun: str) -> str:
    ordered = sorted(names, key=str.lower)
    return join_with_and(ordered) if len(ordered) <= MAX_NAMED else pluralize(len(ordered), noun)


def pluralize(number: int, noun: str) -> str:
    """A count and its noun, e.g. "1 run" or "2,000 runs"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def join_with_and(words: Sequence[str]) -> str:
    """Join words with commas, and the last one with "and"."""
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1]))) if words else ""
