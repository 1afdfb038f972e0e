"""The bar above the steps: as wide as they took, coloured by what they were, with the score over it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mlagentbench.records import Better
from mlagentbench.reports.anytime import StepGrade
from mlagentbench.reports.process.findings import Finding
from mlagentbench.reports.runs import Run
from mlagentbench.reports.viewer.steps import NAME, Kind, subject_of, went_wrong

WIDTH = 1000.0
FLOOR = 0.4  # of the width is shared out evenly, so that short steps can be hit
TOP, BOTTOM = 3.0, 22.0  # between which the score moves


@dataclass(frozen=True)
class Segment:
    """One step; the thinking before the deed is its paler part."""

    number: int
    x: float
    thinking: float
    width: float
    kind: Kind
    failed: bool
    found: bool
    title: str


@dataclass(frozen=True)
class Timeline:
    """All steps, and the score's path as SVG writes it."""

    segments: tuple[Segment, ...]
    score: str


def timeline(run: Run, kinds: Mapping[int, Kind], findings: Sequence[Finding], grades: Sequence[StepGrade]) -> Timeline:
    """The bar of a run."""
    steps = run.steps
    clocks = [0.0, *(step.clock for step in steps)]
    lengths = [max(step.clock - before, step.seconds, 0.0) for step, before in zip(steps, clocks, strict=False)]
    whole = sum(lengths) or 1.0
    noted = {number for finding in findings for number in finding.steps}
    x, segments = 0.0, []
    for step, length in zip(steps, lengths, strict=True):
        width = WIDTH * (FLOOR / len(steps) + (1 - FLOOR) * length / whole)
        thinking = width * (1 - min(step.seconds / length, 1.0)) if length else 0.0
        kind, title = kinds[step.number], f"{step.number} · {step.call.action[:NAME]} {subject_of(step)}".strip()
        found = step.number in noted
        segments.append(Segment(step.number, x, thinking, width, kind, went_wrong(step), found, title))
        x += width
    return Timeline(tuple(segments), _path({grade.step: grade for grade in grades}, segments, run.spec.better))


def _path(grades: Mapping[int, StepGrade], segments: Sequence[Segment], better: Better) -> str:
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
            y = BOTTOM - (BOTTOM - TOP) * (height if better == "higher" else 1 - height)
            path.append(f"V{y:.1f}" if drawing else f"M{segment.x:.1f} {y:.1f}")
        drawing = grade.score is not None if grade else drawing  # what was not graded is as the step before left it
        if drawing:
            path.append(f"H{segment.x + segment.width:.1f}")
    return "".join(path)
