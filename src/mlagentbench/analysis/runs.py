"""Reads run folders for analysis: spec, result and steps, without duplicates."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from mlagentbench.errors import Fault, ProgramFault, UsageError
from mlagentbench.formatting import print_progress
from mlagentbench.records import AgentSpec, Result, RunSpec, Step
from mlagentbench.runner.folder import RunFolder
from mlagentbench.sandbox.access_log.records import Access, read_access
from mlagentbench.system.hashing import hash_file

# Shorter runs may have identical traces: times are rounded to 0.1 ms, and some agents only submit.
MIN_FINGERPRINT_SECONDS = 1.0


@dataclass(frozen=True)
class Run:
    """One run; it is unfinished if it has no result."""

    folder: RunFolder
    result: Result | None
    starts_elsewhere: bool = False  # the same agent has a result in another run

    @property
    def spec(self) -> RunSpec:
        """The specification that the run was started with."""
        return self.folder.spec

    @property
    def name(self) -> str:
        """The name of the run folder."""
        return self.folder.path.name

    @property
    def task(self) -> str:
        """The name of the task, without the path for a task outside the suite."""
        return self.spec.task.rpartition("/")[2]

    @property
    def agent_label(self) -> str:
        """The agent, its models and options, as a short label; different agents never share a label."""
        file, program = self.folder.agent_file, self.spec.program
        marks = ["imported"] if self.spec.imported else []
        marks += [hash_file(file)[:6]] if file else []
        marks += [f"{program.version} {program.hash[:6]}".strip()] if program else []
        return describe_agent(self.spec) + "".join(f" [{mark}]" for mark in marks)

    @property
    def is_fault(self) -> bool:
        """Whether the run ended in a fault or was never graded, and so says nothing about the agent.

        A program that failed before the model had answered it says something if it starts in other runs.
        """
        if self.result is None or (self.never_started and self.starts_elsewhere):
            return False
        return self.result.ending == "fault" or self.result.ungraded

    @property
    def never_started(self) -> bool:
        """Whether an external program failed before the model had answered it."""
        if self.result is None or self.result.ending != "fault":
            return False
        return ProgramFault.is_cause_of(self.result.note)

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        """The steps of the trace."""
        return self.folder.steps()

    @cached_property
    def accesses(self) -> dict[int, tuple[Access, ...]]:
        """Files and sockets that the commands of each step tried to open; empty without an access log."""
        numbers = [step.number for step in self.steps] if self.spec.record_access else []
        return {number: tried for number in numbers if (tried := read_access(self.folder.path, number))}


def describe_agent(spec: AgentSpec) -> str:
    """The agent, its models and its options as one line."""
    details = [f"fast {spec.fast_model}"] if spec.fast_model else []
    details += [f"edit {spec.edit_model}"] if spec.edit_model else []
    details += [f"{name} {value}" for name, value in sorted(spec.options.items())]
    suffix = f"({', '.join(details)})" if details else ""
    return " ".join(filter(None, (spec.agent, spec.model, suffix)))


def read_runs(paths: Sequence[Path]) -> list[Run]:
    """Read all runs below these folders, in order, without duplicates. Damaged runs are named and skipped.

    Args:
        paths: Run folders, batch folders, or folders that contain them.

    Raises:
        UsageError: A path is not a folder, or there are no runs, or all of them are damaged.
    """
    runs: dict[Path, Run] = {}
    problems: list[UsageError] = []
    for path in paths:
        if not path.is_dir():
            raise UsageError(f"No such folder: {path}")
        for run_path in find_run_folders(path):
            try:
                folder = RunFolder(run_path)
                runs[folder.path] = Run(folder, folder.result)
            except UsageError as error:
                problems.append(error)
    if problems and not runs:
        raise problems[0]
    if not runs:
        raise UsageError(f"No runs found below {', '.join(str(path) for path in paths)}")
    for problem in problems:
        print_progress(f"Skipped a damaged run: {problem}")
    return _mark_programs_that_start(_drop_duplicates(list(runs.values())))


def _mark_programs_that_start(runs: list[Run]) -> list[Run]:
    """Mark runs whose program failed at its start, but has a result in another run."""
    if not any(run.never_started for run in runs):
        return runs
    started = {run.agent_label for run in runs if run.result and not run.is_fault}
    return [replace(run, starts_elsewhere=run.never_started and run.agent_label in started) for run in runs]


def drop_damaged_records(runs: Sequence[Run]) -> list[Run]:
    """Keep the runs whose steps and model calls can be read; name the others.

    Raises:
        UsageError: All of them are damaged.
    """
    problems = {run.folder.path: _find_damage(run.folder) for run in runs}
    damaged = [problem for problem in problems.values() if problem]
    if len(damaged) == len(problems):
        raise UsageError(damaged[0])
    for problem in damaged:
        print_progress(f"Skipped a damaged run: {problem}")
    return [run for run in runs if not problems[run.folder.path]]


def _find_damage(folder: RunFolder) -> str:
    try:
        folder.steps()
        for _ in folder.calls():
            pass
    except Fault as fault:
        return str(fault)
    return ""


def _drop_duplicates(runs: Sequence[Run]) -> list[Run]:
    """Keep one of each run: a copy of a run, or its bundle, is not a second run with the same result."""
    known: dict[str, Run] = {}
    duplicates = set()
    # Finished runs first: a copy may have been made while the run was in progress.
    for run in sorted(runs, key=lambda run: run.result is None):
        fingerprints = _fingerprints(run)
        if first := next((known[mark] for mark in fingerprints if mark in known), None):
            duplicates.add(run.folder.path)
            print_progress(f"{run.folder.path} is a copy of {first.folder.path}; counted once")
        known |= dict.fromkeys(fingerprints, first or run)
    return [run for run in runs if run.folder.path not in duplicates]


def _fingerprints(run: Run) -> set[str]:
    """What identifies a run: its task, with its id or the hashes of its trace if it ran long enough."""
    marks = {run.spec.id}
    if run.result and run.result.trace and run.result.seconds >= MIN_FINGERPRINT_SECONDS:
        marks.add(run.result.trace + run.result.history)
    # Runs of different tasks are never the same run, whatever else they share.
    return {f"{run.task} {mark}" for mark in marks - {""}}


def find_run_folders(path: Path) -> Iterator[Path]:
    """All run folders below a folder, in order."""
    for parent, folders, files in os.walk(path):
        if "run.json" in files:
            folders.clear()  # a run.json that an agent wrote is not a run
            yield Path(parent)
        folders.sort()
