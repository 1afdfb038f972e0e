"""A score held against the baseline: the paper's ten per cent, and whether noise alone could have done it."""

import math

from mlagentbench.records import Baseline, Better, Verdict

MIN_IMPROVEMENT = 0.10  # improvement over the baseline's mean that counts, as in the paper
SIGNIFICANCE_LEVEL = 0.05  # chance at which a run of the untouched starter may look this good


def compute_verdict(score: float, baseline: Baseline, better: Better) -> Verdict:
    """Both verdicts; success needs both. Of a baseline of zero there is no per cent: any gain counts."""
    gain, share = _gain(score, baseline, better), relative_improvement(score, baseline, better)
    improved = gain > 0 if share is None else share > MIN_IMPROVEMENT
    p_value = gain_p_value(gain, baseline)
    return Verdict(
        baseline=baseline.mean,
        improvement=share,
        improved=improved,
        p_value=p_value,
        success=improved and p_value < SIGNIFICANCE_LEVEL,
    )


def relative_improvement(score: float, baseline: Baseline, better: Better) -> float | None:
    """How much better than the baseline, as a share of it."""
    return _gain(score, baseline, better) / abs(baseline.mean) if baseline.mean else None


def _gain(score: float, baseline: Baseline, better: Better) -> float:
    return score - baseline.mean if better == "higher" else baseline.mean - score


def gain_p_value(gain: float, baseline: Baseline) -> float:
    """The probability that one more run of the starter gains as much: a one-sided t test of a new observation."""
    if baseline.n < 2:
        return 1.0  # one run tells nothing of the spread
    if baseline.sd == 0:
        return 0.0 if gain > 0 else 1.0
    from scipy.special import stdtr

    return float(stdtr(baseline.n - 1, -gain / (baseline.sd * math.sqrt(1 + 1 / baseline.n))))


def summarize_scores(scores: list[float], hardware: str = "") -> Baseline:
    """The distribution of a starter's scores."""
    mean = math.fsum(scores) / len(scores)
    spread = math.fsum((score - mean) ** 2 for score in scores)
    return Baseline(
        mean=mean,
        sd=math.sqrt(spread / (len(scores) - 1)) if len(scores) > 1 else 0.0,
        n=len(scores),
        hardware=hardware,
    )
