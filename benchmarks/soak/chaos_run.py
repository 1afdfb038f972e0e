"""A batch and single runs under attack, until all have come to their end."""

import os
import shutil
import subprocess
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from random import Random
from statistics import linear_regression

from benchmarks.soak import invariants
from benchmarks.soak.injections import FaultInjection, Target
from benchmarks.soak.scenario import Scenario
from benchmarks.soak.scripted_runs import TOY, ScriptedRun
from benchmarks.soak.testbed import Testbed

JOBS = 8  # runs at a time: many of them wait
TICK = 0.04  # seconds between two looks
STALL = 90.0  # seconds without any progress
MISSED = 5.0  # seconds after which a blow that finds nobody is spent
TRIES, MORE = 6, 50  # of a run while blows fall, and when none is left
PASSES = 6  # with nothing in its way, after which a batch must have come to its end
PATIENCE = 120  # seconds for a single run
WARM, SPAN = 200, 50  # runs after which memory should grow no more, and how many more must be seen


class ChaosRun:
    """What was done to the runs, and what was seen meanwhile."""

    def __init__(self, ground: Testbed, cast: Scenario, blows: list[FaultInjection], dice: Random) -> None:
        self.ground, self.cast, self.blows, self.dice = ground, cast, list(blows), dice
        self.quiet = not blows
        self.disk, self.log = cast.folder / "disk", cast.folder / "said.txt"
        self.out = self.disk / "batch"
        self.landed: Counter[str] = Counter()
        self.cut_off = 0
        self.slopes: list[float] = []
        self.descriptors: list[float] = []
        self.peak = 0.0
        self.broken: list[str] = []

    @property
    def said(self) -> str:
        """What our processes said, the batch last."""
        logs = sorted(self.cast.folder.glob("*.txt"), key=lambda path: path == self.log)
        return "\n".join(path.read_text(errors="replace") for path in logs)

    def batch(self) -> None:
        """Let it work, strike, and begin it again, until it has come to its end."""
        calm = code = 0
        while calm < PASSES:
            calm += not self.blows
            code = self._pass(TRIES if self.blows else MORE)
            if code == 0 and not self.blows:
                return
            begun = {path.parent for path in self.out.glob("*/run.json")}
            self.cut_off += len(begun - {path.parent for path in self.out.glob("*/result.json")})
            if code == 0:
                self.blows.clear()  # it was over before they fell
        self.broken.append(
            f"the batch does not come to its end: exit code {code}; it says: {self.said[-500:]}"
        )

    def _pass(self, tries: int) -> int:
        """One process of the batch."""
        plan = self.cast.plan(tries)
        process = self.ground.start("batch", plan, "--out", self.out, "--jobs", JOBS, log=self.log)
        victim, weights = (
            Target(process, self.disk, self.ground.group, self.dice),
            list[tuple[int, float, int]](),
        )
        come, since, due = (0, 0), time.monotonic(), 0.0
        try:
            while process.poll() is None:
                time.sleep(TICK)
                before, come = come, self._progress()
                since = time.monotonic() if come != before else since
                if time.monotonic() - since > STALL:
                    self.broken.append(f"the batch hangs: nothing has happened for {STALL:.0f} s")
                    break
                weights.append((come[0], _resident(process.pid), _open_files(process.pid)))
                due = self._strike(victim, come[0], due)
            return process.returncode or 0
        finally:
            process.kill()
            process.wait()
            self._weigh(weights)

    def _strike(self, victim: Target, ended: int, due: float) -> float:
        """The next blow, if its time has come; when that is, as far as is known."""
        if not self.blows or ended < self.blows[0].after:
            return 0.0
        now = time.monotonic()
        due = due or now + self.blows[0].delay
        if now < due:
            return due
        done = victim.inject(self.blows[0])
        if not done and now < due + MISSED:
            return due
        self.blows.pop(0)
        self.landed[done or "(found nobody)"] += 1
        return 0.0

    def _progress(self) -> tuple[int, int]:
        """How many runs have ended, and the bytes on record."""
        ended = size = 0
        for place in os.listdir(self.out) if self.out.is_dir() else ():  # noqa: PTH208 - many times a second
            ended += os.path.exists(f"{self.out}/{place}/result.json")  # noqa: PTH110
            for name in ("trace.jsonl", "model_calls.jsonl"):
                with suppress(OSError):
                    size += os.stat(f"{self.out}/{place}/{name}").st_size  # noqa: PTH116
        return ended, size

    def _weigh(self, weights: list[tuple[int, float, int]]) -> None:
        """How much the process grew, if it saw enough runs."""
        self.peak = max([self.peak, *(size for _, size, _ in weights)])
        last = len(self.cast.kinds) - JOBS  # after which there are fewer runs at a time
        warm = [each for each in weights if WARM <= each[0] <= last and each[1]]
        if self.quiet and warm and warm[-1][0] - warm[0][0] >= SPAN:
            runs, sizes, files = zip(*warm, strict=True)
            self.slopes.append(100 * linear_regression(runs, sizes).slope)
            self.descriptors.append(100 * linear_regression(runs, files).slope)

    def singles(self) -> None:
        """Runs with a process each, two at a time."""
        fates = [(part, self.dice.choice([0, 1, 1, 2]), self.dice.random()) for part in self.cast.singles]
        with ThreadPoolExecutor(2) as pool:
            for trouble in pool.map(self._single, fates):
                self.broken += trouble

    def _single(self, fate: tuple[ScriptedRun, int, float]) -> list[str]:
        """One run by itself: its harness is killed so many times, and then it is left in peace."""
        part, kills, chance = fate
        place, log, dice = (
            self.cast.folder / "single" / part.name,
            self.cast.folder / f"{part.name}.txt",
            Random(chance),
        )
        new = self.cast.command_of(part, place)
        for left in range(kills + 4, 0, -1):
            begun = (place / "run.json").is_file()
            if not begun:
                shutil.rmtree(place, ignore_errors=True)  # killed before it was a run
            process = self.ground.start(*(("resume", place) if begun else new), log=log)
            with suppress(subprocess.TimeoutExpired):
                process.wait(dice.uniform(0.3, 3.0) if left > 4 else PATIENCE)
            if process.poll() is None:
                self.landed["single run"] += 1
                self.cut_off += 1
            process.kill()
            process.wait()
            if invariants.is_finished(place):
                return []
        return [f"the run {part.name} does not come to its end: {log.read_text(errors='replace')[-300:]}"]

    def sweep(self) -> None:
        """One more harness, which removes what the dead left."""
        place = self.cast.folder / "single" / "sweeper"
        process = self.ground.start("run", TOY, "--agent", "baseline", "--out", place, log=self.log)
        if process.wait(PATIENCE) != 0:
            self.broken.append(f"a run after all others fails: {self.said[-500:]}")


def _resident(pid: int) -> float:
    """MB of memory."""
    with suppress(OSError, IndexError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096 / 2**20
    return 0.0


def _open_files(pid: int) -> int:
    with suppress(OSError):
        return len(os.listdir(f"/proc/{pid}/fd"))  # noqa: PTH208
    return 0
