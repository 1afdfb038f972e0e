"""Runs a batch and single runs while faults are injected, until all runs have finished."""

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

JOBS = 8  # concurrent runs; many of them wait
POLL_INTERVAL_S = 0.04
STALL_TIMEOUT_S = 90.0  # without any progress
INJECTION_TIMEOUT_S = 5.0  # after which an injection that finds no process is dropped
TRIES, FINAL_TRIES = 6, 50  # attempts per run while faults are injected, and afterwards
MAX_UNDISTURBED_PASSES = 6  # after which a batch must have finished
SINGLE_RUN_TIMEOUT_S = 120
WARMUP_RUNS, MIN_MEASURED_RUNS = 200, 50  # memory should stop growing after the former


class ChaosRun:
    """The faults injected into the runs of a round, and what was observed meanwhile."""

    def __init__(
        self, testbed: Testbed, scenario: Scenario, injections: list[FaultInjection], random: Random
    ) -> None:
        self.testbed, self.scenario, self.random = testbed, scenario, random
        self.pending = list(injections)
        self.undisturbed = not injections
        self.disk, self.log = scenario.folder / "disk", scenario.folder / "output.txt"
        self.out = self.disk / "batch"
        self.injected: Counter[str] = Counter()
        self.interrupted_runs = 0
        self.memory_growth_mb: list[float] = []
        self.file_growth: list[float] = []
        self.peak_mb = 0.0
        self.failed_checks: list[str] = []

    @property
    def output(self) -> str:
        """The output of all processes, the batch last."""
        logs = sorted(self.scenario.folder.glob("*.txt"), key=lambda path: path == self.log)
        return "\n".join(path.read_text(errors="replace") for path in logs)

    def run_batch(self) -> None:
        """Run the batch, inject faults, and restart it until it has finished."""
        undisturbed_passes = code = 0
        while undisturbed_passes < MAX_UNDISTURBED_PASSES:
            undisturbed_passes += not self.pending
            code = self._run_pass(TRIES if self.pending else FINAL_TRIES)
            if code == 0 and not self.pending:
                return
            started = {path.parent for path in self.out.glob("*/run.json")}
            self.interrupted_runs += len(started - {path.parent for path in self.out.glob("*/result.json")})
            if code == 0:
                self.pending.clear()  # the batch finished before they were due
        self.failed_checks.append(
            f"the batch does not finish: exit code {code}; its output: {self.output[-500:]}"
        )

    def _run_pass(self, tries: int) -> int:
        """Run one process of the batch and return its exit code."""
        plan = self.scenario.write_plan(tries)
        process = self.testbed.start("batch", plan, "--out", self.out, "--jobs", JOBS, log=self.log)
        target = Target(process, self.disk, self.testbed.group, self.random)
        usage = list[tuple[int, float, int]]()
        progress, last_progress, due = (0, 0), time.monotonic(), 0.0
        try:
            while process.poll() is None:
                time.sleep(POLL_INTERVAL_S)
                before, progress = progress, self._measure_progress()
                last_progress = time.monotonic() if progress != before else last_progress
                if time.monotonic() - last_progress > STALL_TIMEOUT_S:
                    self.failed_checks.append(f"the batch hangs: no progress for {STALL_TIMEOUT_S:.0f} s")
                    break
                usage.append((progress[0], _resident_mb(process.pid), _count_open_files(process.pid)))
                due = self._inject_next(target, progress[0], due)
            return process.returncode or 0
        finally:
            process.kill()
            process.wait()
            self._measure_growth(usage)

    def _inject_next(self, target: Target, ended_runs: int, due: float) -> float:
        """Inject the next fault if it is due; return when it is due, or 0 if that is not known yet."""
        if not self.pending or ended_runs < self.pending[0].after:
            return 0.0
        now = time.monotonic()
        due = due or now + self.pending[0].delay
        if now < due:
            return due
        done = target.inject(self.pending[0])
        if not done and now < due + INJECTION_TIMEOUT_S:
            return due
        self.pending.pop(0)
        self.injected[done or "(no such process)"] += 1
        return 0.0

    def _measure_progress(self) -> tuple[int, int]:
        """The number of ended runs, and the bytes recorded so far."""
        ended = size = 0
        for name in os.listdir(self.out) if self.out.is_dir() else ():  # noqa: PTH208 - called many times a second
            ended += os.path.exists(f"{self.out}/{name}/result.json")  # noqa: PTH110
            for journal in ("trace.jsonl", "model_calls.jsonl"):
                with suppress(OSError):
                    size += os.stat(f"{self.out}/{name}/{journal}").st_size  # noqa: PTH116
        return ended, size

    def _measure_growth(self, usage: list[tuple[int, float, int]]) -> None:
        """Measure how much the process grew, if it ran enough runs."""
        self.peak_mb = max([self.peak_mb, *(size for _, size, _ in usage)])
        last = len(self.scenario.agent_kinds) - JOBS  # after it, fewer runs are concurrent
        warm = [sample for sample in usage if WARMUP_RUNS <= sample[0] <= last and sample[1]]
        if self.undisturbed and warm and warm[-1][0] - warm[0][0] >= MIN_MEASURED_RUNS:
            runs, sizes, files = zip(*warm, strict=True)
            self.memory_growth_mb.append(100 * linear_regression(runs, sizes).slope)
            self.file_growth.append(100 * linear_regression(runs, files).slope)

    def run_singles(self) -> None:
        """Run the single runs, each in its own process, two at a time."""
        cases = [
            (run, self.random.choice([0, 1, 1, 2]), self.random.random()) for run in self.scenario.single_runs
        ]
        with ThreadPoolExecutor(2) as pool:
            for problems in pool.map(self._run_single, cases):
                self.failed_checks += problems

    def _run_single(self, case: tuple[ScriptedRun, int, float]) -> list[str]:
        """Kill the harness of a single run a few times, then let it finish."""
        run, kills, seed = case
        folder, log = self.scenario.folder / "single" / run.name, self.scenario.folder / f"{run.name}.txt"
        random = Random(seed)
        new = self.scenario.single_run_command(run, folder)
        for left in range(kills + 4, 0, -1):
            started = (folder / "run.json").is_file()
            if not started:
                shutil.rmtree(folder, ignore_errors=True)  # killed before there was a run
            process = self.testbed.start(*(("resume", folder) if started else new), log=log)
            with suppress(subprocess.TimeoutExpired):
                process.wait(random.uniform(0.3, 3.0) if left > 4 else SINGLE_RUN_TIMEOUT_S)
            if process.poll() is None:
                self.injected["single run"] += 1
                self.interrupted_runs += 1
            process.kill()
            process.wait()
            if invariants.is_finished(folder):
                return []
        return [f"the run {run.name} does not finish: {log.read_text(errors='replace')[-300:]}"]

    def run_cleanup(self) -> None:
        """Run one more harness, which removes what the killed ones left behind."""
        folder = self.scenario.folder / "single" / "cleanup"
        process = self.testbed.start("run", TOY, "--agent", "baseline", "--out", folder, log=self.log)
        if process.wait(SINGLE_RUN_TIMEOUT_S) != 0:
            self.failed_checks.append(f"the run after all others fails: {self.output[-500:]}")


def _resident_mb(pid: int) -> float:
    with suppress(OSError, IndexError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096 / 2**20
    return 0.0


def _count_open_files(pid: int) -> int:
    with suppress(OSError):
        return len(os.listdir(f"/proc/{pid}/fd"))  # noqa: PTH208
    return 0
