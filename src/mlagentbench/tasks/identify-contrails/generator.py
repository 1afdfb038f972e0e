"""Generates satellite scenes: drifting clouds, new contrails among look-alikes, and annotators who disagree.

Only uniform numbers of a fixed bit generator are used: other streams of numpy may change between versions.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

Array = NDArray[Any]

IMAGE_PIXELS, FRAMES, LABELLED_FRAME = 64, 8, 4  # frames are numbered from 0
CANVAS_PIXELS = 96  # fields are larger than the scene, so that what drifts out does not come in again
BANDS = ("band_11", "band_14", "band_15")
ANNOTATORS = 5
KELVIN_OFFSET, KELVIN_STEP = 236.0, 0.25  # kelvin = KELVIN_OFFSET + KELVIN_STEP * count

EMPTY_SHARE = 0.15  # of scenes without contrails
MIN_CONTRAILS, MAX_CONTRAILS = 2, 5  # in any other scene
OPTICAL_DEPTH_RANGE = (0.03, 0.20)  # of a new contrail
WIDENING_RANGE = (0.10, 0.30)  # pixels per frame
MEAN_STREAKS = 2.0  # of cirrus in a scene
STRIPED_ROW_SHARE = 0.03  # of the rows of a frame and band
NOISE_KELVIN = 0.25
VISIBLE_CONTRAST, CONTRAST_SPREAD = 0.40, 0.12  # kelvin at which half of the contrails are seen, and scale

DTYPE = np.float32  # far more precise than the sensor, and fast
ABSORPTION = np.array([0.78, 1.0, 1.28], DTYPE)[:, None, None, None]  # by ice, in each band
FREQUENCIES = np.meshgrid(
    np.fft.fftfreq(CANVAS_PIXELS).astype(DTYPE), np.fft.rfftfreq(CANVAS_PIXELS).astype(DTYPE), indexing="ij"
)
ROWS, COLUMNS = np.meshgrid(
    np.arange(IMAGE_PIXELS, dtype=DTYPE), np.arange(IMAGE_PIXELS, dtype=DTYPE), indexing="ij"
)
TIMES = np.arange(FRAMES, dtype=DTYPE) - LABELLED_FRAME


class Scene(NamedTuple):
    """The measurements of the satellite, and the mask of each annotator in the labelled frame."""

    counts: Array  # band, frame, row, column
    masks: Array  # annotator, row, column


class PortableRandom:
    """Random numbers derived from uniform ones, to be the same in all versions of numpy."""

    def __init__(self, *seed: int) -> None:
        self._uniforms = np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed)))

    def uniform(self, low: float, high: float, *shape: int) -> Array:
        """Draw numbers between `low` and `high`."""
        return np.asarray(low + (high - low) * self._uniforms.random(shape, dtype=DTYPE))

    def scalar(self, low: float, high: float) -> float:
        """Draw one number between `low` and `high`."""
        return float(self.uniform(low, high))

    def normal(self, *shape: int) -> Array:
        """Draw nearly standard normal numbers, as sums of three uniform numbers."""
        return np.asarray(2 * self.uniform(0, 1, 3, *shape).sum(axis=0) - 3)

    def bernoulli(self, probability: float) -> bool:
        """Return True with this probability."""
        return bool(self._uniforms.random() < probability)


class Line(NamedTuple):
    """A line of ice, at its position in the labelled frame."""

    row: float
    column: float
    angle: float
    length: float
    bend: float
    start_frame: float  # relative to the labelled frame, so below 0; cirrus streaks are always there

    def coordinates(self, wind: Array, times: Array) -> tuple[Array, Array]:
        """Return the coordinates of every pixel along and across the line at these times."""
        rows = ROWS - self.row - (wind[0] * times)[:, None, None]
        columns = COLUMNS - self.column - (wind[1] * times)[:, None, None]
        sine, cosine = math.sin(self.angle), math.cos(self.angle)
        along, across = rows * sine + columns * cosine, rows * cosine - columns * sine
        return along, across - self.bend * (along / IMAGE_PIXELS) ** 2


class Contrail(NamedTuple):
    """A contrail as the annotators meet it in the labelled frame."""

    line: Line
    width: float
    contrast: float  # kelvin, in the difference of bands 14 and 15


def generate_scene(seed: int, number: int) -> Scene:
    """Generate the scene with this number, independently of all others."""
    rng = PortableRandom(seed, number)
    contrails, temperatures = draw_sky(rng)
    masks = draw_annotations(rng, contrails)
    return Scene(_to_counts(rng, temperatures), masks)


def draw_sky(rng: PortableRandom) -> tuple[list[Contrail], Array]:
    """Draw what is there: the contrails, and the temperatures of each band and frame before the sensor."""
    wind, low_wind = rng.uniform(-2.2, 2.2, 2), rng.uniform(-1.2, 1.2, 2)  # pixels from one frame to the next
    corridor = rng.scalar(0, math.pi)

    ground = _add_low_clouds(rng, _draw_surface(rng), low_wind)
    cirrus = _draw_cirrus(rng, wind)
    for line in _draw_lines(rng, int(rng.scalar(0, 2 * MEAN_STREAKS)), corridor, 1.0, 14):
        width = rng.scalar(0.7, 2.6) * np.ones(FRAMES, DTYPE)
        cirrus = cirrus + rng.scalar(0.02, 0.13) * _line_profile(rng, line, wind, width)
    lines = (
        []
        if rng.bernoulli(EMPTY_SHARE)
        else _draw_lines(rng, int(rng.scalar(MIN_CONTRAILS, MAX_CONTRAILS + 1)), corridor, 0.25, 5)
    )
    widths = [0.65 + rng.scalar(*WIDENING_RANGE) * (TIMES - line.start_frame).clip(0) for line in lines]
    depths = [_draw_depth(rng, line, wind, width) for line, width in zip(lines, widths, strict=True)]

    ice = 222 + 10 * rng.scalar(0, 1)
    contrails = [
        Contrail(line, float(width[LABELLED_FRAME]), _contrail_contrast(ground, cirrus, depth, ice))
        for line, width, depth in zip(lines, widths, depths, strict=True)
    ]
    return contrails, _view_through_ice(ground, sum(depths, cirrus), ice)


def _noise_spectrum(rng: PortableRandom, exponent: float, stretch: float = 1.0, angle: float = 0.0) -> Array:
    """Return the spectrum of power-law noise, stretched in one direction."""
    down, right = FREQUENCIES
    sine, cosine = math.sin(angle), math.cos(angle)
    along, across = right * cosine + down * sine, down * cosine - right * sine
    squared = (stretch * along) ** 2 + across**2
    strength = (squared + (1 / CANVAS_PIXELS) ** 2) ** (-exponent / 2)
    strength[0, 0] = 0
    spectrum = np.fft.rfft2(rng.normal(CANVAS_PIXELS, CANVAS_PIXELS)) * strength
    return np.asarray(spectrum / np.fft.irfft2(spectrum).std(), np.complex64)


def _render_still(spectrum: Array) -> Array:
    """Return the image of a spectrum."""
    return np.asarray(np.fft.irfft2(spectrum)[:IMAGE_PIXELS, :IMAGE_PIXELS])


def _render_moving(spectrum: Array, other: Array, wind: Array) -> Array:
    """Return the image in all frames: it drifts with the wind, and slowly turns into the other one."""
    down, right = FREQUENCIES
    angle_of_mix = (0.08 * TIMES)[:, None, None]
    times = TIMES[:, None, None]
    shift = np.exp(-2j * math.pi * wind[0] * down[:, :1] * times) * np.exp(
        -2j * math.pi * wind[1] * right[:1] * times
    )
    return np.asarray(
        np.fft.irfft2(shift * (np.cos(angle_of_mix) * spectrum + np.sin(angle_of_mix) * other))[
            :, :IMAGE_PIXELS, :IMAGE_PIXELS
        ]
    )


def _draw_surface(rng: PortableRandom) -> Array:
    """Draw the temperature of land, sea and rivers in each band, which do not move."""
    shape = _render_still(_noise_spectrum(rng, 3.5)) + rng.scalar(-1.2, 1.2)
    slope = np.hypot(*np.gradient(shape)).clip(1e-3)
    coast = np.exp(-0.5 * (shape / slope / rng.scalar(0.5, 1.0)) ** 2)
    river = _render_still(_noise_spectrum(rng, 4.0)) + rng.scalar(-0.5, 0.5)
    water = np.exp(-0.5 * (river / np.hypot(*np.gradient(river)).clip(1e-3) / 0.6) ** 2) * (shape > 0)
    land = expit(6 * shape)
    base_temperature = (
        rng.scalar(284, 293) + 1.2 * _render_still(_noise_spectrum(rng, 3.0)) + rng.scalar(-4, 5) * land
    )
    edges = rng.scalar(0, 3) * coast + rng.scalar(0, 4) * water
    moisture = rng.scalar(0.4, 2.2) + 0.6 * _render_still(_noise_spectrum(rng, 2.6))
    band_offsets = [-rng.scalar(0.5, 2.5) * land - 1.5 * edges, -edges, -moisture - 1.3 * edges]
    return np.stack([base_temperature + band for band in band_offsets])[:, None]


def _add_low_clouds(rng: PortableRandom, ground: Array, wind: Array) -> Array:
    """Add water clouds, which hide what is below and look alike in all bands."""
    angle = rng.scalar(0, math.pi)
    texture = _render_moving(_noise_spectrum(rng, 2.2, 2, angle), _noise_spectrum(rng, 2.2, 2, angle), wind)
    cover = expit(5 * (texture - rng.scalar(-0.2, 1.8)))
    top = rng.scalar(258, 279) + 1.5 * texture
    bands = np.array([rng.scalar(-1, 0.5), 0, -rng.scalar(0, 1)], DTYPE)[:, None, None, None]
    return np.asarray(ground * (1 - cover) + (top + bands) * cover)


def _draw_cirrus(rng: PortableRandom, wind: Array) -> Array:
    """Draw the optical depth of natural ice clouds in all frames."""
    angle = rng.scalar(0, math.pi)
    texture = _render_moving(_noise_spectrum(rng, 2.4, 5, angle), _noise_spectrum(rng, 2.4, 5, angle), wind)
    return np.asarray(rng.scalar(0.02, 0.22) * (texture - rng.scalar(-0.3, 1.5)).clip(0))


def _draw_lines(rng: PortableRandom, count: int, corridor: float, angle_sd: float, bend: float) -> list[Line]:
    """Draw lines in the scene that run roughly along the corridor."""
    return [
        Line(
            row=rng.scalar(4, IMAGE_PIXELS - 4),
            column=rng.scalar(4, IMAGE_PIXELS - 4),
            angle=corridor + angle_sd * float(rng.normal()),
            length=rng.scalar(24, 70),
            bend=rng.scalar(-bend, bend),
            start_frame=-rng.scalar(0.05, 3.9),
        )
        for _ in range(count)
    ]


def _line_profile(rng: PortableRandom, line: Line, wind: Array, width: Array) -> Array:
    """Return the profile of a line in all frames: soft at its edges and ends, and of varying strength."""
    along, across = line.coordinates(wind, TIMES)
    patchy = 1 + 0.35 * np.sin(along * rng.scalar(0.1, 0.35) + rng.scalar(0, 6.3))
    ends = expit((line.length / 2 - np.abs(along)) / 1.5)
    return np.asarray(patchy * ends * np.exp(-0.5 * (across / width[:, None, None]) ** 2))


def _draw_depth(rng: PortableRandom, line: Line, wind: Array, width: Array) -> Array:
    """Draw the optical depth of a contrail: 0 before it starts, then lower as it widens."""
    depth = OPTICAL_DEPTH_RANGE[0] * (OPTICAL_DEPTH_RANGE[1] / OPTICAL_DEPTH_RANGE[0]) ** rng.scalar(0, 1)
    strength = depth * (width[0] / width) ** 0.6 * (line.start_frame <= TIMES)
    return np.asarray(strength[:, None, None] * _line_profile(rng, line, wind, width))


def _view_through_ice(ground: Array, depth: Array, ice: float) -> Array:
    """Return the temperatures seen from above through ice of this optical depth."""
    transmission = np.exp(-ABSORPTION * depth)
    return np.asarray(ground * transmission + ice * (1 - transmission))


def _contrail_contrast(ground: Array, cirrus: Array, contrail: Array, ice: float) -> float:
    """Return by how much a contrail changes the difference of bands 14 and 15 in the labelled frame."""
    below, core = ground[:, [LABELLED_FRAME]], contrail[[LABELLED_FRAME]]
    without = _view_through_ice(below, cirrus[[LABELLED_FRAME]], ice)
    difference = _view_through_ice(below, cirrus[[LABELLED_FRAME]] + core, ice) - without
    middle = core > 0.5 * core.max()
    return float((difference[1] - difference[2])[middle].mean())


def draw_annotations(rng: PortableRandom, contrails: list[Contrail]) -> Array:
    """Draw the masks of all annotators, who miss some contrails and draw the others slightly differently."""
    masks = np.zeros((ANNOTATORS, IMAGE_PIXELS, IMAGE_PIXELS), np.uint8)
    for mask in masks:
        bias, width_factor = 0.08 * float(rng.normal()), rng.scalar(0.9, 1.5)
        for line, width, contrast in contrails:
            is_seen = rng.bernoulli(float(expit((contrast - VISIBLE_CONTRAST - bias) / CONTRAST_SPREAD)))
            begin, end = line.length / 2 + 2.5 * rng.normal(2) - 1
            turned = line._replace(angle=line.angle + 0.015 * float(rng.normal()))
            (along,), (across,) = turned.coordinates(np.zeros(2, DTYPE), np.zeros(1, DTYPE))
            is_near = np.abs(across - 0.45 * float(rng.normal())) < 0.4 + width_factor * width
            if is_seen:
                mask[is_near & (-begin < along) & (along < end)] = 1
    return masks


def _to_counts(rng: PortableRandom, temperatures: Array) -> Array:
    """Convert temperatures to sensor counts, with noise and some striped rows."""
    is_striped = rng.uniform(0, 1, len(BANDS), FRAMES, IMAGE_PIXELS, 1) < STRIPED_ROW_SHARE
    stripes = is_striped * rng.normal(len(BANDS), FRAMES, IMAGE_PIXELS, 1)
    kelvin = temperatures + stripes + NOISE_KELVIN * rng.normal(*temperatures.shape)
    return ((kelvin - KELVIN_OFFSET) / KELVIN_STEP).round().clip(0, 255).astype(np.uint8)
