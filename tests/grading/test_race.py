"""Races between programs that sleep, in real sandboxes: the clock is fair, and each answers for its own failures."""

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
ANYHOW = 9.0  # however restless the machine of the tests is
SLEEPS = "import time\ndef answer(x):\n    time.sleep({}); return x"


@pytest.fixture(autouse=True)
def grading(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLAGENTBENCH_GRADING", json.dumps({"runtime": "tabular", "sandbox": "bwrap"}))


@pytest.fixture
def between(tmp_path: Path) -> Callable[..., tuple[Race, list]]:
    """A race between two sources, and the list in which it notes who was asked and what it answered."""

    def make(starter: str, submission: str, questions: int = 1, **options: object) -> tuple[Race, list]:
        folders = [tmp_path / "starter", tmp_path / "submission"]
        for folder, source in zip(folders, (starter, submission), strict=True):
            folder.mkdir(mode=0o755)
            (folder / "code.py").write_text(source)
        heard: list[tuple[str, float]] = []

        def question(program: Program, original: bool, limit: float) -> float:
            (answer,), seconds = program.ask(ONE, seconds=limit, most=100)
            heard.append(("starter" if original else "submission", float(answer)))
            return seconds

        def program(folder: Path) -> Program:
            return Program(folder, "code", "answer", start_seconds=20)

        return Race(*folders, program, lambda: [question] * questions, **options), heard

    return make


@pytest.mark.parametrize("kept", [False, True])
def test_a_program_that_takes_a_fifth_of_the_time_scores_about_a_fifth(between, kept: bool) -> None:
    run, _ = between(SLEEPS.format(0.5), SLEEPS.format(0.1), kept=kept, exact=ANYHOW)
    assert 0.15 < run.run(2, 2) < 0.4


def test_who_begins_alternates_and_the_starter_begins(between) -> None:
    run, heard = between(SLEEPS.format(0), SLEEPS.format(0), kept=True)
    run.run(4, 4)
    assert [who for who, _ in heard] == ["starter", "submission", "submission", "starter"] * 2


COUNTS = "n = 0\ndef answer(x):\n    global n; n += 1; return n"


def test_programs_are_new_in_every_round_and_the_starter_warms_the_machine_up(between) -> None:
    run, heard = between(COUNTS, COUNTS)
    run.run(2, 2)
    assert heard == [("starter", 1), ("starter", 1), ("submission", 1), ("submission", 1), ("starter", 1)]


def test_programs_that_are_kept_go_on_from_round_to_round(between) -> None:
    run, heard = between(COUNTS, COUNTS, kept=True)
    run.run(2, 2)
    assert heard == [("starter", 1), ("submission", 1), ("submission", 2), ("starter", 2)]


def test_the_first_questions_of_a_round_may_be_untimed(between) -> None:
    slow_at_first = (
        "import time\nn = 0\ndef answer(x):\n    global n; n += 1; time.sleep(1 if n == 1 else 0.1); return x"
    )
    run, _ = between(SLEEPS.format(0.1), slow_at_first, questions=2, untimed=1, exact=ANYHOW)
    assert 0.5 < run.run(2, 2) < 2


@pytest.mark.parametrize("kept", [False, True])
def test_whoever_is_not_asked_is_frozen(between, kept: bool) -> None:
    ticks = "import threading, time\nn = 0\ndef tick():\n    global n\n    while True:\n        time.sleep(0.001); n += 1\n"
    ticks += "threading.Thread(target=tick, daemon=True).start()\ndef answer(x):\n    return n"
    run, heard = between(SLEEPS.format(0.6), ticks, questions=2, kept=kept)
    run.run(2, 2)
    counts = [count for who, count in heard if who == "submission"]
    assert len(counts) == 4 and counts[1] - counts[0] < 300 and counts[3] - counts[2] < 300


WAKES = f"""
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
def test_who_has_himself_woken_while_the_other_is_timed_is_refused(between, kept: bool) -> None:
    run, heard = between(SLEEPS.format(1.5), WAKES, questions=2, kept=kept)
    with pytest.raises(InvalidSubmission, match="had itself woken while another program was timed"):
        run.run(2, 2)
    assert ("submission", 1.0) in heard


def test_a_starter_that_fails_while_the_submission_is_awake_is_the_submissions_fault(between, until) -> None:
    run, _ = between(SLEEPS.format(0), WAKES + "arm(100)\n")
    with run.program(run.submission) as program:
        program.pause()
        until(lambda: program._process.tree.cpu_seconds_while_paused > 0.1)
        with (
            pytest.raises(InvalidSubmission, match="woken"),
            run._blamed(run.starter, {run.submission: program}),
        ):
            raise InvalidSubmission("too slow")
    with pytest.raises(RuntimeError, match="the starter itself failed"), run._blamed(run.starter, {}):
        raise InvalidSubmission("too slow")


BROKEN = {
    "at the start": "raise OSError('no disk')",
    "when asked": "def answer(x):\n    raise OSError('no disk')",
}


@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize("when", BROKEN)
def test_each_answers_for_its_own_failures(between, when: str, kept: bool, tmp_path: Path) -> None:
    run, _ = between(SLEEPS.format(0), BROKEN[when], kept=kept)
    with pytest.raises(InvalidSubmission, match="no disk"):
        run.run(2, 2)
    swapped = Race(run.submission, run.starter, run.program, run.questions, kept=kept)
    with pytest.raises(RuntimeError, match=r"the starter itself failed: .*no disk"):
        swapped.run(2, 2)


@pytest.mark.parametrize("kept", [False, True])
def test_the_starters_time_limits_the_submissions(
    between, kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relative_timing, "GRACE_S", 0.2)
    run, _ = between(SLEEPS.format(0.01), SLEEPS.format(20), kept=kept)
    with pytest.raises(InvalidSubmission, match="too long"):
        run.run(2, 2)


def test_a_race_goes_on_while_it_is_in_doubt_but_not_for_ever(between) -> None:
    wild = (
        "import time\nn = 0\ndef answer(x):\n    global n; n += 1; time.sleep(0.01 + 0.2 * (n % 2)); return x"
    )
    run, heard = between(SLEEPS.format(0.05), wild, kept=True)
    run.run(2, 6)
    assert len(heard) == 12


def test_questions_count_by_the_starters_time_and_ratios_are_those_of_neighbours() -> None:
    rounds = [
        np.array([[1.0, 3.0], [1.0, 1.0]]),
        np.array([[2.0, 6.0], [1.0, 1.0]]),
        np.array([[1.0, 3.0], [1.0, 1.0]]),
    ]
    shares, ratios = time_shares_and_ratios(rounds)
    assert shares.tolist() == [0.75, 0.25]
    assert np.allclose(ratios, [[1 / 3, 1]] * 3)


@pytest.mark.parametrize(
    ("ratios", "doubt"),
    [
        ((1.0, 1.01), False),
        ((1.0, 1.2), True),
        ((0.02, 0.03), False),
        ((0.83, 0.87), True),
        ((0.7, 0.74), False),
    ],
)
def test_a_score_is_in_doubt_while_noise_could_explain_it(ratios: tuple[float, ...], doubt: bool) -> None:
    assert is_uncertain([np.array([[ratio, 1.0]]) for ratio in ratios], exact=0.015) is doubt


def test_luck_on_a_restless_machine_is_taken_off_the_score(
    between: Callable[..., tuple[Race, list]], monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = iter([(0.6, 1.0), (1.2, 1.0), (0.7, 1.0), (0.8, 1.0)])
    monkeypatch.setattr(Race, "_time_round", lambda *_: np.array([next(taken)]))
    restless, _ = between("", "", kept=True)
    monkeypatch.setattr(Race, "_start_programs", lambda *_: {restless.starter: None})
    score, error = score_and_error(
        [np.array([each]) for each in [(0.6, 1.0), (1.2, 1.0), (0.7, 1.0), (0.8, 1.0)]]
    )
    assert score == pytest.approx(0.75) and error > 0.1
    assert restless.run(2, 4) == pytest.approx(score * np.exp(2 * error))
