"""How scores and verdicts are written."""

import pytest

from mlagentbench.formatting import describe_verdict, format_score
from mlagentbench.grading.verdict import compute_verdict
from mlagentbench.records import Baseline, Hashes, Result


@pytest.mark.parametrize(
    ("score", "text"),
    [
        (0.99997, "0.99997"),
        (0.999371, "0.99937"),
        (0.992, "0.992"),
        (0.9531, "0.9531"),
        (-0.99997, "-0.99997"),
        (1.0, "1"),
        (0.5, "0.5"),
        (55733.018, "55,733.02"),
        (None, "-"),
    ],
)
def test_a_score_near_one_keeps_the_digits_that_separate_it_from_one(score, text):
    assert format_score(score) == text


def judged(score, start, goal=None):
    verdict = compute_verdict(score, Baseline(mean=20.0, sd=0.1, n=8), "lower", goal)
    hashes = Hashes(task="", grader="", data="", runtime="")
    result = Result(
        task="t",
        edition="open",
        agent="a",
        start=start,
        score=score,
        valid=True,
        ending="submitted",
        steps=1,
        seconds=1.0,
        hashes=hashes,
    )
    return describe_verdict(result.replace(**verdict.model_dump()))


def test_a_verdict_says_how_far_a_significant_gain_was_from_enough():
    assert judged(19.07, "reference", 10.0) == (
        "no success: better than the reference beyond noise (p = 2.5e-05), but closes 9.3% of the gap to the"
        " expert; 10% needed"
    )
    assert judged(19.0001, "expert", 10.0).endswith("closes 9.9% of the gap to the ceiling; 10% needed")
    assert judged(18.2, "starter").endswith(
        "beyond noise (p = 3e-07), but only by 9.0%; more than 10% needed"
    )
    assert judged(20.1, "starter") == "no success: not 10% better than the starter"
    assert judged(17.0, "starter") == "SUCCESS: more than 10% better than the starter, beyond noise"
