import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from mlagentbench.grading.verdict import compute_verdict, summarize_scores
from mlagentbench.levels import gain_p_value, student_t_tail
from mlagentbench.records import Baseline

LOWER = Baseline(mean=10.0, sd=0.5, n=8)
HIGHER = Baseline(mean=0.6, sd=0.01, n=5)


def test_a_lower_score_is_better_where_lower_is_better() -> None:
    verdict = compute_verdict(8.0, LOWER, "lower")
    assert verdict.improvement == pytest.approx(0.2)
    assert verdict.improved and verdict.success
    assert compute_verdict(12.0, LOWER, "lower").improvement == pytest.approx(-0.2)


def test_a_higher_score_is_better_where_higher_is_better() -> None:
    assert compute_verdict(0.9, HIGHER, "higher").improvement == pytest.approx(0.5)
    assert compute_verdict(0.9, HIGHER, "higher").success
    worse = compute_verdict(0.3, HIGHER, "higher")
    assert not worse.improved and not worse.success and worse.p_value > 0.99


def test_exactly_ten_percent_is_not_an_improvement() -> None:
    assert not compute_verdict(9.0, LOWER, "lower").improved
    assert compute_verdict(8.999, LOWER, "lower").improved


def test_an_improvement_that_noise_explains_is_not_a_success() -> None:
    noisy = Baseline(mean=10.0, sd=3.0, n=8)
    verdict = compute_verdict(8.0, noisy, "lower")
    assert verdict.improved and not verdict.success
    assert verdict.p_value > 0.05


def test_the_p_value_matches_one_computed_by_hand() -> None:
    # gain 1, sd 0.5, n 4: t = 1 / (0.5 * sqrt(1.25)) = 1.78885 with 3 degrees of freedom
    assert gain_p_value(1.0, Baseline(mean=1, sd=0.5, n=4)) == pytest.approx(0.08579, abs=1e-4)


@settings(deadline=None)
@given(
    gain=st.floats(-1e6, 1e6),
    sd=st.floats(1e-3, 1e3),
    n=st.integers(2, 200),
)
def test_the_p_value_is_that_of_the_t_distribution(gain: float, sd: float, n: int) -> None:
    expected = stats.t.sf(gain / (sd * math.sqrt(1 + 1 / n)), df=n - 1)
    assert gain_p_value(gain, Baseline(mean=0, sd=sd, n=n)) == pytest.approx(expected, rel=1e-6, abs=1e-12)


def test_any_gain_over_a_starter_without_spread_is_significant() -> None:
    fixed = Baseline(mean=10.0, sd=0.0, n=8)
    assert compute_verdict(8.0, fixed, "lower").success
    assert compute_verdict(10.0, fixed, "lower").p_value == 1.0
    assert not compute_verdict(10.0, fixed, "lower").success


def test_a_score_that_differs_from_a_rounded_mean_is_no_gain() -> None:
    rounded = Baseline(mean=0.0729517, sd=0.0, n=8)
    assert compute_verdict(0.07295174, rounded, "higher").p_value == 1.0
    assert compute_verdict(0.07296, rounded, "higher").p_value == 0.0


def test_one_run_of_the_starter_says_nothing_about_noise() -> None:
    assert not compute_verdict(1.0, Baseline(mean=10.0, sd=0.0, n=1), "lower").success


def test_a_baseline_of_zero_has_a_verdict_without_a_relative_improvement() -> None:
    zero = Baseline(mean=0.0, sd=0.1, n=8)
    verdict = compute_verdict(5.0, zero, "higher")
    assert verdict.improvement is None and verdict.improved and verdict.success
    assert not compute_verdict(0.0, zero, "higher").improved
    assert not compute_verdict(0.01, zero, "higher").success


def test_a_negative_baseline_improves_upwards() -> None:
    negative = Baseline(mean=-2.0, sd=0.01, n=8)
    assert compute_verdict(-1.0, negative, "higher").improvement == pytest.approx(0.5)
    assert compute_verdict(-3.0, negative, "higher").improvement == pytest.approx(-0.5)
    assert compute_verdict(-3.0, negative, "lower").improvement == pytest.approx(0.5)


def test_scores_are_summarized_by_mean_and_sample_standard_deviation() -> None:
    found = summarize_scores([1.0, 2.0, 3.0, 4.0], "a machine")
    assert (found.mean, found.n, found.hardware) == (2.5, 4, "a machine")
    assert found.sd == pytest.approx(1.2909944)
    assert summarize_scores([7.0]).sd == 0.0


@pytest.mark.parametrize("degrees", [1, 2, 7, 30, 199])
@pytest.mark.parametrize("t", [-20, -2, -0.3, 0, 1e-3, 0.1, 1, 1.7, 2.5, 5, 37.5, 1e4])
def test_the_tail_of_students_t_is_that_of_scipy(t: float, degrees: int) -> None:
    assert student_t_tail(t, degrees) == pytest.approx(stats.t.sf(t, degrees), rel=1e-12)
