"""One round of a soak: a batch and a few single runs, the injected faults, and the checks afterwards."""

import re
import shutil
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from random import Random

from benchmarks.soak import injections, invariants
from benchmarks.soak.chaos_run import ChaosRun
from benchmarks.soak.scenario import Scenario
from benchmarks.soak.scripted_runs import ScriptedRun
from benchmarks.soak.soak_report import SoakReport
from benchmarks.soak.testbed import Testbed

# The kinds of faults of a round; rounds take these sets in turn.
INJECTION_SETS: tuple[tuple[str, ...], ...] = (
    (),
    ("batch", "worker", "grader", "sandbox"),
    ("files", "processes"),
    ("stop", "batch"),
    ("disk", "disk", "batch"),
    ("worker", "grader", "sandbox"),
)
TRACEBACK = re.compile(r"^Traceback \(most recent call last\):\n(.*\n){0,20}", re.MULTILINE)
RESOURCE_KINDS = {"files", "processes", "disk"}  # the number of faults they cause cannot be predicted


class Round:
    """One round; everything but the exact timing is drawn from the seed and the number of the round."""

    def __init__(self, testbed: Testbed, seed: int, number: int, size: int) -> None:
        self.testbed, self.number = testbed, number
        random = Random(f"{seed} {number}")
        supported = injections.supported_kinds(testbed.group)
        self.kinds = tuple(kind for kind in INJECTION_SETS[number % len(INJECTION_SETS)] if kind in supported)
        # A round without faults is long, because a process grows until it has seen every kind of run.
        size = size if self.kinds else 24 * size
        self.folder = testbed.folder / f"round-{number:04d}"
        self.scenario = Scenario(self.folder, random, size)
        drawn = injections.draw_injections(random, self.kinds, size) if self.kinds else []
        self.chaos = ChaosRun(testbed, self.scenario, drawn, random)
        self.failed_checks = self.chaos.failed_checks
        self.faults: Counter[str] = Counter()

    def run(self) -> SoakReport:
        """Run the round and check it; its folder is kept only if a check failed."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.chaos.disk.mkdir(parents=True)
        started, processes = time.monotonic(), self.testbed.started_processes
        with ExitStack() as stack:
            if "disk" in self.kinds:
                stack.enter_context(injections.mount_disk(self.chaos.disk))
            self.scenario.write_files()
            with self.scenario.provider:
                self.chaos.run_batch()
                self.chaos.run_singles()
            self.chaos.run_cleanup()
            report = self._check_runs()
            if self.failed_checks and "disk" in self.kinds:
                shutil.copytree(self.chaos.disk, self.folder / "kept", symlinks=True)
        leftovers = self.testbed.leftover_check.find_leftovers(self.folder)
        self.failed_checks += [f"left behind: {leftover}" for leftover in leftovers]
        if not self.failed_checks:
            shutil.rmtree(self.folder)
        title = f"round {self.number} ({', '.join(self.kinds) or 'no faults'})"
        return report.replace(
            seconds=time.monotonic() - started,
            processes=self.testbed.started_processes - processes,
            failed_checks=tuple(f"{title}: {failure}" for failure in self.failed_checks),
        )

    def _check_runs(self) -> SoakReport:
        """Check every run and add up the numbers."""
        runs = list(self.scenario.find_runs())
        checked = [self._check_run(folder, expected) for folder, expected in runs]
        steps, calls, altered, repeated = map(sum, zip(*checked, strict=True))
        self._check_totals(len(runs), altered)
        if traceback := TRACEBACK.search(self.chaos.output):
            self.failed_checks.append(f"a traceback: {traceback[0]}")
        replies_per_step = [replies for run in self.scenario.runs.values() for replies in run.replies]
        return SoakReport(
            rounds=1,
            runs=Counter(expected.behavior for _, expected in runs),
            injections=self.chaos.injected,
            provider_failures=self.scenario.provider.failure_counts,
            bad_replies=sum(len(replies) - 1 for replies in replies_per_step),
            steps=steps,
            model_calls=calls,
            interrupted_runs=self.chaos.interrupted_runs,
            faults=self.faults,
            altered_scores=altered,
            repeated_replies=repeated,
            memory_growth_mb=tuple(self.chaos.memory_growth_mb),
            file_growth=tuple(self.chaos.file_growth),
            peak_mb=self.chaos.peak_mb,
        )

    def _check_run(self, folder: Path, expected: ScriptedRun) -> tuple[int, int, int, int]:
        """Check one run; return its steps, model replies, whether its score is wrong, and lost replies."""
        faults = invariants.list_faults(folder)
        self.faults.update(faults)
        if problems := list(invariants.check_run(folder, expected, self.testbed.setup.data)):
            self.failed_checks += [f"{folder.name} ({expected.behavior}): {problem}" for problem in problems]
            return 0, 0, 0, 0
        steps, calls, score = invariants.count_steps_and_calls(folder)
        lost = 0
        if expected.name in self.scenario.provider.runs:
            lost = self.scenario.provider.reply_counts[expected.name] - calls
            # On a full disk, even the fault cannot be recorded.
            unrecorded = sum(self.chaos.injected[kind] for kind in ("batch", "stop again", "disk"))
            if not 0 <= lost <= unrecorded + len(faults):
                self.failed_checks.append(
                    f"{folder.name}: {lost} model replies were lost without a cause, or made up"
                )
        return steps, calls, score != expected.score, lost

    def _check_totals(self, runs: int, altered: int) -> None:
        """Check that no run is missing, and that every fault and wrong score is explained by an injection."""
        expected = self.scenario.count + 1
        if runs != expected:
            self.failed_checks.append(f"there are {runs} runs instead of {expected}")
        if RESOURCE_KINDS & set(self.kinds):
            return
        injected, faults = self.chaos.injected, self.faults.total()
        if altered > injected["sandbox"]:
            self.failed_checks.append(
                f"{altered} scores are wrong, but only {injected['sandbox']} scripts were killed"
            )
        refused = self.scenario.provider.failure_counts["refused"]
        causes = injected["sandbox"] + injected["worker"] + injected["grader"] + refused
        if faults > causes:
            self.failed_checks.append(f"{faults} faults, but only {causes} causes")
