"""How fast a run made progress: areas under its curve, and the steps it took to reach each level."""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from mlagentbench.analysis.anytime import CurvePoint, build_curve, read_step_grades
from mlagentbench.analysis.runs import Run
from mlagentbench.records import RunSpec

MIN_SECONDS = 1.0  # where the logarithmic time axis begins


class Pace(NamedTuple):
    """The pace of one run with graded steps.

    Attributes:
        over_steps: Mean progress over the logarithm of the steps, from step 1 to the step limit.
        over_time: Mean progress over the logarithm of the time, from one second to the time limit.
        steps_to_level: The first step whose workspace scores at least as well as a level; None if none does.
    """

    over_steps: float
    over_time: float
    steps_to_level: dict[str, int | None]


def knows_progress(spec: RunSpec) -> bool:
    """Whether the levels between which progress is measured are known."""
    return spec.levels.starter is not None and spec.levels.expert is not None


def measure_pace(run: Run) -> Pace | None:
    """Measure the pace of a run; None if its steps were not graded or its levels are not known.

    A state without a valid submission has no progress. After its end, a run keeps its last progress.
    """
    points = build_curve(run, read_step_grades(run)) if knows_progress(run.spec) else ()
    if not points:
        return None
    spec = run.spec
    by_step = [(float(point.step), point.progress or 0.0) for point in points]
    by_time = [(point.seconds, point.progress or 0.0) for point in points]
    return Pace(
        over_steps=_log_mean(by_step, 1.0, spec.limits.steps + 1),
        over_time=_log_mean(by_time, MIN_SECONDS, max(spec.limits.hours * 3600, 2 * MIN_SECONDS)),
        steps_to_level={level: _first_step_at(points, spec, score) for level, score in level_scores(spec)},
    )


def level_scores(spec: RunSpec) -> Iterator[tuple[str, float]]:
    """The known levels above the starter, with their scores."""
    levels = spec.levels
    if levels.reference:
        yield "reference", levels.reference.mean
    if levels.expert:
        yield "expert", levels.expert.mean
    if levels.ceiling:
        yield "ceiling", levels.ceiling.score


def _first_step_at(points: Sequence[CurvePoint], spec: RunSpec, level: float) -> int | None:
    sign = 1 if spec.better == "higher" else -1
    reached = (p.step for p in points if p.score is not None and sign * p.score >= sign * level)
    return next(reached, None)


def _log_mean(points: Sequence[tuple[float, float]], start: float, end: float) -> float:
    """The mean of a step function over the logarithm of its position, from `start` to `end`."""
    area = 0.0
    for index, (position, value) in enumerate(points):
        following = points[index + 1][0] if index + 1 < len(points) else end
        low, high = (min(max(bound, start), end) for bound in (position, following))
        area += value * math.log(max(high, low) / low)
    return area / math.log(end / start)
