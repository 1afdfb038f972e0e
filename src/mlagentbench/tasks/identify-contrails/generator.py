"""Invents satellite scenes: clouds that drift, fresh contrails among look-alikes, and annotators who do not agree.

Only uniform numbers are drawn, by a named bit generator: other streams of numpy may change between its versions.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

Array = NDArray[Any]

SIZE, FRAMES, LABELLED = 64, 8, 4  # pixels, frames, and the frame (from 0) that the annotators look at
CANVAS = 96  # fields are made larger than the scene, so that nothing which drifts out comes in again
BANDS = ("band_11", "band_14", "band_15")
ANNOTATORS = 5
OFFSET, STEP = 236.0, 0.25  # kelvin = OFFSET + STEP * count

EMPTY = 0.15  # share of scenes in which no contrail appears
FEWEST, MOST = 2, 5  # contrails in any other scene
DEPTHS = (0.03, 0.20)  # optical depth of a contrail when it is new
SPREADS = (0.10, 0.30)  # pixels by which it widens from frame to frame
STREAKS = 2.0  # streaks of cirrus in a scene, on average
STRIPED = 0.03  # share of the rows of a frame and band that are off
NOISE = 0.25  # kelvin
SEEN, UNSURE = (
    0.40,
    0.12,
)  # kelvin of contrast at which an annotator sees half of the contrails, and how sharply

EXACT = np.float32  # far more exact than the sensor, and fast
ABSORBS = np.array([0.78, 1.0, 1.28], EXACT)[:, None, None, None]  # how much ice absorbs in each band
FREQUENCIES = np.meshgrid(
    np.fft.fftfreq(CANVAS).astype(EXACT), np.fft.rfftfreq(CANVAS).astype(EXACT), indexing="ij"
)
ROWS, COLUMNS = np.meshgrid(np.arange(SIZE, dtype=EXACT), np.arange(SIZE, dtype=EXACT), indexing="ij")
TIMES = np.arange(FRAMES, dtype=EXACT) - LABELLED


class Scene(NamedTuple):
    """What the satellite measured, and what each annotator marked in the labelled frame."""

    counts: Array  # band, frame, row, column
    masks: Array  # annotator, row, column


class Draw:
    """Random numbers, all made from uniform ones."""

    def __init__(self, *seed: int) -> None:
        self.source = np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed)))

    def uniform(self, low: float, high: float, *shape: int) -> Array:
        """Between two numbers."""
        return np.asarray(low + (high - low) * self.source.random(shape, dtype=EXACT))

    def number(self, low: float, high: float) -> float:
        """One number between two others."""
        return float(self.uniform(low, high))

    def normal(self, *shape: int) -> Array:
        """With mean 0 and standard deviation 1; nearly normal, since three uniform numbers are added."""
        return np.asarray(2 * self.uniform(0, 1, 3, *shape).sum(axis=0) - 3)

    def chance(self, probability: float) -> bool:
        """True as often as that."""
        return bool(self.source.random() < probability)


class Line(NamedTuple):
    """A line of ice, placed where it is in the labelled frame."""

    row: float
    column: float
    angle: float
    length: float
    bend: float
    born: float  # frames after the labelled one, so below 0; streaks of cirrus were there all the time

    def along_across(self, wind: Array, times: Array) -> tuple[Array, Array]:
        """How far every pixel lies from the middle of the line, along it and across it, at these times."""
        rows = ROWS - self.row - (wind[0] * times)[:, None, None]
        columns = COLUMNS - self.column - (wind[1] * times)[:, None, None]
        sine, cosine = math.sin(self.angle), math.cos(self.angle)
        along, across = rows * sine + columns * cosine, rows * cosine - columns * sine
        return along, across - self.bend * (along / SIZE) ** 2


def scene(seed: int, number: int) -> Scene:
    """The scene with this number; no scene depends on another."""
    draw = Draw(seed, number)
    wind, low_wind = (
        draw.uniform(-2.2, 2.2, 2),
        draw.uniform(-1.2, 1.2, 2),
    )  # pixels from one frame to the next
    corridor = draw.number(0, math.pi)

    ground = _low_clouds(draw, _surface(draw), low_wind)
    cirrus = _cirrus(draw, wind)
    for line in _lines(draw, int(draw.number(0, 2 * STREAKS)), corridor, 1.0, 14):
        width = draw.number(0.7, 2.6) * np.ones(FRAMES, EXACT)
        cirrus = cirrus + draw.number(0.02, 0.13) * _profile(draw, line, wind, width)
    lines = [] if draw.chance(EMPTY) else _lines(draw, int(draw.number(FEWEST, MOST + 1)), corridor, 0.25, 5)
    widths = [0.65 + draw.number(*SPREADS) * (TIMES - line.born).clip(0) for line in lines]
    trails = [_trail(draw, line, wind, width) for line, width in zip(lines, widths, strict=True)]

    ice = 222 + 10 * draw.number(0, 1)
    measured = _through(ground, sum(trails, cirrus), ice)
    contrasts = [_contrast(ground, cirrus, trail, ice) for trail in trails]
    masks = _annotate(draw, lines, [float(width[LABELLED]) for width in widths], contrasts)
    return Scene(_sensed(draw, measured), masks)


def _field(draw: Draw, exponent: float, stretch: float = 1.0, angle: float = 0.0) -> Array:
    """The spectrum of random noise by a power law, drawn out in one direction."""
    down, right = FREQUENCIES
    sine, cosine = math.sin(angle), math.cos(angle)
    along, across = right * cosine + down * sine, down * cosine - right * sine
    squared = (stretch * along) ** 2 + across**2
    strength = (squared + (1 / CANVAS) ** 2) ** (-exponent / 2)
    strength[0, 0] = 0
    spectrum = np.fft.rfft2(draw.normal(CANVAS, CANVAS)) * strength
    return np.asarray(spectrum / np.fft.irfft2(spectrum).std(), np.complex64)


def _still(spectrum: Array) -> Array:
    """The scene that a spectrum stands for."""
    return np.asarray(np.fft.irfft2(spectrum)[:SIZE, :SIZE])


def _moving(spectrum: Array, other: Array, wind: Array) -> Array:
    """The same in all frames: it drifts with the wind, and turns slowly into the other one."""
    down, right = FREQUENCIES
    turn = (0.08 * TIMES)[:, None, None]
    times = TIMES[:, None, None]
    shift = np.exp(-2j * math.pi * wind[0] * down[:, :1] * times) * np.exp(
        -2j * math.pi * wind[1] * right[:1] * times
    )
    return np.asarray(
        np.fft.irfft2(shift * (np.cos(turn) * spectrum + np.sin(turn) * other))[:, :SIZE, :SIZE]
    )


def _surface(draw: Draw) -> Array:
    """The temperature of land, sea and thin lines of water in each band; nothing here moves."""
    shape = _still(_field(draw, 3.5)) + draw.number(-1.2, 1.2)
    slope = np.hypot(*np.gradient(shape)).clip(1e-3)
    coast = np.exp(-0.5 * (shape / slope / draw.number(0.5, 1.0)) ** 2)
    river = _still(_field(draw, 4.0)) + draw.number(-0.5, 0.5)
    water = np.exp(-0.5 * (river / np.hypot(*np.gradient(river)).clip(1e-3) / 0.6) ** 2) * (shape > 0)
    land = expit(6 * shape)
    warm = draw.number(284, 293) + 1.2 * _still(_field(draw, 3.0)) + draw.number(-4, 5) * land
    thin = draw.number(0, 3) * coast + draw.number(0, 4) * water
    moist = draw.number(0.4, 2.2) + 0.6 * _still(_field(draw, 2.6))
    emits = [-draw.number(0.5, 2.5) * land - 1.5 * thin, -thin, -moist - 1.3 * thin]
    return np.stack([warm + band for band in emits])[:, None]


def _low_clouds(draw: Draw, ground: Array, wind: Array) -> Array:
    """The scene with clouds of water, which hide what is below and look alike in all bands."""
    angle = draw.number(0, math.pi)
    texture = _moving(_field(draw, 2.2, 2, angle), _field(draw, 2.2, 2, angle), wind)
    cover = expit(5 * (texture - draw.number(-0.2, 1.8)))
    top = draw.number(258, 279) + 1.5 * texture
    bands = np.array([draw.number(-1, 0.5), 0, -draw.number(0, 1)], EXACT)[:, None, None, None]
    return np.asarray(ground * (1 - cover) + (top + bands) * cover)


def _cirrus(draw: Draw, wind: Array) -> Array:
    """The optical depth of natural ice clouds in all frames."""
    angle = draw.number(0, math.pi)
    texture = _moving(_field(draw, 2.4, 5, angle), _field(draw, 2.4, 5, angle), wind)
    return np.asarray(draw.number(0.02, 0.22) * (texture - draw.number(-0.3, 1.5)).clip(0))


def _lines(draw: Draw, count: int, corridor: float, spread: float, bend: float) -> list[Line]:
    """Lines somewhere in the scene, which run more or less along the corridor."""
    return [
        Line(
            row=draw.number(4, SIZE - 4),
            column=draw.number(4, SIZE - 4),
            angle=corridor + spread * float(draw.normal()),
            length=draw.number(24, 70),
            bend=draw.number(-bend, bend),
            born=-draw.number(0.05, 3.9),
        )
        for _ in range(count)
    ]


def _profile(draw: Draw, line: Line, wind: Array, width: Array) -> Array:
    """A line in all frames: soft at its edges and ends, and not of one strength along it."""
    along, across = line.along_across(wind, TIMES)
    patchy = 1 + 0.35 * np.sin(along * draw.number(0.1, 0.35) + draw.number(0, 6.3))
    ends = expit((line.length / 2 - np.abs(along)) / 1.5)
    return np.asarray(patchy * ends * np.exp(-0.5 * (across / width[:, None, None]) ** 2))


def _trail(draw: Draw, line: Line, wind: Array, width: Array) -> Array:
    """The optical depth of a contrail: none before it is born, then thinner as it widens."""
    depth = DEPTHS[0] * (DEPTHS[1] / DEPTHS[0]) ** draw.number(0, 1)
    strength = depth * (width[0] / width) ** 0.6 * (line.born <= TIMES)
    return np.asarray(strength[:, None, None] * _profile(draw, line, wind, width))


def _through(ground: Array, depth: Array, ice: float) -> Array:
    """What is seen from above through ice of this optical depth."""
    clear = np.exp(-ABSORBS * depth)
    return np.asarray(ground * clear + ice * (1 - clear))


def _contrast(ground: Array, cirrus: Array, trail: Array, ice: float) -> float:
    """By how much a contrail changes the difference of bands 14 and 15 along its middle, in the labelled frame."""
    below, core = ground[:, [LABELLED]], trail[[LABELLED]]
    without = _through(below, cirrus[[LABELLED]], ice)
    difference = _through(below, cirrus[[LABELLED]] + core, ice) - without
    middle = core > 0.5 * core.max()
    return float((difference[1] - difference[2])[middle].mean())


def _annotate(draw: Draw, lines: list[Line], widths: list[float], contrasts: list[float]) -> Array:
    """The masks of all annotators: each overlooks some contrails, and draws the others in a way of their own."""
    masks = np.zeros((ANNOTATORS, SIZE, SIZE), np.uint8)
    for mask in masks:
        strict, broad = 0.08 * float(draw.normal()), draw.number(0.9, 1.5)
        for line, width, contrast in zip(lines, widths, contrasts, strict=True):
            sees = draw.chance(float(expit((contrast - SEEN - strict) / UNSURE)))
            begin, end = line.length / 2 + 2.5 * draw.normal(2) - 1
            turned = line._replace(angle=line.angle + 0.015 * float(draw.normal()))
            (along,), (across,) = turned.along_across(np.zeros(2, EXACT), np.zeros(1, EXACT))
            near = np.abs(across - 0.45 * float(draw.normal())) < 0.4 + broad * width
            if sees:
                mask[near & (-begin < along) & (along < end)] = 1
    return masks


def _sensed(draw: Draw, measured: Array) -> Array:
    """Counts as the sensor gives them: noisy, with some rows off."""
    off = draw.uniform(0, 1, len(BANDS), FRAMES, SIZE, 1) < STRIPED
    stripes = off * draw.normal(len(BANDS), FRAMES, SIZE, 1)
    kelvin = measured + stripes + NOISE * draw.normal(*measured.shape)
    return ((kelvin - OFFSET) / STEP).round().clip(0, 255).astype(np.uint8)
