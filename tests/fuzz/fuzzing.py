"""Gives a target case after case: each has its time and its memory, and may fail only as the target declares."""

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
COMPUTING, WAITING = 3.0, 60.0  # seconds of a case: of the processor, and of anybody's patience
MEMORY = 1 << 30  # bytes that a target may take, over what it has when it begins
SHOWN = 1000  # characters of a case
ROUND = 500  # cases of hypothesis


class Slow(BaseException):
    """A case took too long; no `except Exception` of a target can swallow it."""


class Defect(Exception):
    """A case that failed otherwise than declared."""


@dataclass(frozen=True)
class Figures:
    """What a target was put through."""

    target: str
    cases: int
    seconds: float
    slowest: float
    megabytes: float  # at most, over what it had when it began


def names() -> list[str]:
    """All the targets: a file each."""
    return sorted(path.stem for path in TARGETS.glob("[!_]*.py"))


def load(name: str) -> ModuleType:
    """A target: RAISES, WEIGHT (cases of a thousand), SHORT (cases in the default suite), attempt(case, thing), and

    make(random) for a case by its number, or STRATEGY for cases by hypothesis; perhaps opened(room) for the thing,
    and FOUND, cases that failed once.
    """
    return importlib.import_module(f"targets.{name}")


def fuzz(target: ModuleType, room: Path, seed: int, first: int, count: int, seconds: float = 1e9) -> Figures:
    """Go through what was found before, then cases first, first + 1, ... of a seed, until time is over."""
    opened = getattr(target, "opened", _room)
    with opened(room) as thing, _bounded_memory(), _alarms(), (room / "at").open("wb", buffering=0) as mark:
        before, begun = _reset_peak(), time.perf_counter()
        trial = Trial(target, thing, mark, seed, begun + seconds)
        for case in getattr(target, "FOUND", ()):
            trial.attempt(case, -1)
        (_by_hypothesis if hasattr(target, "STRATEGY") else _by_number)(trial, first, count)
        took = time.perf_counter() - begun
        return Figures(trial.name, trial.done, took, trial.slowest, (_memory("VmHWM") - before) / 2**20)


class Trial:
    """One target at work."""

    def __init__(self, target: ModuleType, thing: Any, mark: FileIO, seed: int, until: float) -> None:
        self.target, self.thing, self.seed, self.until = target, thing, seed, until
        self.name = target.__name__.rpartition(".")[2]
        self.done, self.slowest = 0, 0.0
        self._mark = mark

    def attempt(self, case: Any, number: int) -> None:
        """One case. Its number is on disk before: what kills the interpreter can be repeated too."""
        self._mark.seek(0)
        self._mark.write(b"%-20d" % number)
        begun = time.perf_counter()
        try:
            self._guarded(case)
        except self.target.RAISES:
            pass
        except (Exception, Slow) as error:
            raise Defect(self._told(case, number, error)) from error
        self.done += 1
        self.slowest = max(self.slowest, time.perf_counter() - begun)

    def _guarded(self, case: Any) -> None:
        _wind(COMPUTING, WAITING, 10 * COMPUTING)
        try:
            self.target.attempt(case, self.thing)
        finally:
            _wind(0, 0, 0)

    def _told(self, case: Any, number: int, error: BaseException) -> str:
        text = repr(case)
        text = text if len(text) <= SHOWN else f"{text[:SHOWN]}... ({len(text):,} characters)"
        count = 1 if hasattr(self.target, "make") else ROUND
        again = f"python tests/fuzz --only {self.name} --seed {self.seed} --first {number} --cases {count}"
        return f"{self.name}: {type(error).__name__}: {error}\nthe case: {text}\nagain: {again}"

    @property
    def over(self) -> bool:
        """Whether its time is over."""
        return time.perf_counter() > self.until


def _by_number(trial: Trial, first: int, count: int) -> None:
    make: Callable[[Random], Any] = trial.target.make
    for number in range(first, first + count):
        if trial.over:
            break
        trial.attempt(make(Random(f"{trial.seed}/{number}")), number)


def _by_hypothesis(trial: Trial, first: int, count: int) -> None:
    """In rounds, since hypothesis remembers all cases of one."""
    for begin in range(first, first + count, ROUND):
        if not trial.over:
            _round(trial, begin, min(ROUND, first + count - begin))


def _round(trial: Trial, number: int, count: int) -> None:
    """Cases that are known by the number of their round; a failing one is made smaller before it is told."""
    import hypothesis

    def attempt(case: Any) -> None:
        trial.attempt(case, number)

    everything = list(hypothesis.HealthCheck)
    rules = hypothesis.settings(
        max_examples=count, database=None, deadline=None, suppress_health_check=everything
    )
    hypothesis.seed(trial.seed + number)(rules(hypothesis.given(case=trial.target.STRATEGY)(attempt)))()


@contextmanager
def _room(room: Path) -> Iterator[Path]:
    yield room


def _wind(computing: float, waiting: float, deaf: float) -> None:
    """Set the alarms; nobody handles the last, which ends a process that is too deep in C to hear the first."""
    signal.setitimer(signal.ITIMER_PROF, computing)
    signal.setitimer(signal.ITIMER_REAL, waiting)
    signal.setitimer(signal.ITIMER_VIRTUAL, deaf)


@contextmanager
def _alarms() -> Iterator[None]:
    def ring(number: int, frame: FrameType | None) -> None:
        raise Slow(f"more than {COMPUTING if number == signal.SIGPROF else WAITING:g} s")

    before = {each: signal.signal(each, ring) for each in (signal.SIGPROF, signal.SIGALRM)}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


@contextmanager
def _bounded_memory() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (_memory("VmSize") + MEMORY, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def _memory(name: str) -> int:
    """One of the sizes that the kernel keeps of this process, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))


def _reset_peak() -> int:
    """What there is now; the peak begins here."""
    Path("/proc/self/clear_refs").write_text("5")
    return _memory("VmRSS")
