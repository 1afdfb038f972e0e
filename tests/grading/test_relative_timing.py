"""Timing of sleeping programs in real sandboxes: it is fair, and failures are attributed correctly."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from mlagentbench.audit.attacks.self_resuming import ARM_SIGNAL_CODE
from mlagentbench.errors import InvalidSubmission
from mlagentbench.grading import relative_timing
from mlagentbench.grading.program import Program
from mlagentbench.grading.relative_timing import (
    SpeedComparison,
    is_uncertain,
    score_and_error,
    time_shares_and_ratios,
)

ONE = np.array(1.0)
ANY_ERROR = 9.0  # accepts any noise of the machine
SLEEPS = "import time\ndef answer(x):\n    time.sleep({}); return x"


@pytest.fixture(autouse=True)
def grading(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLAGENTBENCH_GRADING", json.dumps({"runtime": "tabular", "sandbox": "bwrap"}))


@pytest.fixture
def make_comparison(tmp_path: Path) -> Callable[..., tuple[SpeedComparison, list]]:
    """Makes a comparison of two sources, and a list that records each program asked and its answer."""

    def make(
        starter: str, submission: str, questions: int = 1, **options: object
    ) -> tuple[SpeedComparison, list]:
        folders = [tmp_path / "starter", tmp_path / "submission"]
        for folder, source in zip(folders, (starter, submission), strict=True):
            folder.mkdir(mode=0o755)
            (folder / "code.py").write_text(source)
        answers: list[tuple[str, float]] = []

        def question(program: Program, original: bool, limit: float) -> float:
            (answer,), seconds = program.ask(ONE, timeout_s=limit, max_bytes=100)
            answers.append(("starter" if original else "submission", float(answer)))
            return seconds

        def program(folder: Path) -> Program:
            return Program(folder, "code", "answer", start_timeout_s=20)

        return SpeedComparison(*folders, program, lambda: [question] * questions, **options), answers

    return make


@pytest.mark.parametrize("reused", [False, True])
def test_a_program_that_takes_a_fifth_of_the_time_scores_about_a_fifth(make_comparison, reused: bool) -> None:
    comparison, _ = make_comparison(
        SLEEPS.format(0.25), SLEEPS.format(0.05), reuse_programs=reused, max_relative_error=ANY_ERROR
    )
    assert 0.15 < comparison.run(2, 2) < 0.4


def test_the_order_alternates_and_the_starter_is_first(make_comparison) -> None:
    comparison, answers = make_comparison(SLEEPS.format(0), SLEEPS.format(0), reuse_programs=True)
    comparison.run(4, 4)
    assert [name for name, _ in answers] == ["starter", "submission", "submission", "starter"] * 2


COUNTS = "n = 0\ndef answer(x):\n    global n; n += 1; return n"


def test_programs_are_restarted_in_every_round_and_the_starter_warms_up_the_machine(make_comparison) -> None:
    comparison, answers = make_comparison(COUNTS, COUNTS)
    comparison.run(2, 2)
    assert answers == [("starter", 1), ("starter", 1), ("submission", 1), ("submission", 1), ("starter", 1)]


def test_reused_programs_keep_their_state_from_round_to_round(make_comparison) -> None:
    comparison, answers = make_comparison(COUNTS, COUNTS, reuse_programs=True)
    comparison.run(2, 2)
    assert answers == [("starter", 1), ("submission", 1), ("submission", 2), ("starter", 2)]


def test_the_first_questions_of_a_round_may_be_a_warmup(make_comparison) -> None:
    slow_at_first = "import time\nn = 0\ndef answer(x):\n"
    slow_at_first += "    global n; n += 1; time.sleep(0.5 if n == 1 else 0.05); return x"
    comparison, _ = make_comparison(
        SLEEPS.format(0.05), slow_at_first, questions=2, warmup_questions=1, max_relative_error=ANY_ERROR
    )
    assert 0.5 < comparison.run(2, 2) < 2


@pytest.mark.parametrize("reused", [False, True])
def test_a_program_that_is_not_asked_is_paused(make_comparison, reused: bool) -> None:
    ticks = "import threading, time\nn = 0\ndef tick():\n    global n\n"
    ticks += "    while True:\n        time.sleep(0.001); n += 1\n"
    ticks += "threading.Thread(target=tick, daemon=True).start()\ndef answer(x):\n    return n"
    comparison, answers = make_comparison(SLEEPS.format(0.3), ticks, questions=2, reuse_programs=reused)
    comparison.run(2, 2)
    counts = [count for name, count in answers if name == "submission"]
    assert len(counts) == 4 and counts[1] - counts[0] < 150 and counts[3] - counts[2] < 150


RESUMES_ITSELF = f"""
{ARM_SIGNAL_CODE}
import threading
def spin():
    while True: pass
threading.Thread(target=spin, daemon=True).start()
def answer(x):
    arm(100)
    return x
