"""Generates scenes of a dive: sketches in place of animals, in water that changes with depth.

Only uniform numbers of a fixed bit generator are used: other streams of numpy may change between versions.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import affine_transform, gaussian_filter
from scipy.special import ndtri

Array = NDArray[Any]

SUPERCATEGORIES = {
    "Clothing": ["bowtie", "crown", "eyeglasses", "hat", "pants", "shoe", "sock", "t-shirt"],
    "Flying animal": ["bat", "bee", "bird", "butterfly", "flamingo", "mosquito", "owl", "swan"],
    "Household": ["candle", "chair", "coffee cup", "door", "hourglass", "light bulb", "table", "teapot"],
    "Land animal": ["camel", "cat", "elephant", "giraffe", "hedgehog", "pig", "rabbit", "snail"],
    "Plant": ["cactus", "flower", "grapes", "leaf", "mushroom", "palm tree", "pineapple", "tree"],
    "Sea animal": ["crab", "dolphin", "fish", "lobster", "octopus", "sea turtle", "shark", "whale"],
    "Tool": ["axe", "hammer", "key", "ladder", "rake", "saw", "scissors", "umbrella"],
    "Vehicle": [
        "airplane",
        "bicycle",
        "bus",
        "helicopter",
        "hot air balloon",
        "sailboat",
        "submarine",
        "tractor",
    ],
}
NAMES = [name for group in SUPERCATEGORIES.values() for name in group]

BOUNDARY_M, BOTTOM_M = 800.0, 1300.0  # scenes below the boundary are out of sample
DEEP_CATEGORIES, SHALLOW_CATEGORIES = 14, 22  # only below the boundary; those that end above the bottom
SHALLOW_END_RANGE_M = (250.0, 1150.0)
DEEP_START_RANGE_M = (800.0, 1000.0)
RANK_OFFSET = 2.0  # the category of rank r has the weight 1 / (r + RANK_OFFSET)
DEEP_SHARE = 0.35  # of the deep categories in what occurs at the bottom


class WaterProperty(NamedTuple):
    """A property of the water that is normally distributed, with a mean that is linear in depth."""

    at_surface: float
    change_to_bottom: float
    deviation: float

    def value(self, depth: Any, normal: Any) -> Any:
        """Return its value at a depth (0 to 1, the bottom) for a standard normal number."""
        return self.at_surface + self.change_to_bottom * depth + self.deviation * normal


LOG_BRIGHTNESS = WaterProperty(4.2, -0.25, 0.25)
BLUR, MIN_BLUR = WaterProperty(0.3, 0.35, 0.22), 0.05
LOG_PARTICLES = WaterProperty(2.3, 0.6, 0.5)
LOG_NOISE = WaterProperty(1.5, 0.3, 0.25)

IMAGE_PIXELS = 96  # width and height
SKETCH_PIXELS = 28
MAX_SKETCHES, EXTRA_SKETCH_PROBABILITY = 6, 0.35  # in a scene; of each after the first
MAX_PLACEMENTS, MAX_OVERLAP = 12, 0.3  # tried for a sketch; share of a box that another may cover
INK_THRESHOLD = 0.25  # pixels above it belong to a sketch


def _interpolation_matrix(cells: int) -> Array:
    """Return the matrix that interpolates `cells` numbers linearly to IMAGE_PIXELS numbers."""
    result: Array = np.stack(
        [np.interp(np.linspace(0, cells - 1, IMAGE_PIXELS), range(cells), row) for row in np.eye(cells)], 1
    )
    return result


GROUND_LAYERS = [
    (_interpolation_matrix(4), 0.16),
    (_interpolation_matrix(12), 0.12),
    (_interpolation_matrix(32), 0.08),
]  # from coarse to fine, with their strengths


class Box(NamedTuple):
    """A category and its bounding box, in pixels."""

    category: int
    x: int
    y: int
    width: int
    height: int


class LabelledImage(NamedTuple):
    """A uint8 image (height, width, channels), its boxes, whether it is out of sample, and its depth."""

    pixels: Array
    boxes: list[Box]
    out_of_sample: bool
    depth_m: float | None = None  # None if it is not known


class PortableRandom:
    """Random numbers derived from uniform ones, to be the same in all versions of numpy."""

    def __init__(self, seed: int) -> None:
        self._uniforms = np.random.Generator(np.random.PCG64(seed))

    def uniform(self, low: float, high: float) -> float:
        """Draw a number between `low` and `high`."""
        return low + (high - low) * float(self._uniforms.random())

    def randbelow(self, count: int) -> int:
        """Draw an integer from 0 to count - 1."""
        return min(int(self._uniforms.random() * count), count - 1)

    def normal(self, *shape: int) -> Array:
        """Draw standard normal numbers."""
        result: Array = ndtri(self._uniforms.random(shape) * (1 - 2e-12) + 1e-12)
        return result

    def permutation(self, count: int) -> Array:
        """Return the numbers from 0 to count - 1 in random order."""
        result: Array = np.argsort(self._uniforms.random(count), kind="stable")
        return result

    def weighted_choice(self, weights: Array) -> int:
        """Draw an index with probabilities proportional to the weights."""
        sums = np.cumsum(weights)
        return min(
            int(np.searchsorted(sums, self._uniforms.random() * sums[-1], side="right")), len(weights) - 1
        )


class SceneGenerator:
    """Draws scenes; each category has a weight and a range of depths."""

    def __init__(self, rng: PortableRandom) -> None:
        self.rng = rng
        count = len(NAMES)
        self.weights = 1 / (rng.permutation(count) + RANK_OFFSET)
        self.start_depths, self.end_depths = np.zeros(count), np.full(count, BOTTOM_M)
        categories = rng.permutation(count)
        for category in categories[:DEEP_CATEGORIES]:
            self.start_depths[category] = rng.uniform(*DEEP_START_RANGE_M)
        for category in categories[DEEP_CATEGORIES : DEEP_CATEGORIES + SHALLOW_CATEGORIES]:
            self.end_depths[category] = rng.uniform(*SHALLOW_END_RANGE_M)
        is_deep, both = (
            self.weights[group].sum()
            for group in (categories[:DEEP_CATEGORIES], categories[DEEP_CATEGORIES + SHALLOW_CATEGORIES :])
        )
        self.weights[categories[:DEEP_CATEGORIES]] *= DEEP_SHARE / (1 - DEEP_SHARE) * both / is_deep

    def draw_scene(self, out_of_sample: bool, sketches: list[Array]) -> LabelledImage:
        """Draw a scene below the boundary (`out_of_sample`) or above it; `sketches` are by category."""
        depth = self.rng.uniform(BOUNDARY_M, BOTTOM_M) if out_of_sample else self.rng.uniform(0, BOUNDARY_M)
        category_weights = self.weights * (self.start_depths <= depth) * (depth <= self.end_depths)
        count = 1 + sum(self.rng.uniform(0, 1) < EXTRA_SKETCH_PROBABILITY for _ in range(MAX_SKETCHES - 1))
        ink, boxes = np.zeros((IMAGE_PIXELS, IMAGE_PIXELS)), list[Box]()
        for _ in range(count):
            category = self.rng.weighted_choice(category_weights)
            patch = self._draw_patch(sketches[category][self.rng.randbelow(len(sketches[category]))])
            for _ in range(MAX_PLACEMENTS):
                x, y = (self.rng.randbelow(IMAGE_PIXELS - side + 1) for side in patch.shape[::-1])
                box = Box(category, x, y, patch.shape[1], patch.shape[0])
                if all(_overlap(box, second) <= MAX_OVERLAP for second in boxes):
                    region = np.s_[y : y + box.height, x : x + box.width]
                    ink[region] = np.maximum(ink[region], patch)
                    boxes.append(box)
                    break
        pixels = self._render_water(ink, depth / BOTTOM_M)[:, :, None]
        return LabelledImage(pixels, boxes, out_of_sample, depth)

    def _draw_patch(self, sketch: Array) -> Array:
        """Apply a random size, angle, shear, mirroring and line width to a sketch, and crop it to its ink."""
        rng = self.rng
        angle, shear, size = rng.uniform(-0.5, 0.5), rng.uniform(-0.25, 0.25), rng.uniform(0.75, 1.35)
        flip = 1 if rng.uniform(0, 1) < 0.5 else -1
        turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
        back = np.linalg.inv(turn @ np.array([[1, shear], [0, flip]]) * size)
        side = int(SKETCH_PIXELS * size * 1.5)
        offset = np.full(2, (SKETCH_PIXELS - 1) / 2) - back @ np.full(2, (side - 1) / 2)
        patch = affine_transform(sketch, back, offset, (side, side), order=1)
        patch = np.clip(gaussian_filter(patch, rng.uniform(0.2, 0.7)) * rng.uniform(1.0, 2.2), 0, 1)
        rows, columns = (
            np.flatnonzero((patch > INK_THRESHOLD).any(axis=1)),
            np.flatnonzero((patch > INK_THRESHOLD).any(axis=0)),
        )
        if not len(rows):
            return patch
        cut: Array = patch[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1] * rng.uniform(0.6, 1.0)
        return cut

    def _render_water(self, ink: Array, depth: float) -> Array:
        """Render the camera image: deeper water tends to be darker, blurrier and fuller of particles."""
        rng = self.rng
        brightness, blur, particle_noise, noise = rng.normal(4)
        blur = max(MIN_BLUR, BLUR.value(depth, blur))
        brightness = np.exp(LOG_BRIGHTNESS.value(depth, brightness))
        noise = np.exp(LOG_NOISE.value(depth, noise))
        ground = sum(
            weight * matrix @ rng.normal(matrix.shape[1], matrix.shape[1]) @ matrix.T
            for matrix, weight in GROUND_LAYERS
        )
        across = np.linspace(-1, 1, IMAGE_PIXELS)
        x, y = across[None, :] - rng.uniform(-0.4, 0.4), across[:, None] - rng.uniform(-0.4, 0.4)
        lamp = 1 / (1 + rng.uniform(0.2, 0.9) * (x * x + y * y))
        particles = np.zeros((IMAGE_PIXELS, IMAGE_PIXELS))
        for _ in range(int(np.exp(LOG_PARTICLES.value(depth, particle_noise)))):
            particles[rng.randbelow(IMAGE_PIXELS), rng.randbelow(IMAGE_PIXELS)] += rng.uniform(1, 5)
        particles = gaussian_filter(particles, rng.uniform(0.5, 0.9))
        radiance = 1 + ground + 2.5 * np.exp(-blur) * ink + particles
        radiance = gaussian_filter(brightness * lamp * radiance, 0.25 + 0.6 * blur) + noise * rng.normal(
            IMAGE_PIXELS, IMAGE_PIXELS
        )
        image: Array = np.clip(np.rint(radiance), 0, 255).astype(np.uint8)
        return image


def _overlap(first: Box, second: Box) -> float:
    """Return the share of the smaller of two boxes that lies in the other."""
    width = min(first.x + first.width, second.x + second.width) - max(first.x, second.x)
    height = min(first.y + first.height, second.y + second.height) - max(first.y, second.y)
    return max(width, 0) * max(height, 0) / min(first.width * first.height, second.width * second.height)


def split_sketches(
    sketches_by_name: dict[str, Array], rng: PortableRandom
) -> tuple[list[Array], list[Array]]:
    """Split the sketches of each name into two disjoint parts."""
    parts: tuple[list[Array], list[Array]] = ([], [])
    for name in NAMES:
        _, first = np.unique(sketches_by_name[name], axis=0, return_index=True)  # a sketch may occur twice
        sketches = sketches_by_name[name][np.sort(first)]
        for part, places in zip(parts, np.array_split(rng.permutation(len(sketches)), 2), strict=True):
            part.append(sketches[places])
    return parts


def generate_scenes(
    sketches_by_name: dict[str, Array], train: int, test: int, share: float, seed: int
) -> tuple[list[LabelledImage], ...]:
    """Generate training scenes and test scenes of other sketches, a `share` of the latter out of sample."""
    rng = PortableRandom(seed)
    sea = SceneGenerator(rng)
    train_sketches, test_sketches = split_sketches(sketches_by_name, rng)
    is_deep = rng.permutation(test) < round(share * test)
    return [sea.draw_scene(False, train_sketches) for _ in range(train)], [
        sea.draw_scene(bool(out_of_sample), test_sketches) for out_of_sample in is_deep
    ]
