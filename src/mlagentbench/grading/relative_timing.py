"""Times a submission relative to the starter: both answer the same questions, one paused at a time.

The score is the median ratio of neighbouring times for each question, weighted by the starter's times: what
disturbs the machine for a second disturbs both neighbours. A score that is still uncertain after all rounds
is made worse by its uncertainty, so neither luck nor disturbing the machine pays off.
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
from mlagentbench.levels import MIN_IMPROVEMENT

SecondsArray = np.ndarray[Any, np.dtype[np.float64]]
# Asks a program one question. Gets the program, whether it is the starter, and the time limit in seconds;
# returns the seconds that the answer took.
Question = Callable[[Program, bool, float], float]

MAX_SLOWDOWN, GRACE_S = 5, 3.0  # an answer may take 5 times as long as the starter's, plus 3 seconds
STARTER_TIMEOUT_S = 600.0  # per answer
PENALTY_STANDARD_ERRORS = 2  # by which an uncertain score is made worse


@dataclass(frozen=True)
class SpeedComparison:
    """A comparison of the speed of two programs.

    Attributes:
        starter: The folder of the task's starter.
        submission: The folder of the submission.
        start_program: Starts the program in a folder.
        draw_questions: Draws the questions of one round: the same number, order and kinds in every round,
            with inputs that were never used before.
        warmup_questions: How many questions at the beginning of each round are not timed.
        reuse_programs: Whether programs keep running from round to round, because they take long to start; by
            default they are started anew in every round.
        max_relative_error: The standard error, relative to the score, at which the score counts as certain.
    """

    starter: Path
    submission: Path
    start_program: Callable[[Path], Program]
    draw_questions: Callable[[], Sequence[Question]]
    warmup_questions: int = 0
    reuse_programs: bool = False
    max_relative_error: float = 0.015

    def run(self, min_rounds: int, max_rounds: int) -> float:
        """Time both programs until the score is certain.

        Args:
            min_rounds: The smallest number of rounds.
            max_rounds: The largest number of rounds.

        Returns:
            The submission's time as a fraction of the starter's: below 1 is faster.

        Raises:
            InvalidSubmission: If the submission fails, is far slower than the starter, or runs while it is
                paused.
            RuntimeError: If the starter itself fails.
        """
        orders = [self.starter, self.submission], [self.submission, self.starter]  # which is first may matter
        rounds: list[SecondsArray] = []
        with ExitStack() as stack:
            running = self._start_programs(orders[0], stack) if self.reuse_programs else {}
            starter_seconds: dict[int, float] = {}  # by question; they limit the submission's time
            if not running:
                self._time_round([self.starter], running, starter_seconds)  # warms up the machine
            while len(rounds) < min_rounds or (
                len(rounds) < max_rounds and is_uncertain(rounds, self.max_relative_error)
            ):
                rounds += [self._time_round(order, running, starter_seconds) for order in orders]
        score, error = score_and_error(rounds)
        penalty = PENALTY_STANDARD_ERRORS * error if is_uncertain(rounds, self.max_relative_error) else 0.0
        return score * math.exp(penalty)

    def _time_round(
        self, order: list[Path], running: Mapping[Path, Program], starter_seconds: dict[int, float]
    ) -> SecondsArray:
        """Ask each question to both programs in turn; return the times of the timed questions."""
        rows = []
        with ExitStack() as stack:
            programs = running or self._start_programs(order, stack)
            for number, question in enumerate(self.draw_questions()):
                seconds = {self.submission: math.nan}
                for folder in order:
                    is_starter = folder == self.starter
                    limit = (
                        STARTER_TIMEOUT_S if is_starter else MAX_SLOWDOWN * starter_seconds[number] + GRACE_S
                    )
                    seconds[folder] = self._time_question(folder, programs, question, limit)
                    if is_starter:
                        starter_seconds[number] = seconds[folder]
                        self._reject_if_ran_while_paused(programs)
                rows.append([seconds[self.submission], seconds[self.starter]])
        return np.array(rows[self.warmup_questions :])

    def _start_programs(self, folders: list[Path], stack: ExitStack) -> dict[Path, Program]:
        programs: dict[Path, Program] = {}
        for folder in folders:
            with self._attribute_errors(folder, programs):
                programs[folder] = stack.enter_context(self.start_program(folder))
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
        """Treat an error of the starter as a fault, unless the submission ran meanwhile and disturbed it."""
        try:
            yield
        except InvalidSubmission as error:
            if folder == self.starter:
                self._reject_if_ran_while_paused(programs)
                raise RuntimeError(f"the starter itself failed: {error}") from error
            raise


def time_shares_and_ratios(rounds: list[SecondsArray]) -> tuple[SecondsArray, SecondsArray]:
    """Return each question's share of the starter's time, and submission/starter by round and question.

    A round has one row per question: the submission's seconds, then the starter's.
    """
    seconds = np.array(rounds)
    typical = np.median(seconds[:, :, 1], axis=0)
    return typical / typical.sum(), seconds[:, :, 0] / seconds[:, :, 1]


def score_and_error(rounds: list[SecondsArray]) -> tuple[float, float]:
    """Return the submission's time as a fraction of the starter's, and the standard error of its log."""
    shares, ratios = time_shares_and_ratios(rounds)
    error = 1.25 * np.linalg.norm(shares * np.log(ratios).std(axis=0, ddof=1)) / math.sqrt(len(rounds))
    return float(shares @ np.median(ratios, axis=0)), float(error)


def is_uncertain(rounds: list[SecondsArray], max_relative_error: float) -> bool:
    """Tell whether more rounds are needed.

    The score is certain if its standard error is at most `max_relative_error`, or small compared with the
    distance of the score from 1 (no change) and from the threshold of success.
    """
    score, error = score_and_error(rounds)
    distance = min(abs(math.log(score)) / 6, abs(math.log(score / (1 - MIN_IMPROVEMENT))) / 3)
    return error > max(max_relative_error, distance)
