"""Validation gap: the last validation score that an agent saw, compared with the hidden test score."""

import math

from pydantic import ValidationError

from mlagentbench.agents.tuner import parse_validation_score
from mlagentbench.analysis.runs import Run
from mlagentbench.records import Step

RELATIVE_METRIC_MARKER = "relative to"  # such a metric has a different unit than anything a script prints


def find_last_validation_score(run: Run) -> float | None:
    """The number in the last line `validation <metric>: <number>` of any observation, if there is one."""
    last = math.nan
    for line, _ in run.folder.trace.lines():
        if "validation " in line or "Validation " in line:  # skips parsing most lines
            try:
                score = parse_validation_score(Step.model_validate_json(line).observation)
            except ValidationError:
                continue  # a damaged record is reported as a finding
            last = last if math.isnan(score) else score
    return last if math.isfinite(last) else None


def compute_validation_gap(run: Run) -> float | None:
    """How much the validation score overstates the score, in units of improvement; positive is optimistic."""
    spec, result = run.spec, run.result
    if not result or result.score is None or not spec.baseline or not spec.baseline.mean:
        return None
    if RELATIVE_METRIC_MARKER in spec.metric:
        return None
    validation = find_last_validation_score(run)
    if validation is None:
        return None
    excess = validation - result.score if spec.better == "higher" else result.score - validation
    return excess / abs(spec.baseline.mean)