"""


@pytest.mark.parametrize("reused", [False, True])
def test_a_submission_that_resumes_itself_while_the_starter_is_timed_is_rejected(
    make_comparison, reused: bool
) -> None:
    comparison, answers = make_comparison(
        SLEEPS.format(0.6), RESUMES_ITSELF, questions=2, reuse_programs=reused
    )
    with pytest.raises(InvalidSubmission, match="resumed itself while another program was timed"):
        comparison.run(2, 2)
    assert ("submission", 1.0) in answers


def test_a_starter_failure_while_the_submission_runs_is_blamed_on_the_submission(
    make_comparison, until
) -> None:
    comparison, _ = make_comparison(SLEEPS.format(0), RESUMES_ITSELF + "arm(100)\n")
    with comparison.start_program(comparison.submission) as program:
        program.pause()
        until(lambda: program._process.tree.cpu_seconds_while_paused > 0.1)
        with (
            pytest.raises(InvalidSubmission, match="resumed itself"),
            comparison._attribute_errors(comparison.starter, {comparison.submission: program}),
        ):
            raise InvalidSubmission("too slow")
    with (
        pytest.raises(RuntimeError, match="the starter itself failed"),
        comparison._attribute_errors(comparison.starter, {}),
    ):
        raise InvalidSubmission("too slow")


BROKEN = {
    "when loaded": "raise OSError('no disk')",
    "when asked": "def answer(x):\n    raise OSError('no disk')",
}


@pytest.mark.parametrize("reused", [False, True])
@pytest.mark.parametrize("when", BROKEN)
def test_failures_are_attributed_to_the_program_that_failed(
    make_comparison, when: str, reused: bool, tmp_path: Path
) -> None:
    comparison, _ = make_comparison(SLEEPS.format(0), BROKEN[when], reuse_programs=reused)
    with pytest.raises(InvalidSubmission, match="no disk"):
        comparison.run(2, 2)
    swapped = SpeedComparison(
        comparison.submission,
        comparison.starter,
        comparison.start_program,
        comparison.draw_questions,
        reuse_programs=reused,
    )
    with pytest.raises(RuntimeError, match=r"the starter itself failed: .*no disk"):
        swapped.run(2, 2)


@pytest.mark.parametrize("reused", [False, True])
def test_the_starters_time_limits_the_submissions(
    make_comparison, reused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relative_timing, "GRACE_S", 0.2)
    comparison, _ = make_comparison(SLEEPS.format(0.01), SLEEPS.format(20), reuse_programs=reused)
    with pytest.raises(InvalidSubmission, match="too long"):
        comparison.run(2, 2)


def test_a_comparison_continues_while_the_score_is_uncertain_up_to_a_limit(make_comparison) -> None:
    noisy = (
        "import time\nn = 0\ndef answer(x):\n    global n; n += 1; time.sleep(0.01 + 0.2 * (n % 2)); return x"
    )
    comparison, answers = make_comparison(SLEEPS.format(0.05), noisy, reuse_programs=True)
    comparison.run(2, 6)
    assert len(answers) == 12


def test_questions_are_weighted_by_the_starters_time_and_ratios_compare_neighbours() -> None:
    rounds = [
        np.array([[1.0, 3.0], [1.0, 1.0]]),
        np.array([[2.0, 6.0], [1.0, 1.0]]),
        np.array([[1.0, 3.0], [1.0, 1.0]]),
    ]
    shares, ratios = time_shares_and_ratios(rounds)
    assert shares.tolist() == [0.75, 0.25]
    assert np.allclose(ratios, [[1 / 3, 1]] * 3)


@pytest.mark.parametrize(
    ("ratios", "uncertain"),
    [
        ((1.0, 1.01), False),
        ((1.0, 1.2), True),
        ((0.02, 0.03), False),
        ((0.83, 0.87), True),
        ((0.7, 0.74), False),
    ],
)
def test_a_score_is_uncertain_while_noise_could_explain_it(
    ratios: tuple[float, ...], uncertain: bool
) -> None:
    assert is_uncertain([np.array([[ratio, 1.0]]) for ratio in ratios], max_relative_error=0.015) is uncertain


def test_an_uncertain_score_is_made_worse_by_its_error(
    make_comparison: Callable[..., tuple[SpeedComparison, list]], monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = [(0.6, 1.0), (1.2, 1.0), (0.7, 1.0), (0.8, 1.0)]
    timings = iter(seconds)
    monkeypatch.setattr(SpeedComparison, "_time_round", lambda *_: np.array([next(timings)]))
    noisy, _ = make_comparison("", "", reuse_programs=True)
    monkeypatch.setattr(SpeedComparison, "_start_programs", lambda *_: {noisy.starter: None})
    score, error = score_and_error([np.array([row]) for row in seconds])
    assert score == pytest.approx(0.75) and error > 0.1
    assert noisy.run(2, 4) == pytest.approx(score * np.exp(2 * error))
