"""Runs the cases of a target within time and memory limits; only the errors that it declares are allowed."""

import importlib
import resource
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from random import Random
from types import FrameType, ModuleType
from typing import Any

TARGETS = Path(__file__).parent / "targets"
CPU_LIMIT_S, WALL_LIMIT_S = 3.0, 60.0  # per case
MEMORY_LIMIT_BYTES = 1 << 30  # above what a target uses at its start
MAX_CASE_CHARS = 1000  # shown of a failing case
HYPOTHESIS_ROUND_CASES = 500


class CaseTimeout(BaseException):
    """A case took too long; not an Exception, so that no target can swallow it."""


class Defect(Exception):
    """A case that failed with an error that its target does not declare."""


@dataclass(frozen=True)
class FuzzStats:
    """The results of one target."""

    target: str
    cases: int
    seconds: float
    slowest: float
    peak_mb: float  # above what it used at its start


def target_names() -> list[str]:
    """The names of all targets; each is a file."""
    return sorted(path.stem for path in TARGETS.glob("[!_]*.py"))


def load_target(name: str) -> ModuleType:
    """Load a target by its file name.

    A target defines EXPECTED_ERRORS, CASES_PER_1000 (its share of a long run), SHORT_CASES (in the default
    suite) and run_case(case, fixture); make_case(random) for numbered cases, or STRATEGY for cases of
    hypothesis; and optionally open_fixture(folder), a context manager, and REGRESSION_CASES, which failed in
    the past.
    """
    return importlib.import_module(f"targets.{name}")


def fuzz(
    target: ModuleType, folder: Path, seed: int, first: int, count: int, seconds: float = 1e9
) -> FuzzStats:
    """Run the regression cases, then the cases first, first + 1, ... of a seed, until the time is up."""
    open_fixture = getattr(target, "open_fixture", _use_folder)
    with (
        open_fixture(folder) as fixture,
        _limit_memory(),
        _alarm_handlers(),
        (folder / "at").open("wb", buffering=0) as progress_file,
    ):
        before, started = _reset_peak(), time.perf_counter()
        target_run = TargetRun(target, fixture, progress_file, seed, started + seconds)
        for case in getattr(target, "REGRESSION_CASES", ()):
            target_run.run_case(case, -1)
        (_run_by_hypothesis if hasattr(target, "STRATEGY") else _run_by_number)(target_run, first, count)
        elapsed = time.perf_counter() - started
        peak_mb = (_read_memory("VmHWM") - before) / 2**20
        return FuzzStats(target_run.name, target_run.done, elapsed, target_run.slowest, peak_mb)


class TargetRun:
    """The state of one target while its cases run."""

    def __init__(
        self, target: ModuleType, fixture: Any, progress_file: FileIO, seed: int, deadline: float
    ) -> None:
        self.target, self.fixture, self.seed, self.deadline = target, fixture, seed, deadline
        self.name = target.__name__.rpartition(".")[2]
        self.done, self.slowest = 0, 0.0
        self._progress_file = progress_file

    def run_case(self, case: Any, number: int) -> None:
        """Run one case; its number is written first, so that a case that kills the interpreter is known."""
        self._progress_file.seek(0)
        self._progress_file.write(b"%-20d" % number)
        started = time.perf_counter()
        try:
            self._run_with_alarms(case)
        except self.target.EXPECTED_ERRORS:
            pass
        except (Exception, CaseTimeout) as error:
            raise Defect(self._describe_failure(case, number, error)) from error
        self.done += 1
        self.slowest = max(self.slowest, time.perf_counter() - started)

    def _run_with_alarms(self, case: Any) -> None:
        _set_alarms(CPU_LIMIT_S, WALL_LIMIT_S, 10 * CPU_LIMIT_S)
        try:
            self.target.run_case(case, self.fixture)
        finally:
            _set_alarms(0, 0, 0)

    def _describe_failure(self, case: Any, number: int, error: BaseException) -> str:
        text = repr(case)
        if len(text) > MAX_CASE_CHARS:
            text = f"{text[:MAX_CASE_CHARS]}... ({len(text):,} characters)"
        count = 1 if hasattr(self.target, "make_case") else HYPOTHESIS_ROUND_CASES
        command = f"python tests/fuzz --only {self.name} --seed {self.seed} --first {number} --cases {count}"
        return f"{self.name}: {type(error).__name__}: {error}\nCase: {text}\nRepeat it with: {command}"

    @property
    def is_out_of_time(self) -> bool:
        """Whether the deadline has passed."""
        return time.perf_counter() > self.deadline


def _run_by_number(target_run: TargetRun, first: int, count: int) -> None:
    make_case: Callable[[Random], Any] = target_run.target.make_case
    for number in range(first, first + count):
        if target_run.is_out_of_time:
            break
        target_run.run_case(make_case(Random(f"{target_run.seed}/{number}")), number)


def _run_by_hypothesis(target_run: TargetRun, first: int, count: int) -> None:
    """Run cases in rounds, because hypothesis remembers all cases of one round."""
    for round_start in range(first, first + count, HYPOTHESIS_ROUND_CASES):
        if not target_run.is_out_of_time:
            left = first + count - round_start
            _run_hypothesis_round(target_run, round_start, min(HYPOTHESIS_ROUND_CASES, left))


def _run_hypothesis_round(target_run: TargetRun, number: int, count: int) -> None:
    """Run cases that share the number of their round; a failing case is shrunk before it is reported."""
    import hypothesis

    def run_case(case: Any) -> None:
        target_run.run_case(case, number)

    all_checks = list(hypothesis.HealthCheck)
    settings = hypothesis.settings(
        max_examples=count, database=None, deadline=None, suppress_health_check=all_checks
    )
    property_test = settings(hypothesis.given(case=target_run.target.STRATEGY)(run_case))
    hypothesis.seed(target_run.seed + number)(property_test)()


@contextmanager
def _use_folder(folder: Path) -> Iterator[Path]:
    yield folder


def _set_alarms(cpu: float, wall: float, hard_limit: float) -> None:
    """Set the alarms; the last has no handler, and ends a process whose C code never returns to Python."""
    signal.setitimer(signal.ITIMER_PROF, cpu)
    signal.setitimer(signal.ITIMER_REAL, wall)
    signal.setitimer(signal.ITIMER_VIRTUAL, hard_limit)


@contextmanager
def _alarm_handlers() -> Iterator[None]:
    def raise_timeout(number: int, frame: FrameType | None) -> None:
        limit = CPU_LIMIT_S if number == signal.SIGPROF else WALL_LIMIT_S
        raise CaseTimeout(f"more than {limit:g} s")

    before = {number: signal.signal(number, raise_timeout) for number in (signal.SIGPROF, signal.SIGALRM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _limit_memory() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (_read_memory("VmSize") + MEMORY_LIMIT_BYTES, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def _read_memory(name: str) -> int:
    """Read a memory size of this process from the kernel, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))


def _reset_peak() -> int:
    """Reset the peak memory of this process and return its current memory."""
    Path("/proc/self/clear_refs").write_text("5")
    return _read_memory("VmRSS")
