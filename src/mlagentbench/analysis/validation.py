"""The validation figure that an agent saw last, held against the score that it never saw."""

import math

from pydantic import ValidationError

from mlagentbench.agents.tuner import parse_validation_score
from mlagentbench.analysis.runs import Run
from mlagentbench.records import Step

RELATIVE_METRIC_MARKER = (
    "relative to"  # a metric of this kind has another unit than anything that a script can print
)


def find_last_validation_score(run: Run) -> float | None:
    """The number of the last line `validation <metric>: <number>` in an observation, if there is one."""
    last = math.nan
    for line, _ in run.folder.trace.lines():
        if "validation " in line or "Validation " in line:  # most lines need not be read in full
            try:
                found = parse_validation_score(Step.model_validate_json(line).observation)
            except ValidationError:
                continue  # a damaged record is told of among the findings
            last = last if math.isnan(found) else found
    return last if math.isfinite(last) else None


def compute_validation_gap(run: Run) -> float | None:
    """How much better the figure looked than the score is, in the unit of improvements: positive is too hopeful."""
    spec, result = run.spec, run.result
    if (
        not result
        or result.score is None
        or not spec.baseline
        or not spec.baseline.mean
        or RELATIVE_METRIC_MARKER in spec.metric
    ):
        return None
    shown = find_last_validation_score(run)
    if shown is None:
        return None
    ahead = shown - result.score if spec.better == "higher" else result.score - shown
    return ahead / abs(spec.baseline.mean)
