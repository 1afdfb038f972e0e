"""What a report rests on, in words: how many runs of what, where, by which version, and what must not be hidden."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from mlagentbench.records import Hardware
from mlagentbench.reports.runs import Run

FEW = 3  # of a kind that are named; more are counted


@dataclass(frozen=True)
class Facts:
    """Counts and phrases that stand beside every figure."""

    runs: int
    faults: int
    unfinished: int
    unsandboxed: int
    broke_rules: int
    number: str
    paragraph: str
    foot: str
    editions: tuple[str, ...]

    @property
    def counted(self) -> int:
        """Runs that say something about their agents."""
        return self.runs - self.faults - self.unfinished

    @property
    def cautions(self) -> list[str]:
        """A sentence for whatever a reader must know before the first figure."""
        several = "The editions {} are mixed here: figures of different editions cannot be compared."
        said = [
            (self.faults, "{} ended as a fault, or without a grade: in no rate, and listed below.", "run", "runs"),
            (self.unfinished, "{} not finished: in no rate, and listed below.", "run is", "runs are"),
            (self.unsandboxed, "{} outside the sandbox, where nothing held the agent.", "run worked", "runs worked"),
            (self.broke_rules, "{} a rule of the task.", "run broke", "runs broke"),
        ]
        lines = [text.format(f"{count} {one if count == 1 else many}") for count, text, one, many in said if count]
        return lines + ([several.format(listed(self.editions))] if len(self.editions) > 1 else [])


def facts(runs: Sequence[Run]) -> Facts:
    """Count them, and put it into words."""
    results = [run.result for run in runs if run.result]
    counts = {
        "faults": sum(run.fault for run in runs),
        "unfinished": sum(run.result is None for run in runs),
        "unsandboxed": sum(run.spec.sandbox == "none" for run in runs),
    }
    editions = tuple(sorted({run.spec.edition for run in runs}))
    number = _number(len(runs), **counts)
    return Facts(
        runs=len(runs),
        **counts,
        broke_rules=sum(bool(result.violations) for result in results),
        paragraph=_paragraph(runs, editions),
        number=number,
        foot=_foot(runs, editions, number),
        editions=editions,
    )


def _paragraph(runs: Sequence[Run], editions: tuple[str, ...]) -> str:
    tasks, entrants = {run.task for run in runs}, {run.who for run in runs}
    seeds = sorted({run.spec.seed for run in runs})
    days = sorted({run.spec.started[:10] for run in runs})
    when = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    what = f"{counted(len(runs), 'run')} of {_some(entrants, 'contestant')} on {_some(tasks, 'task')}"
    where = f"{_editions(editions)}, {counted(len(seeds), 'seed')}, {when}"
    return (
        f"{what}; {where}. They ran on {_some(_machines(runs), 'machine')}, under {_versions(runs)}. {_endings(runs)}"
    )


def _endings(runs: Sequence[Run]) -> str:
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
    return f"{listed(told)}." if told else "None has ended."


def _number(runs: int, faults: int, unfinished: int, unsandboxed: int) -> str:
    """How many runs, never without those that are not like the others."""
    told = ((faults, "fault" if faults == 1 else "faults"), (unfinished, "unfinished"), (unsandboxed, "unsandboxed"))
    apart = ", ".join(f"{count} {name}" for count, name in told if count)
    return counted(runs, "run") + (f" ({apart})" if apart else "")


def _foot(runs: Sequence[Run], editions: tuple[str, ...], number: str) -> str:
    return " · ".join((_editions(editions), number, _versions(runs), _some(_machines(runs), "machine")))


def _editions(editions: tuple[str, ...]) -> str:
    return f"{listed(editions)} edition{'s' * (len(editions) > 1)}"


def _machines(runs: Sequence[Run]) -> set[str]:
    return {machine(run.spec.hardware, bool(run.spec.gpu)) for run in runs}


def machine(hardware: Hardware, gpu: bool) -> str:
    """A machine in words; its GPU only where runs could use it."""
    parts = [hardware.cpu, f"{hardware.cores} cores", f"{hardware.memory_gb:.0f} GB"]
    return ", ".join(parts + ([hardware.gpu] if gpu and hardware.gpu else []))


def _versions(runs: Sequence[Run]) -> str:
    ours = sorted({run.spec.version for run in runs})
    pythons = sorted({run.spec.hardware.python for run in runs})
    return f"mlagentbench {listed(ours)} and Python {listed(pythons)}"


def _some(names: Iterable[str], noun: str) -> str:
    known = sorted(names, key=str.lower)
    return listed(known) if len(known) <= FEW else counted(len(known), noun)


def counted(number: int, noun: str) -> str:
    """A number of things."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def listed(words: Sequence[str]) -> str:
    """Words with commas, and `and` before the last."""
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1]))) if words else ""
