"""The bar above the steps: as wide as they took, coloured by what they were, with the score over it."""

from collections.abc import Sequence
from dataclasses import dataclass

from mlagentbench.records import Better
from mlagentbench.reports.viewer.steps import Shown

WIDTH = 1000.0
FLOOR = 0.4  # of the width is shared out evenly, so that short steps can be hit
TOP, BOTTOM = 12.0, 38.0  # between which the score moves


@dataclass(frozen=True)
class Segment:
    """One step; the thinking before the deed is its paler part."""

    number: int
    x: float
    thinking: float
    width: float
    kind: str
    failed: bool
    found: bool
    title: str


@dataclass(frozen=True)
class Timeline:
    """All steps, and the score's path as SVG writes it."""

    segments: tuple[Segment, ...]
    score: str


def timeline(steps: Sequence[Shown], better: Better) -> Timeline:
    """The bar of these steps."""
    lengths = [max(step.clock - step.began, step.seconds, 0.0) for step in steps]
    whole = sum(lengths) or 1.0
    x, segments = 0.0, []
    for step, length in zip(steps, lengths, strict=True):
        width = WIDTH * (FLOOR / len(steps) + (1 - FLOOR) * length / whole)
        thinking = width * (1 - min(step.seconds / length, 1.0)) if length else 0.0
        found = bool(step.findings)
        title = f"{step.number} · {step.action} {step.subject}".strip()
        segments.append(Segment(step.number, x, thinking, width, step.kind, step.failed, found, title))
        x += width
    return Timeline(tuple(segments), _path(steps, segments, better))


def _path(steps: Sequence[Shown], segments: Sequence[Segment], better: Better) -> str:
    """A staircase: each score holds from the end of its step to the end of the next; invalid states leave a gap."""
    ends = [segment.x + segment.width for segment in segments]
    scores = [step.grade.score if step.grade else None for step in steps]
    known = [score for score in scores if score is not None]
    if len(known) < 2:
        return ""
    low, high = min(known), max(known)
    path, drawing = [], False
    for place, score in enumerate(scores):
        if score is None:
            drawing = drawing and steps[place].grade is None  # a state that was not graded is the one before
            path += [f"H{ends[place]:.1f}"] if drawing else []
            continue
        height = (score - low) / (high - low) if high > low else 0.5
        y = BOTTOM - (BOTTOM - TOP) * (height if better == "higher" else 1 - height)
        path.append(f"V{y:.1f}" if drawing else f"M{ends[place]:.1f} {y:.1f}")
        drawing = True
        if place + 1 < len(ends):
            path.append(f"H{ends[place + 1]:.1f}")
    return "".join(path)
