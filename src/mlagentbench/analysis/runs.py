"""Run folders as reports read them: what was asked, what came of it, step by step."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from mlagentbench.errors import UsageError
from mlagentbench.formatting import print_progress
from mlagentbench.records import AgentSpec, Result, RunSpec, Step
from mlagentbench.runner.folder import RunFolder
from mlagentbench.sandbox.access_log.records import Access, read_access
from mlagentbench.system.hashing import hash_file

MIN_FINGERPRINT_SECONDS = (
    1.0  # seconds; a trace has times to the tenth of a millisecond, which two runs that only submit may share
)


@dataclass(frozen=True)
class Run:
    """One run; without a result it is unfinished."""

    folder: RunFolder
    result: Result | None

    @property
    def spec(self) -> RunSpec:
        """What was asked for."""
        return self.folder.spec

    @property
    def name(self) -> str:
        """The name of its folder."""
        return self.folder.path.name

    @property
    def task(self) -> str:
        """The task's name, also of one that is not in the suite."""
        return self.spec.task.rpartition("/")[2]

    @property
    def agent_label(self) -> str:
        """The contestant in a few words; two that differ in anything never share them."""
        file = self.folder.agent_file
        apart = " [imported]" if self.spec.imported else ""
        return describe_agent(self.spec) + (f" [{hash_file(file)[:6]}]" if file else apart)

    @property
    def is_fault(self) -> bool:
        """Whether it says nothing about the agent."""
        return self.result is not None and (self.result.ending == "fault" or self.result.ungraded)

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        """What was done."""
        return self.folder.steps()

    @cached_property
    def accesses(self) -> dict[int, tuple[Access, ...]]:
        """What the commands of each step opened, and which sockets they tried; nothing without an access ledger."""
        numbers = [step.number for step in self.steps] if self.spec.record_access else []
        return {number: tried for number in numbers if (tried := read_access(self.folder.path, number))}


def describe_agent(who: AgentSpec) -> str:
    """An agent, its model, and whatever else it was told, in words."""
    told = [f"{name} {value}" for name, value in sorted(who.options.items())]
    others = [f"fast {who.fast_model}"] if who.fast_model else []
    others += [f"edit {who.edit_model}"] if who.edit_model else []
    more = ", ".join(others + told)
    return " ".join(filter(None, (who.agent, who.model, f"({more})" if more else "")))


def read_runs(paths: Sequence[Path]) -> list[Run]:
    """All runs below some folders, in order and each once; a folder may be a run, a batch, or hold those."""
    found: dict[Path, Run] = {}
    for path in paths:
        if not path.is_dir():
            raise UsageError(f"there is no folder {path}")
        for place in find_run_folders(path):
            folder = RunFolder(place)
            found[folder.path] = Run(folder, folder.result)
    if not found:
        raise UsageError(f"no run lies below {', '.join(str(path) for path in paths)}")
    return _drop_duplicates(list(found.values()))


def _drop_duplicates(runs: Sequence[Run]) -> list[Run]:
    """One of each; a copy of a run, or its bundle beside it, is no second run that came out the same."""
    known: dict[str, Run] = {}
    again = set()
    for run in sorted(runs, key=lambda run: run.result is None):  # a copy may have been made while it went on
        marks = _fingerprints(run)
        if first := next((known[mark] for mark in marks if mark in known), None):
            again.add(run.folder.path)
            print_progress(f"{run.folder.path} is {first.folder.path} again: counted once")
        known |= dict.fromkeys(marks, first or run)
    return [run for run in runs if run.folder.path not in again]


def _fingerprints(run: Run) -> set[str]:
    """What no other run has: its id, and its steps with what they left, if they took long enough for that."""
    marks = {run.spec.id}
    if run.result and run.result.trace and run.result.seconds >= MIN_FINGERPRINT_SECONDS:
        marks.add(run.result.trace + run.result.history)
    return marks - {""}


def find_run_folders(path: Path) -> Iterator[Path]:
    """The folders of all runs below one, in order."""
    for parent, folders, files in os.walk(path):
        if "run.json" in files:
            folders.clear()  # what an agent left is no run
            yield Path(parent)
        folders.sort()
