"""The bar above the steps: as wide as they took, coloured by what they were, with the score over it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mlagentbench.analysis.anytime import StepGrade
from mlagentbench.analysis.runs import Run
from mlagentbench.pages.viewer.step_views import MAX_NAME_CHARS, StepKind, has_failed, short_first_argument
from mlagentbench.process.findings import Finding
from mlagentbench.records import Better

TIMELINE_WIDTH = 1000.0
EVEN_WIDTH_FRACTION = 0.4  # of the width is shared out evenly, so that short steps can be hit
SCORE_TOP, SCORE_BOTTOM = 3.0, 22.0  # between which the score moves


@dataclass(frozen=True)
class TimelineSegment:
    """One step; the thinking before the deed is its paler part."""

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
    """All steps, and the score's path as SVG writes it."""

    segments: tuple[TimelineSegment, ...]
    score_path: str


def build_timeline(
    run: Run, kinds: Mapping[int, StepKind], findings: Sequence[Finding], grades: Sequence[StepGrade]
) -> Timeline:
    """The bar of a run."""
    steps = run.steps
    clocks = [0.0, *(step.clock for step in steps)]
    lengths = [
        max(step.clock - before, step.seconds, 0.0) for step, before in zip(steps, clocks, strict=False)
    ]
    whole = sum(lengths) or 1.0
    noted = {number for finding in findings for number in finding.steps}
    x, segments = 0.0, []
    for step, length in zip(steps, lengths, strict=True):
        width = TIMELINE_WIDTH * (
            EVEN_WIDTH_FRACTION / len(steps) + (1 - EVEN_WIDTH_FRACTION) * length / whole
        )
        thinking = width * (1 - min(step.seconds / length, 1.0)) if length else 0.0
        kind, title = (
            kinds[step.number],
            f"{step.number} · {step.call.action[:MAX_NAME_CHARS]} {short_first_argument(step)}".strip(),
        )
        found = step.number in noted
        segments.append(
            TimelineSegment(step.number, x, thinking, width, kind, has_failed(step), found, title)
        )
        x += width
    return Timeline(
        tuple(segments), _score_path({grade.step: grade for grade in grades}, segments, run.spec.better)
    )


def _score_path(grades: Mapping[int, StepGrade], segments: Sequence[TimelineSegment], better: Better) -> str:
    """A staircase with the score of each step over its bar; invalid states leave a gap."""
    graded = [grades.get(segment.number) for segment in segments]
    known = [grade.score for grade in graded if grade and grade.score is not None]
    if len(known) < 2:
        return ""
    low, high = min(known), max(known)
    path, drawing = [], False
    for segment, grade in zip(segments, graded, strict=True):
        if grade and grade.score is not None:
            height = (grade.score - low) / (high - low) if high > low else 0.5
            y = SCORE_BOTTOM - (SCORE_BOTTOM - SCORE_TOP) * (height if better == "higher" else 1 - height)
            path.append(f"V{y:.1f}" if drawing else f"M{segment.x:.1f} {y:.1f}")
        drawing = (
            grade.score is not None if grade else drawing
        )  # what was not graded is as the step before left it
        if drawing:
            path.append(f"H{segment.x + segment.width:.1f}")
    return "".join(path)
