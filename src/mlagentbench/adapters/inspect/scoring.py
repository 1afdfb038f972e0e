"""Our grader as Inspect's scorer: whether it beat the baseline, by how much, with what score."""

import math
from pathlib import Path

from inspect_ai.scorer import Score, Scorer, Target, mean, scorer, stderr
from inspect_ai.solver import TaskState

from mlagentbench.adapters.inspect.attempt import PLACE, Attempt
from mlagentbench.errors import Fault, UsageError
from mlagentbench.records import Result
from mlagentbench.runner.folder import RunFolder
from mlagentbench.words import judgement

NAMES = ("success", "improvement", "score", "valid")


@scorer(metrics={name: [mean(), stderr()] for name in NAMES})
def verdict() -> Scorer:
    """Success and validity of every sample; improvement and score of those that have one. A fault is an error."""

    async def score(state: TaskState, target: Target) -> Score:
        result = await _result(state)
        if result.ending == "fault":
            raise Fault(result.note)
        return score_of(result)

    return score


async def _result(state: TaskState) -> Result:
    """Of the run that is open, or of one that an earlier evaluation kept."""
    if attempt := Attempt.open.get(state.uuid):
        return await attempt.finish()
    place = state.metadata.get(PLACE)
    kept = RunFolder(Path(place)).result if place else None
    if kept is None:
        raise UsageError(f"there is nothing to score: {place or 'no run was opened for this sample'}")
    return kept


def score_of(result: Result) -> Score:
    """A result as Inspect shows one; what is not known is left out of the means."""
    known = {
        "success": float(result.success) if result.baseline is not None else None,
        "improvement": result.improvement,
        "score": result.score,
        "valid": float(result.valid),
    }
    return Score(
        value={name: math.nan if value is None else value for name, value in known.items()},
        answer=result.ending,
        explanation=judgement(result),
        metadata=result.model_dump(mode="json"),
    )
