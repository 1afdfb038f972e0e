"""Every formula against a worked example (see docs/reference/metrics.md) and an independent library."""

import math

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.proportion import confint_proportions_2indep, proportion_confint

from mlagentbench.analysis.statistics import (
    Interval,
    bootstrap_interval,
    expected_best_of_k,
    holm_adjust,
    mann_whitney_p_value,
    mean,
    paired_difference,
    pass_at_k,
    performance_profile,
    probability_of_superiority,
    quantile_index,
    rank_probabilities,
    resample_count,
    shares_above,
    stratified_interval,
    stratified_rate_interval,
    wilson_interval,
)

IMPROVEMENTS = [0.31, -0.05, 0.12, 0.4, 0.02, 0.18, 0.27, -0.11]


def test_wilson_interval_of_three_in_eight_matches_the_example_by_hand() -> None:
    assert wilson_interval(3, 8) == pytest.approx((0.13684, 0.69426), abs=1e-5)


@pytest.mark.parametrize("of", [1, 2, 8, 50, 1000])
def test_wilson_agrees_with_statsmodels(of: int) -> None:
    for count in {0, 1, of // 3, of - 1, of}:
        assert wilson_interval(count, of) == pytest.approx(
            proportion_confint(count, of, method="wilson"), abs=1e-12
        )


def test_a_rate_without_runs_has_no_interval_and_one_without_success_starts_at_zero() -> None:
    assert wilson_interval(0, 0) == Interval(None, None)
    assert wilson_interval(0, 8).low == 0.0 and wilson_interval(8, 8).high == 1.0


def test_the_mean_of_no_values_is_none_and_not_zero() -> None:
    assert mean([]) is None and mean([0.1, 0.2, 0.6]) == pytest.approx(0.3)


def test_the_bootstrap_of_two_values_matches_the_example_by_hand() -> None:
    # Resamples of 0 and 1 have the means 0, 1/2, 1 with probabilities 1/4, 1/2, 1/4.
    assert bootstrap_interval([0.0, 1.0]) == (0.0, 1.0)
    assert bootstrap_interval([0.0, 1.0], level=0.4) == (0.5, 0.5)


def test_the_bootstrap_agrees_with_scipy() -> None:
    expected = stats.bootstrap(
        (IMPROVEMENTS,), np.mean, n_resamples=50_000, method="percentile", rng=np.random.default_rng(1)
    ).confidence_interval
    assert bootstrap_interval(IMPROVEMENTS) == pytest.approx((expected.low, expected.high), abs=0.004)


def test_the_bootstrap_is_reproducible_in_any_order_and_gives_no_interval_for_one_value() -> None:
    assert bootstrap_interval(IMPROVEMENTS) == bootstrap_interval(IMPROVEMENTS[::-1])
    assert bootstrap_interval([0.3]) == Interval(None, None) == bootstrap_interval([])
    assert bootstrap_interval([0.3, 0.3]) == (0.3, 0.3)


def test_the_work_of_a_bootstrap_is_bounded() -> None:
    assert resample_count(1000) == 10_000 and resample_count(10**6) == 1000
    assert resample_count(10_000) * 10_000 <= 20_000_000


def test_each_task_has_the_same_weight_whatever_its_number_of_runs() -> None:
    # One task with the means 0, 1/2, 1 and one that is always 1: together 1/2, 3/4, 1.
    assert stratified_interval([[0.0, 1.0], [1.0] * 50]) == (0.5, 1.0)
    assert stratified_interval([[0.0], [1.0]]) == Interval(None, None)


def test_a_rate_over_tasks_has_a_width_even_where_runs_always_agree() -> None:
    assert stratified_rate_interval([[0.0, 1.0], [1.0] * 50]) == (0.5, 1.0)
    assert stratified_rate_interval([[1.0] * 3]) == pytest.approx(wilson_interval(3, 3))
    assert stratified_rate_interval([[1.0, 0.0]]) == pytest.approx(wilson_interval(1, 2))
    # Tasks of 8 and of 2 runs are together as exact as 2² / (1/8 + 1/2) = 6.4 runs of one task.
    assert stratified_rate_interval([[0.0] * 8, [0.0] * 2]) == pytest.approx(wilson_interval(0, 6.4))
    assert stratified_rate_interval([[0.0] * 8] * 13) == pytest.approx(wilson_interval(0, 104))
    assert stratified_rate_interval([]) == Interval(None, None)


def test_the_stratified_bootstrap_agrees_with_scipy() -> None:
    tasks = [IMPROVEMENTS, [0.5, 0.1, 0.3], [-0.2, 0.0, 0.4, 0.9]]

    def over_tasks(one: object, two: object, three: object, axis: int = -1) -> object:
        return (np.mean(one, axis=axis) + np.mean(two, axis=axis) + np.mean(three, axis=axis)) / 3

    expected = stats.bootstrap(
        tasks,
        over_tasks,
        n_resamples=50_000,
        method="percentile",
        vectorized=True,
        rng=np.random.default_rng(1),
    ).confidence_interval
    assert stratified_interval(tasks) == pytest.approx((expected.low, expected.high), abs=0.006)


def test_pass_at_k_matches_the_example_by_hand() -> None:
    # Of 8 runs 3 succeed: 10 of the 28 pairs have no success.
    assert pass_at_k(3, 8, 2) == pytest.approx(18 / 28)
    assert (
        pass_at_k(3, 8, 1) == pytest.approx(3 / 8) and pass_at_k(3, 8, 6) == 1.0 and pass_at_k(0, 8, 8) == 0.0
    )


def test_pass_at_k_agrees_with_the_hypergeometric_distribution_of_scipy() -> None:
    for count in range(9):
        for k in range(1, 9):
            assert pass_at_k(count, 8, k) == pytest.approx(stats.hypergeom.sf(0, 8, count, k))


@pytest.mark.parametrize("k", [0, 9])
def test_drawing_more_runs_than_exist_is_an_error(k: int) -> None:
    with pytest.raises(ValueError, match=f"Cannot draw {k} runs from 8"):
        pass_at_k(3, 8, k)
    with pytest.raises(ValueError, match=f"Cannot draw {k} values from 8"):
        expected_best_of_k(IMPROVEMENTS, k)


def test_the_expected_best_of_two_matches_the_example_by_hand() -> None:
    # The three pairs of 0.1, 0.2, 0.4 have the best 0.2, 0.4, 0.4.
    assert expected_best_of_k([0.4, 0.1, 0.2], 2) == pytest.approx(1 / 3)
    assert expected_best_of_k([0.4, 0.1, 0.2], 3) == 0.4 and expected_best_of_k(
        [0.4, 0.1, 0.2], 1
    ) == pytest.approx(0.7 / 3)


def test_the_paired_bootstrap_of_two_runs_matches_the_example_by_hand() -> None:
    # Both sides have the means 0, 1/2, 1 with probabilities 1/4, 1/2, 1/4; -1 and 1 have 1/16 each.
    same = paired_difference([[0.0, 1.0]], [[0.0, 1.0]])
    assert same.value == 0.0 and same.interval == (-1.0, 1.0) and same.chance == pytest.approx(0.5, abs=0.02)


def test_three_successes_against_none_are_not_certain() -> None:
    # All resamples are equal, because all runs agree.
    # Newcombe: 1 - sqrt(0.56150² + 0.56150²), from Wilson's intervals.
    result = paired_difference([[1.0] * 3], [[0.0] * 3])
    assert (
        result.value == 1.0
        and result.interval == pytest.approx((0.20592, 1.0), abs=1e-5)
        and 0.9 < result.chance < 1
    )
    expected = confint_proportions_2indep(3, 3, 0, 3, method="newcomb", compare="diff")
    assert result.interval == pytest.approx(expected)
    assert (paired_difference([[1.0]], [[0.0]]).interval.low or 0) < 0
    assert paired_difference([[0.0] * 3], [[0.0] * 3]).interval == pytest.approx(
        (-0.56150, 0.56150), abs=1e-5
    )


def test_values_that_are_equal_in_all_runs_give_a_difference_without_an_interval() -> None:
    assert paired_difference([[0.3, 0.3]], [[0.1, 0.1]]) == (pytest.approx(0.2), Interval(None, None), 1.0)
    assert paired_difference([[0.3]], [[0.3]]) == (0.0, Interval(None, None), 0.5)


def test_the_paired_bootstrap_draws_the_same_tasks_for_both_sides() -> None:
    # The first is 0.1 ahead on every task, so its mean is 0.1 ahead for any draw of tasks.
    result = paired_difference([[0.1], [0.5], [0.9]], [[0.0], [0.4], [0.8]])
    assert (
        result.value == pytest.approx(0.1)
        and result.interval == Interval(None, None)
        and result.chance == 1.0
    )
    result = paired_difference([[0.1], [0.5], [0.9]], [[0.0], [0.4], [0.9]])
    assert result.interval == pytest.approx((0.0, 0.1)) and result.chance == pytest.approx(
        1 - 0.5 / 27, abs=0.01
    )


def test_the_paired_bootstrap_over_tasks_agrees_with_scipy() -> None:
    first, second = [0.3, 0.1, 0.5, 0.2, 0.45, 0.05], [0.1, 0.2, 0.1, 0.15, 0.3, 0.0]
    result = paired_difference([[value] for value in first], [[value] for value in second])

    def difference(one: np.ndarray, two: np.ndarray, axis: int = -1) -> object:
        return np.mean(one - two, axis=axis)

    expected = stats.bootstrap(
        (first, second),
        difference,
        n_resamples=50_000,
        method="percentile",
        paired=True,
        rng=np.random.default_rng(1),
    ).confidence_interval
    assert result.interval == pytest.approx((expected.low, expected.high), abs=0.006)


def test_the_paired_bootstrap_needs_the_same_tasks() -> None:
    with pytest.raises(ValueError, match="the same tasks"):
        paired_difference([[1.0]], [[1.0], [0.0]])


def test_rank_probabilities_match_the_example_by_hand() -> None:
    assert rank_probabilities([[[1.0, 1.0]], [[0.0, 0.0]]]).tolist() == [[1, 0], [0, 1]]
    # The first is second only if its mean is lower: (1/4)(3/4) + (1/2)(1/4) = 5/16.
    # Ties share the better rank.
    result = rank_probabilities([[[0.0, 1.0]], [[0.0, 1.0]]])
    assert result == pytest.approx(np.array([[11 / 16, 5 / 16]] * 2), abs=0.02)
    assert rank_probabilities([]).shape == (0, 0)


def test_quantile_index_is_the_first_rank_that_reaches_the_share() -> None:
    assert [quantile_index([0.02, 0.58, 0.4], share) for share in (0.01, 0.025, 0.6, 0.975)] == [0, 1, 1, 2]


def test_the_performance_profile_matches_the_example_by_hand() -> None:
    # Behind the best: the first 0, 0.3 and infinity; the second 0.2, 0 and 0.
    result = performance_profile({"first": [0.3, -0.1, None], "second": [0.1, 0.2, -0.5]}, [0.0, 0.2, 0.3])
    assert result["first"] == pytest.approx([1 / 3, 1 / 3, 2 / 3])
    assert result["second"] == pytest.approx([2 / 3, 1, 1])


def test_on_a_task_without_any_value_no_agent_is_near_the_best() -> None:
    assert performance_profile({"first": [None], "second": [None]}, [0.0, 10.0]) == {
        "first": [0, 0],
        "second": [0, 0],
    }
    assert performance_profile({}, [0.0]) == {} and performance_profile({"first": []}, [0.0]) == {
        "first": [0.0]
    }


def test_shares_above_thresholds_match_the_example_by_hand() -> None:
    # First task: one of two runs is valid, and above both; second: both above 0, one above 0.1.
    assert shares_above([[0.3, None], [0.05, 0.2]], [0.0, 0.1]) == [0.75, 0.5]


def test_the_mann_whitney_test_matches_the_example_by_hand_and_ranks_invalid_runs_last() -> None:
    # Two of the twenty orders of six runs are this extreme.
    assert mann_whitney_p_value([4, 5, 6], [1, 2, 3]) == pytest.approx(2 / 20)
    assert mann_whitney_p_value([4, 5, 6], [-math.inf, 2, 3]) == pytest.approx(2 / 20)
    assert mann_whitney_p_value([1, 1], [1, 1]) == 1.0 == mann_whitney_p_value([], [1.0])


def test_the_mann_whitney_test_agrees_with_scipy() -> None:
    other = [value + 0.2 for value in IMPROVEMENTS[:5]]
    assert mann_whitney_p_value(IMPROVEMENTS, other) == pytest.approx(
        stats.mannwhitneyu(IMPROVEMENTS, other).pvalue
    )


def test_the_probability_of_superiority_is_a_share_of_pairs() -> None:
    assert probability_of_superiority([1, 2], [0, 2]) == (1 + 0 + 1 + 0.5) / 4


def test_holm_adjustment_matches_the_example_by_hand_and_statsmodels() -> None:
    assert holm_adjust([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    values = [0.2, 0.001, 0.04, 0.04, 0.9, 0.012]
    assert holm_adjust(values) == pytest.approx(multipletests(values, method="holm")[1])
    assert holm_adjust([]) == []
