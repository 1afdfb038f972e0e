"""Times a submission against the starter, side by side: the same questions in turn, one frozen while the other runs.

The score is, for each question, the median of the ratios of neighbours, weighted by the starter's times: what disturbs
the machine for a second disturbs both neighbours. Where the score is in doubt after all rounds, it is what the doubt
leaves of it: whoever is lucky, or makes the machine restless, gains nothing.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mlagentbench.errors import InvalidSubmission
from mlagentbench.grading.program import Program
from mlagentbench.grading.verdict import MIN_IMPROVEMENT

SecondsArray = np.ndarray[Any, np.dtype[np.float64]]
Question = Callable[
    [Program, bool, float], float
]  # program, whether it is the starter, limit: the seconds it took

MAX_SLOWDOWN, GRACE_S = 5, 3.0  # an answer may take 5 times as long as the starter's and 3 seconds
STARTER_TIMEOUT_S = 600.0  # seconds that the starter may take for an answer
PENALTY_STANDARD_ERRORS = 2  # standard errors


@dataclass(frozen=True)
class Race:
    """Who runs against whom, and what they are asked.

    `program` starts what lies in a folder. `questions` makes those of one round: always as many, in the same order, of
    the same kinds, and never seen before. The first `untimed` ones of a round only warm up. Programs are new in every
    round, unless they are `kept` because it takes them long to start. `exact` is the standard error, as a share of the
    score, with which the score is known well.
    """

    starter: Path
    submission: Path
    program: Callable[[Path], Program]
    questions: Callable[[], Sequence[Question]]
    untimed: int = 0
    kept: bool = False
    exact: float = 0.015

    def run(self, least: int, most: int) -> float:
        """The submission's time relative to the starter's, from `least` rounds, or up to `most` until it is known."""
        orders = [self.starter, self.submission], [self.submission, self.starter]  # who is first may matter
        rounds: list[SecondsArray] = []
        with ExitStack() as stack:
            kept = self._start_programs(orders[0], stack) if self.kept else {}
            known: dict[
                int, float
            ] = {}  # what the starter last took for each question, which limits the submission
            if not kept:
                self._time_round([self.starter], kept, known)  # warms the machine up
            while len(rounds) < least or (len(rounds) < most and is_uncertain(rounds, self.exact)):
                rounds += [self._time_round(order, kept, known) for order in orders]
        score, error = score_and_error(rounds)
        return (
            score * math.exp(PENALTY_STANDARD_ERRORS * error) if is_uncertain(rounds, self.exact) else score
        )

    def _time_round(
        self, order: list[Path], kept: Mapping[Path, Program], known: dict[int, float]
    ) -> SecondsArray:
        """How long the submission and the starter take for each timed question, which they are asked in turn."""
        rows = []
        with ExitStack() as stack:
            programs = kept or self._start_programs(order, stack)
            for number, question in enumerate(self.questions()):
                seconds = {self.submission: math.nan}
                for folder in order:
                    limit = (
                        STARTER_TIMEOUT_S
                        if folder == self.starter
                        else MAX_SLOWDOWN * known[number] + GRACE_S
                    )
                    seconds[folder] = self._time_question(folder, programs, question, limit)
                    if folder == self.starter:
                        known[number] = seconds[folder]
                        self._reject_if_ran_while_paused(programs)
                rows.append([seconds[self.submission], seconds[self.starter]])
        return np.array(rows[self.untimed :])

    def _start_programs(self, folders: list[Path], stack: ExitStack) -> dict[Path, Program]:
        programs: dict[Path, Program] = {}
        for folder in folders:
            with self._attribute_errors(folder, programs):
                programs[folder] = stack.enter_context(self.program(folder))
            programs[folder].pause()
        return programs

    def _time_question(
        self, folder: Path, programs: Mapping[Path, Program], question: Question, limit: float
    ) -> float:
        with self._attribute_errors(folder, programs):
            seconds = question(programs[folder], folder == self.starter, limit)
        programs[folder].pause()
        return seconds

    def _reject_if_ran_while_paused(self, programs: Mapping[Path, Program]) -> None:
        if self.submission in programs:
            programs[self.submission].reject_if_ran_while_paused()

    @contextmanager
    def _attribute_errors(self, folder: Path, programs: Mapping[Path, Program]) -> Iterator[None]:
        """What goes wrong with the starter is our fault, unless the submission was awake and in its way."""
        try:
            yield
        except InvalidSubmission as error:
            if folder == self.starter:
                self._reject_if_ran_while_paused(programs)
                raise RuntimeError(f"the starter itself failed: {error}") from error
            raise


def time_shares_and_ratios(rounds: list[SecondsArray]) -> tuple[SecondsArray, SecondsArray]:
    """Which part of the starter's time each question takes, and by round and question what the submission takes of it.

    A round holds a row for each question: the submission's seconds, then the starter's.
    """
    seconds = np.array(rounds)
    typical = np.median(seconds[:, :, 1], axis=0)
    return typical / typical.sum(), seconds[:, :, 0] / seconds[:, :, 1]


def score_and_error(rounds: list[SecondsArray]) -> tuple[float, float]:
    """What the submission takes of the starter's time, and the standard error of its logarithm."""
    shares, ratios = time_shares_and_ratios(rounds)
    error = 1.25 * np.linalg.norm(shares * np.log(ratios).std(axis=0, ddof=1)) / math.sqrt(len(rounds))
    return float(shares @ np.median(ratios, axis=0)), float(error)


def is_uncertain(rounds: list[SecondsArray], exact: float) -> bool:
    """Whether the score is not known well yet: as exactly as asked for, or so that its side of 1 and of success is."""
    score, error = score_and_error(rounds)
    apart = min(abs(math.log(score)) / 6, abs(math.log(score / (1 - MIN_IMPROVEMENT))) / 3)
    return error > max(exact, apart)
