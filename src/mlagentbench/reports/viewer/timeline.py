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
    """A staircase: each score holds from the end of its step to the end of the next; invalid states leave a gap."""
    ends = [segment.x + segment.width for segment in segments]
    graded = [grades.get(segment.number) for segment in segments]
    scores = [grade.score if grade else None for grade in graded]
    known = [score for score in scores if score is not None]
    if len(known) < 2:
        return ""
    low, high = min(known), max(known)
    path, drawing = [], False
    for place, score in enumerate(scores):
        if score is None:
            drawing = drawing and graded[place] is None  # a state that was not graded is the one before
            path += [f"H{ends[place]:.1f}"] if drawing else []
            continue
        height = (score - low) / (high - low) if high > low else 0.5
        y = BOTTOM - (BOTTOM - TOP) * (height if better == "higher" else 1 - height)
        path.append(f"V{y:.1f}" if drawing else f"M{ends[place]:.1f} {y:.1f}")
        drawing = True
        if place + 1 < len(ends):
            path.append(f"H{ends[place + 1]:.1f}")
    return "".join(path)
