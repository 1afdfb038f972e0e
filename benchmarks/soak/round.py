"""One round of a soak: a batch and a few single runs, what is done to them, and whether all promises held."""

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

THEMES: tuple[tuple[str, ...], ...] = (  # what may be done in a round, in turn
    (),
    ("batch", "worker", "grader", "sandbox"),
    ("files", "processes"),
    ("stop", "batch"),
    ("disk", "disk", "batch"),
    ("worker", "grader", "sandbox"),
)
TRACEBACK = re.compile(r"^Traceback \(most recent call last\):\n(.*\n){0,20}", re.MULTILINE)
SCARCE = {"files", "processes", "disk"}  # of which faults and scores cannot be counted out


class Round:
    """Everything is drawn from the seed and the number; only the moments are the machine's."""

    def __init__(self, ground: Testbed, seed: int, number: int, size: int) -> None:
        self.ground, self.number = ground, number
        dice = Random(f"{seed} {number}")
        able = injections.supported_kinds(ground.group)
        self.kinds = tuple(kind for kind in THEMES[number % len(THEMES)] if kind in able)
        size = size if self.kinds else 24 * size  # a process grows until it has seen some of everything
        self.folder = ground.folder / f"round-{number:04d}"
        self.cast = Scenario(self.folder, dice, size)
        drawn = injections.draw_injections(dice, self.kinds, size) if self.kinds else []
        self.siege = ChaosRun(ground, self.cast, drawn, dice)
        self.broken = self.siege.broken
        self.faults: Counter[str] = Counter()

    def play(self) -> SoakReport:
        """From the first process to the account; the folder is kept only if a promise was broken."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.siege.disk.mkdir(parents=True)
        started, processes = time.monotonic(), self.ground.started
        with ExitStack() as stack:
            if "disk" in self.kinds:
                stack.enter_context(injections.mount_disk(self.siege.disk))
            self.cast.write()
            with self.cast.model:
                self.siege.batch()
                self.siege.singles()
            self.siege.sweep()
            tally = self._account()
            if self.broken and "disk" in self.kinds:
                shutil.copytree(self.siege.disk, self.folder / "kept", symlinks=True)
        self.broken += [f"left behind: {each}" for each in self.ground.before.find_leftovers(self.folder)]
        if not self.broken:
            shutil.rmtree(self.folder)
        return tally.replace(
            seconds=time.monotonic() - started,
            processes=self.ground.started - processes,
            broken=tuple(
                f"round {self.number} ({', '.join(self.kinds) or 'calm'}): {each}" for each in self.broken
            ),
        )

    def _account(self) -> SoakReport:
        """Look at every run, and count."""
        runs = list(self.cast.runs())
        found = [self._examined(place, part) for place, part in runs]
        steps, calls, touched, repaid = map(sum, zip(*found, strict=True))
        self._judge(len(runs), touched)
        if traceback := TRACEBACK.search(self.siege.said):
            self.broken.append(f"a traceback: {traceback[0]}")
        return SoakReport(
            rounds=1,
            runs=Counter(part.plot for _, part in runs),
            blows=self.siege.landed,
            failures=self.cast.model.failed,
            bad_replies=sum(
                len(replies) - 1 for part in self.cast.parts.values() for replies in part.replies
            ),
            steps=steps,
            model_calls=calls,
            cut_off=self.siege.cut_off,
            faults=self.faults,
            touched=touched,
            repaid=repaid,
            slopes=tuple(self.siege.slopes),
            descriptors=tuple(self.siege.descriptors),
            peak=self.siege.peak,
        )

    def _examined(self, place: Path, part: ScriptedRun) -> tuple[int, int, int, int]:
        """Of one run: steps, answers of its model, whether its score is not what it should be, answers that it lost."""
        faults = invariants.list_faults(place)
        self.faults.update(faults)
        if troubles := list(invariants.check_run(place, part, self.ground.setup.data)):
            self.broken += [f"{place.name} ({part.plot}): {each}" for each in troubles]
            return 0, 0, 0, 0
        steps, calls, score = invariants.count_steps_and_calls(place)
        lost = 0
        if part.name in self.cast.model.parts:
            lost = self.cast.model.answered[part.name] - calls
            # A full disk takes even the note of the fault.
            left = sum(self.siege.landed[blow] for blow in ("batch", "stop again", "disk"))
            if not 0 <= lost <= left + len(faults):
                self.broken.append(
                    f"{place.name}: {lost} answers of the model were lost without a cause, or made up"
                )
        return steps, calls, score != part.score, lost

    def _judge(self, runs: int, touched: int) -> None:
        """Nothing is missing, and what went wrong can be laid to what was done."""
        wanted = self.cast.count + 1
        if runs != wanted:
            self.broken.append(f"there are {runs} runs instead of {wanted}")
        if SCARCE & set(self.kinds):
            return
        landed, faults = self.siege.landed, self.faults.total()
        if touched > landed["sandbox"]:
            self.broken.append(
                f"{touched} scores are not what they should be, and {landed['sandbox']} scripts were hit"
            )
        causes = landed["sandbox"] + landed["worker"] + landed["grader"] + self.cast.model.failed["refused"]
        if faults > causes:
            self.broken.append(f"{faults} faults, and only {causes} causes of one")
