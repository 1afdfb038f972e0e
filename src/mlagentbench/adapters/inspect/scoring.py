"""Our grader as Inspect's scorer: whether it beat the baseline, by how much, with what score."""

import math
from pathlib import Path

from inspect_ai.scorer import Score, Scorer, Target, mean, scorer, stderr
from inspect_ai.solver import TaskState

from mlagentbench.adapters.inspect.sample_run import RUN_FOLDER_KEY, SampleRun
from mlagentbench.errors import Fault, UsageError
from mlagentbench.formatting import describe_verdict
from mlagentbench.records import Result
from mlagentbench.runner.folder import RunFolder

METRIC_NAMES = ("success", "improvement", "score", "valid")


@scorer(metrics={name: [mean(), stderr()] for name in METRIC_NAMES})
def verdict() -> Scorer:
    """Success and validity of every sample; improvement and score of those that have one. A fault is an error."""

    async def score(state: TaskState, target: Target) -> Score:
        result = await _resolve_result(state)
        if result.ending == "fault":
            raise Fault(result.note)
        return to_score(result)

    return score


async def _resolve_result(state: TaskState) -> Result:
    """Of the run that is open, or of one that an earlier evaluation kept."""
    if attempt := SampleRun.active.get(state.uuid):
        return await attempt.finish()
    place = state.metadata.get(RUN_FOLDER_KEY)
    kept = RunFolder(Path(place)).result if place else None
    if kept is None:
        raise UsageError(f"there is nothing to score: {place or 'no run was opened for this sample'}")
    return kept


def to_score(result: Result) -> Score:
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
        explanation=describe_verdict(result),
        metadata=result.model_dump(mode="json"),
    )
