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
from mlagentbench.grading.relative_timing import Race, is_uncertain, score_and_error, time_shares_and_ratios

ONE = np.array(1.0)
ANY_ERROR = 9.0  # accepts any noise of the machine
SLEEPS = "import time\ndef answer(x):\n    time.sleep({}); return x"


@pytest.fixture(autouse=True)
def grading(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLAGENTBENCH_GRADING", json.dumps({"runtime": "tabular", "sandbox": "bwrap"}))


@pytest.fixture
def make_race(tmp_path: Path) -> Callable[..., tuple[Race, list]]:
    """Makes a race between two sources, and a list that records each program asked and its answer."""

    def make(starter: str, submission: str, questions: int = 1, **options: object) -> tuple[Race, list]:
        folders = [tmp_path / "starter", tmp_path / "submission"]
        for folder, source in zip(folders, (starter, submission), strict=True):
            folder.mkdir(mode=0o755)
            (folder / "code.py").write_text(source)
        answers: list[tuple[str, float]] = []

        def question(program: Program, original: bool, limit: float) -> float:
            (answer,), seconds = program.ask(ONE, seconds=limit, most=100)
            answers.append(("starter" if original else "submission", float(answer)))
            return seconds

        def program(folder: Path) -> Program:
            return Program(folder, "code", "answer", start_seconds=20)

        return Race(*folders, program, lambda: [question] * questions, **options), answers

    return make


@pytest.mark.parametrize("kept", [False, True])
def test_a_program_that_takes_a_fifth_of_the_time_scores_about_a_fifth(make_race, kept: bool) -> None:
    race, _ = make_race(SLEEPS.format(0.5), SLEEPS.format(0.1), kept=kept, exact=ANY_ERROR)
    assert 0.15 < race.run(2, 2) < 0.4


def test_the_order_alternates_and_the_starter_is_first(make_race) -> None:
    race, answers = make_race(SLEEPS.format(0), SLEEPS.format(0), kept=True)
    race.run(4, 4)
    assert [name for name, _ in answers] == ["starter", "submission", "submission", "starter"] * 2


COUNTS = "n = 0\ndef answer(x):\n    global n; n += 1; return n"


def test_programs_are_restarted_in_every_round_and_the_starter_warms_up_the_machine(make_race) -> None:
    race, answers = make_race(COUNTS, COUNTS)
    race.run(2, 2)
    assert answers == [("starter", 1), ("starter", 1), ("submission", 1), ("submission", 1), ("starter", 1)]


def test_kept_programs_keep_their_state_from_round_to_round(make_race) -> None:
    race, answers = make_race(COUNTS, COUNTS, kept=True)
    race.run(2, 2)
    assert answers == [("starter", 1), ("submission", 1), ("submission", 2), ("starter", 2)]


def test_the_first_questions_of_a_round_may_be_untimed(make_race) -> None:
    slow_at_first = (
        "import time\nn = 0\ndef answer(x):\n    global n; n += 1; time.sleep(1 if n == 1 else 0.1); return x"
    )
    race, _ = make_race(SLEEPS.format(0.1), slow_at_first, questions=2, untimed=1, exact=ANY_ERROR)
    assert 0.5 < race.run(2, 2) < 2


@pytest.mark.parametrize("kept", [False, True])
def test_a_program_that_is_not_asked_is_paused(make_race, kept: bool) -> None:
    ticks = "import threading, time\nn = 0\ndef tick():\n    global n\n"
    ticks += "    while True:\n        time.sleep(0.001); n += 1\n"
    ticks += "threading.Thread(target=tick, daemon=True).start()\ndef answer(x):\n    return n"
    race, answers = make_race(SLEEPS.format(0.6), ticks, questions=2, kept=kept)
    race.run(2, 2)
    counts = [count for name, count in answers if name == "submission"]
    assert len(counts) == 4 and counts[1] - counts[0] < 300 and counts[3] - counts[2] < 300


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


@pytest.mark.parametrize("kept", [False, True])
def test_a_submission_that_resumes_itself_while_the_starter_is_timed_is_rejected(
    make_race, kept: bool
) -> None:
    race, answers = make_race(SLEEPS.format(1.5), RESUMES_ITSELF, questions=2, kept=kept)
    with pytest.raises(InvalidSubmission, match="resumed itself while another program was timed"):
        race.run(2, 2)
    assert ("submission", 1.0) in answers


def test_a_starter_failure_while_the_submission_runs_is_blamed_on_the_submission(make_race, until) -> None:
    race, _ = make_race(SLEEPS.format(0), RESUMES_ITSELF + "arm(100)\n")
    with race.program(race.submission) as program:
        program.pause()
        until(lambda: program._process.tree.cpu_seconds_while_paused > 0.1)
        with (
            pytest.raises(InvalidSubmission, match="resumed itself"),
            race._attribute_errors(race.starter, {race.submission: program}),
        ):
            raise InvalidSubmission("too slow")
    with (
        pytest.raises(RuntimeError, match="the starter itself failed"),
        race._attribute_errors(race.starter, {}),
    ):
        raise InvalidSubmission("too slow")


BROKEN = {
    "when loaded": "raise OSError('no disk')",
    "when asked": "def answer(x):\n    raise OSError('no disk')",
}


@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize("when", BROKEN)
def test_failures_are_attributed_to_the_program_that_failed(
    make_race, when: str, kept: bool, tmp_path: Path
) -> None:
    race, _ = make_race(SLEEPS.format(0), BROKEN[when], kept=kept)
    with pytest.raises(InvalidSubmission, match="no disk"):
        race.run(2, 2)
    swapped = Race(race.submission, race.starter, race.program, race.questions, kept=kept)
    with pytest.raises(RuntimeError, match=r"the starter itself failed: .*no disk"):
        swapped.run(2, 2)


@pytest.mark.parametrize("kept", [False, True])
def test_the_starters_time_limits_the_submissions(
    make_race, kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relative_timing, "GRACE_S", 0.2)
    race, _ = make_race(SLEEPS.format(0.01), SLEEPS.format(20), kept=kept)
    with pytest.raises(InvalidSubmission, match="too long"):
        race.run(2, 2)


def test_a_race_continues_while_the_score_is_uncertain_up_to_a_limit(make_race) -> None:
    noisy = (
        "import time\nn = 0\ndef answer(x):\n    global n; n += 1; time.sleep(0.01 + 0.2 * (n % 2)); return x"
    )
    race, answers = make_race(SLEEPS.format(0.05), noisy, kept=True)
    race.run(2, 6)
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
    assert is_uncertain([np.array([[ratio, 1.0]]) for ratio in ratios], exact=0.015) is uncertain


def test_an_uncertain_score_is_made_worse_by_its_error(
    make_race: Callable[..., tuple[Race, list]], monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = [(0.6, 1.0), (1.2, 1.0), (0.7, 1.0), (0.8, 1.0)]
    timings = iter(seconds)
    monkeypatch.setattr(Race, "_time_round", lambda *_: np.array([next(timings)]))
    noisy_race, _ = make_race("", "", kept=True)
    monkeypatch.setattr(Race, "_start_programs", lambda *_: {noisy_race.starter: None})
    score, error = score_and_error([np.array([row]) for row in seconds])
    assert score == pytest.approx(0.75) and error > 0.1
    assert noisy_race.run(2, 4) == pytest.approx(score * np.exp(2 * error))
