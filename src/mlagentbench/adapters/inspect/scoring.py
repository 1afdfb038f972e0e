"""The grader as an Inspect scorer: success, progress, improvement, score and validity."""

import math
from pathlib import Path

from inspect_ai.scorer import Score, Scorer, Target, mean, scorer, stderr
from inspect_ai.solver import TaskState

from mlagentbench.adapters.inspect.sample_run import RUN_FOLDER_KEY, SampleRun
from mlagentbench.errors import Fault, UsageError
from mlagentbench.formatting import describe_verdict
from mlagentbench.records import Result
from mlagentbench.runner.folder import RunFolder

METRIC_NAMES = ("success", "progress", "improvement", "score", "valid")


@scorer(metrics={name: [mean(), stderr()] for name in METRIC_NAMES})
def verdict() -> Scorer:
    """Success and validity of every sample; improvement and score if there is one; faults are errors."""

    async def score(state: TaskState, target: Target) -> Score:
        result = await _resolve_result(state)
        if result.ending == "fault":
            raise Fault(result.note)
        return to_score(result)

    return score


async def _resolve_result(state: TaskState) -> Result:
    """The result of the open run, or of one that an earlier evaluation recorded."""
    if run := SampleRun.active.get(state.uuid):
        return await run.finish()
    folder = state.metadata.get(RUN_FOLDER_KEY)
    result = RunFolder(Path(folder)).result if folder else None
    if result is None:
        raise UsageError(f"There is nothing to score: {folder or 'no run was opened for this sample'}")
    return result


def to_score(result: Result) -> Score:
    """Convert a result to an Inspect score; unknown values are NaN, which the means leave out."""
    values = {
        "success": None if result.success is None else float(result.success),
        "progress": result.progress,
        "improvement": result.improvement,
        "score": result.score,
        "valid": float(result.valid),
    }
    return Score(
        value={name: math.nan if value is None else value for name, value in values.items()},
        answer=result.ending,
        explanation=describe_verdict(result),
        metadata=result.model_dump(mode="json"),
    )
