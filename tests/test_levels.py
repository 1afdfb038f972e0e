"""Progress between the levels of a task, and success from a stronger start."""

import math

import pytest

from mlagentbench.grading.verdict import compute_verdict
from mlagentbench.levels import (
    compute_progress,
    fraction_of_gap,
    is_success_possible,
    next_level_score,
    required_score,
)
from mlagentbench.records import Baseline, Ceiling, Levels

LEVELS = Levels(
    starter=Baseline(mean=100.0, sd=1.0, n=8),
    reference=Baseline(mean=20.0, sd=1.0, n=8),
    expert=Baseline(mean=10.0, sd=0.5, n=4),
    ceiling=Ceiling(score=5.0, how="for this test"),
)


@pytest.mark.parametrize(("score", "progress"), [(100.0, 0.0), (55.0, 0.5), (10.0, 1.0), (1.0, 1.1)])
def test_progress_is_linear_from_the_starter_to_the_expert_and_not_capped(score, progress):
    assert compute_progress(score, LEVELS, "linear") == pytest.approx(progress)


def test_progress_on_a_log_scale_counts_factors():
    assert compute_progress(math.sqrt(1000), LEVELS, "log") == pytest.approx(0.5)
    assert compute_progress(1.0, LEVELS, "log") == pytest.approx(2.0)


def test_progress_is_unknown_without_both_levels_a_gap_or_a_logarithm():
    assert compute_progress(50.0, LEVELS.replace(expert=None), "linear") is None
    assert compute_progress(50.0, LEVELS.replace(starter=None), "linear") is None
    assert compute_progress(0.0, LEVELS, "log") is None
    assert fraction_of_gap(1.0, 2.0, 2.0, "linear") is None


def test_the_level_above_a_start_is_the_expert_and_then_the_ceiling():
    assert next_level_score(LEVELS, "starter") is None
    assert next_level_score(LEVELS, "reference") == 10.0
    assert next_level_score(LEVELS, "expert") == 5.0
    assert next_level_score(LEVELS.replace(ceiling=None), "expert") is None


def test_a_stronger_start_succeeds_by_closing_a_tenth_of_the_gap_beyond_noise():
    reference = Baseline(mean=20.0, sd=0.1, n=8)
    close = compute_verdict(19.1, reference, "lower", goal=10.0)
    assert (close.gap_closed, close.improved, close.success) == (pytest.approx(0.09), False, False)
    enough = compute_verdict(19.0, reference, "lower", goal=10.0)
    assert (enough.gap_closed, enough.success) == (pytest.approx(0.1), True)
    noisy = compute_verdict(19.0, Baseline(mean=20.0, sd=1.0, n=8), "lower", goal=10.0)
    assert noisy.improved and not noisy.success


def test_the_required_score_follows_the_scale_and_the_direction():
    levels = LEVELS.replace(
        reference=Baseline(mean=20.0, sd=0.1, n=8), expert=Baseline(mean=10.0, sd=0.01, n=4)
    )
    assert required_score(levels, "starter", "lower", "linear") == 90.0
    assert required_score(levels, "reference", "lower", "linear") == 19.0
    assert required_score(levels, "expert", "lower", "log") == pytest.approx(10 * 0.5**0.1)
    assert required_score(levels, "expert", "higher", "linear") == 11.0  # the ceiling is not above it
    assert required_score(levels.replace(expert=None), "expert", "lower", "linear") is None


def test_the_required_score_is_beyond_the_noise_of_the_start():
    required = required_score(LEVELS, "expert", "lower", "linear")
    assert required < 9.5  # which closes a tenth of the gap
    verdicts = [
        compute_verdict(score, LEVELS.expert, "lower", goal=5.0) for score in (required + 1e-6, required)
    ]
    assert [verdict.success for verdict in verdicts] == [False, True]
    assert all(verdict.improved for verdict in verdicts)


def test_no_success_is_possible_within_the_noise_of_the_start_or_if_that_is_unknown():
    assert is_success_possible(LEVELS, "expert", "lower", "linear")
    noisy = LEVELS.replace(expert=Baseline(mean=10.0, sd=3.0, n=4))
    assert not is_success_possible(noisy, "expert", "lower", "linear")
    assert is_success_possible(noisy.replace(ceiling=None), "expert", "lower", "linear")
    once = LEVELS.replace(expert=Baseline(mean=10.0, sd=0.0, n=1))
    assert not is_success_possible(once, "expert", "lower", "linear")
    assert not compute_verdict(5.0, once.expert, "lower", goal=5.0).success


def test_a_start_at_its_goal_falls_back_to_the_relative_rule():
    verdict = compute_verdict(0.8, Baseline(mean=1.0, sd=0.01, n=8), "lower", goal=1.2)
    assert verdict.gap_closed is None and verdict.success
