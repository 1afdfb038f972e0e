"""What a report rests on, in words: how many runs of what, where, by which version, and what must not be hidden."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from mlagentbench.analysis.runs import Run
from mlagentbench.records import Hardware

MAX_NAMED = 3  # of a kind that are named; more are counted


@dataclass(frozen=True)
class Overview:
    """Counts and phrases that stand beside every figure."""

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
        """Runs that say something about their agents."""
        return self.runs - self.faults - self.unfinished

    @property
    def warnings(self) -> list[str]:
        """A sentence for whatever a reader must know before the first figure."""
        several = "The editions {} are mixed here: figures of different editions cannot be compared."
        said = [
            (
                self.faults,
                "{} ended as a fault, or without a grade: in no rate, and listed below.",
                "run",
                "runs",
            ),
            (self.unfinished, "{} not finished: in no rate, and listed below.", "run is", "runs are"),
            (
                self.unsandboxed,
                "{} outside the sandbox, where nothing held the agent.",
                "run worked",
                "runs worked",
            ),
            (self.with_violations, "{} a rule of the task.", "run broke", "runs broke"),
        ]
        lines = [
            text.format(f"{count} {one if count == 1 else many}") for count, text, one, many in said if count
        ]
        return lines + ([several.format(join_with_and(self.editions))] if len(self.editions) > 1 else [])


def build_overview(runs: Sequence[Run]) -> Overview:
    """Count them, and put it into words."""
    results = [run.result for run in runs if run.result]
    counts = {
        "faults": sum(run.is_fault for run in runs),
        "unfinished": sum(run.result is None for run in runs),
        "unsandboxed": sum(run.spec.sandbox == "none" for run in runs),
    }
    editions = tuple(sorted({run.spec.edition for run in runs}))
    number = _format_run_counts(len(runs), **counts)
    return Overview(
        runs=len(runs),
        **counts,
        with_violations=sum(bool(result.violations) for result in results),
        paragraph=_describe_runs(runs, editions),
        run_counts=number,
        footer=_format_footer(runs, editions, number),
        editions=editions,
    )


def _describe_runs(runs: Sequence[Run], editions: tuple[str, ...]) -> str:
    tasks, entrants = {run.task for run in runs}, {run.agent_label for run in runs}
    seeds = sorted({run.spec.seed for run in runs})
    days = sorted({run.spec.started[:10] for run in runs})
    when = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    what = f"{pluralize(len(runs), 'run')} of {_names_or_count(entrants, 'contestant')} on {_names_or_count(tasks, 'task')}"
    where = f"{format_editions(editions)}, {pluralize(len(seeds), 'seed')}, {when}"
    return f"{what}; {where}. They ran on {_names_or_count(_distinct_machines(runs), 'machine')}, under {_format_versions(runs)}. {_describe_endings(runs)}"


def _describe_endings(runs: Sequence[Run]) -> str:
    words = {
        "submitted": "by submitting",
        "steps": "at the limit of steps",
        "time": "at the limit of time",
        "tokens": "at the limit of tokens",
        "money": "at the limit of money",
        "stopped": "because the agent stopped",
        "crashed": "because the agent crashed",
        "fault": "as a fault",
    }
    found = Counter(run.result.ending for run in runs if run.result).most_common()
    told = [
        f"{count} ended {words[ending]}" if place == 0 else f"{count} {words[ending]}"
        for place, (ending, count) in enumerate(found)
    ]
    return f"{join_with_and(told)}." if told else "None has ended."


def _format_run_counts(runs: int, faults: int, unfinished: int, unsandboxed: int) -> str:
    """How many runs, never without those that are not like the others."""
    told = (
        (faults, "fault" if faults == 1 else "faults"),
        (unfinished, "unfinished"),
        (unsandboxed, "unsandboxed"),
    )
    apart = ", ".join(f"{count} {name}" for count, name in told if count)
    return pluralize(runs, "run") + (f" ({apart})" if apart else "")


def _format_footer(runs: Sequence[Run], editions: tuple[str, ...], number: str) -> str:
    return " · ".join(
        (
            format_editions(editions),
            number,
            _format_versions(runs),
            _names_or_count(_distinct_machines(runs), "machine"),
        )
    )


def format_editions(editions: tuple[str, ...]) -> str:
    return f"{join_with_and(editions)} edition{'s' * (len(editions) > 1)}"


def _distinct_machines(runs: Sequence[Run]) -> set[str]:
    return {describe_machine(run.spec.hardware, bool(run.spec.gpu)) for run in runs}


def describe_machine(hardware: Hardware, gpu: bool) -> str:
    """A machine in words; its GPU only where runs could use it."""
    parts = [hardware.cpu, f"{hardware.cores} cores", f"{hardware.memory_gb:.0f} GB"]
    return ", ".join(parts + ([hardware.gpu] if gpu and hardware.gpu else []))


def _format_versions(runs: Sequence[Run]) -> str:
    ours = sorted({run.spec.version for run in runs})
    pythons = sorted({run.spec.hardware.python for run in runs})
    return f"mlagentbench {join_with_and(ours)} and Python {join_with_and(pythons)}"


def _names_or_count(names: Iterable[str], noun: str) -> str:
    known = sorted(names, key=str.lower)
    return join_with_and(known) if len(known) <= MAX_NAMED else pluralize(len(known), noun)


def pluralize(number: int, noun: str) -> str:
    """A number of things."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def join_with_and(words: Sequence[str]) -> str:
    """Words with commas, and `and` before the last."""
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1]))) if words else ""
