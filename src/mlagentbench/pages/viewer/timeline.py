"""The timeline above the steps: width by duration, color by kind of step, and the score above it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mlagentbench.analysis.anytime import StepGrade
from mlagentbench.analysis.runs import Run
from mlagentbench.formatting import action_title
from mlagentbench.pages.viewer.step_views import MAX_NAME_CHARS, StepKind, has_failed, short_first_argument
from mlagentbench.process.findings import Finding
from mlagentbench.records import Better

TIMELINE_WIDTH = 1000.0
EVEN_WIDTH_FRACTION = 0.4  # of the width is divided evenly, so that short steps can be clicked
SCORE_TOP, SCORE_BOTTOM = 3.0, 22.0  # vertical range of the score


@dataclass(frozen=True)
class TimelineSegment:
    """One step; the time before its action started (the agent's thinking) is drawn paler."""

    number: int
    x: float
    thinking_width: float
    width: float
    kind: StepKind
    failed: bool
    has_finding: bool
    title: str


@dataclass(frozen=True)
class Timeline:
    """All steps, and the score as an SVG path."""

    segments: tuple[TimelineSegment, ...]
    score_path: str


def build_timeline(
    run: Run, kinds: Mapping[int, StepKind], findings: Sequence[Finding], grades: Sequence[StepGrade]
) -> Timeline:
    """Lay out the timeline of a run."""
    steps = run.steps
    previous_clocks = [0.0, *(step.clock for step in steps)]
    durations = [
        max(step.clock - previous, step.seconds, 0.0)
        for step, previous in zip(steps, previous_clocks, strict=False)
    ]
    total = sum(durations) or 1.0
    steps_with_findings = {number for finding in findings for number in finding.steps}
    x, segments = 0.0, []
    for step, duration in zip(steps, durations, strict=True):
        even, proportional = EVEN_WIDTH_FRACTION / len(steps), (1 - EVEN_WIDTH_FRACTION) * duration / total
        width = TIMELINE_WIDTH * (even + proportional)
        title = f"{step.number} · {action_title(step.call)[:MAX_NAME_CHARS]} {short_first_argument(step)}"
        segments.append(
            TimelineSegment(
                number=step.number,
                x=x,
                thinking_width=width * (1 - min(step.seconds / duration, 1.0)) if duration else 0.0,
                width=width,
                kind=kinds[step.number],
                failed=has_failed(step),
                has_finding=step.number in steps_with_findings,
                title=title.strip(),
            )
        )
        x += width
    grades_by_step = {grade.step: grade for grade in grades}
    return Timeline(tuple(segments), _score_path(grades_by_step, segments, run.spec.better))


def _score_path(grades: Mapping[int, StepGrade], segments: Sequence[TimelineSegment], better: Better) -> str:
    """A staircase of the scores, each above its step; invalid states leave a gap."""
    step_grades = [grades.get(segment.number) for segment in segments]
    scores = [grade.score for grade in step_grades if grade and grade.score is not None]
    if len(scores) < 2:
        return ""
    low, high = min(scores), max(scores)
    path, drawing = [], False
    for segment, grade in zip(segments, step_grades, strict=True):
        if grade and grade.score is not None:
            height = (grade.score - low) / (high - low) if high > low else 0.5
            y = SCORE_BOTTOM - (SCORE_BOTTOM - SCORE_TOP) * (height if better == "higher" else 1 - height)
            path.append(f"V{y:.1f}" if drawing else f"M{segment.x:.1f} {y:.1f}")
        # A step without a grade left the submission unchanged.
        if grade:
            drawing = grade.score is not None
        if drawing:
            path.append(f"H{segment.x + segment.width:.1f}")
    return "".join(path)
