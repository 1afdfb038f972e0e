"""Invents scenes of a dive: sketches that stand for animals, in water that changes with the depth.

Only uniform numbers are drawn, by a named bit generator: other streams of numpy may change between its versions.
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

HORIZON, BOTTOM = 800.0, 1300.0  # metres; what lies below the horizon is out of sample
DEEP, SHALLOW = 14, 22  # categories that live only below the horizon, and those that end above the bottom
SHALLOW_ENDS = (250.0, 1150.0)  # between these depths
DEEP_BEGINS = (800.0, 1000.0)
TAIL = 2.0  # the category of rank r has the weight 1 / (r + TAIL)
NEW = 0.35  # the share of the deep categories in what lives at the bottom

SIZE = 96  # pixels, both ways
SKETCH = 28
MOST, MORE = 6, 0.35  # sketches in a scene, and the chance of each after the first
TRIALS, OVERLAP = 12, 0.3  # places tried for a sketch, and the share of a box that another may cover
INK = 0.25  # what counts as part of a sketch when its box is drawn


def _finer(cells: int) -> Array:
    """The matrix that stretches `cells` numbers to SIZE by straight lines between them."""
    found: Array = np.stack(
        [np.interp(np.linspace(0, cells - 1, SIZE), range(cells), one) for one in np.eye(cells)], 1
    )
    return found


GROUND = [(_finer(4), 0.16), (_finer(12), 0.12), (_finer(32), 0.08)]  # coarse and fine, with their strengths


class Box(NamedTuple):
    """A category and where it is, in pixels."""

    category: int
    x: int
    y: int
    width: int
    height: int


class Picture(NamedTuple):
    """A picture of bytes (height, width, channels), what is on it, and whether it is out of sample."""

    pixels: Array
    boxes: list[Box]
    out: bool


class Draw:
    """Random numbers, all made from uniform ones."""

    def __init__(self, seed: int) -> None:
        self.uniforms = np.random.Generator(np.random.PCG64(seed))

    def between(self, low: float, high: float) -> float:
        """A number between two others."""
        return low + (high - low) * float(self.uniforms.random())

    def below(self, count: int) -> int:
        """A whole number from 0 to count - 1."""
        return min(int(self.uniforms.random() * count), count - 1)

    def normal(self, *shape: int) -> Array:
        """Standard normal numbers."""
        found: Array = ndtri(self.uniforms.random(shape) * (1 - 2e-12) + 1e-12)
        return found

    def order(self, count: int) -> Array:
        """The numbers from 0 to count - 1, shuffled."""
        found: Array = np.argsort(self.uniforms.random(count), kind="stable")
        return found

    def weighted(self, weights: Array) -> int:
        """A place in the weights, by weight."""
        sums = np.cumsum(weights)
        return min(
            int(np.searchsorted(sums, self.uniforms.random() * sums[-1], side="right")), len(weights) - 1
        )


class Sea:
    """Who lives where: each category has a weight, and a range of depths."""

    def __init__(self, draw: Draw) -> None:
        self.draw = draw
        count = len(NAMES)
        self.weights = 1 / (draw.order(count) + TAIL)
        self.begins, self.ends = np.zeros(count), np.full(count, BOTTOM)
        kinds = draw.order(count)
        for category in kinds[:DEEP]:
            self.begins[category] = draw.between(*DEEP_BEGINS)
        for category in kinds[DEEP : DEEP + SHALLOW]:
            self.ends[category] = draw.between(*SHALLOW_ENDS)
        deep, both = (self.weights[some].sum() for some in (kinds[:DEEP], kinds[DEEP + SHALLOW :]))
        self.weights[kinds[:DEEP]] *= NEW / (1 - NEW) * both / deep

    def scene(self, out: bool, sketches: list[Array]) -> Picture:
        """A scene below the horizon (`out`) or above it; `sketches` are those to use, by category."""
        depth = self.draw.between(HORIZON, BOTTOM) if out else self.draw.between(0, HORIZON)
        living = self.weights * (self.begins <= depth) * (depth <= self.ends)
        count = 1 + sum(self.draw.between(0, 1) < MORE for _ in range(MOST - 1))
        ink, boxes = np.zeros((SIZE, SIZE)), list[Box]()
        for _ in range(count):
            category = self.draw.weighted(living)
            patch = self._patch(sketches[category][self.draw.below(len(sketches[category]))])
            for _ in range(TRIALS):
                x, y = (self.draw.below(SIZE - side + 1) for side in patch.shape[::-1])
                box = Box(category, x, y, patch.shape[1], patch.shape[0])
                if all(_covered(box, other) <= OVERLAP for other in boxes):
                    place = np.s_[y : y + box.height, x : x + box.width]
                    ink[place] = np.maximum(ink[place], patch)
                    boxes.append(box)
                    break
        return Picture(self._water(ink, depth / BOTTOM)[:, :, None], boxes, out)

    def _patch(self, sketch: Array) -> Array:
        """The sketch at some size, angle and shear, perhaps mirrored and with a thicker line, cut to its ink."""
        draw = self.draw
        angle, shear, size = draw.between(-0.5, 0.5), draw.between(-0.25, 0.25), draw.between(0.75, 1.35)
        flip = 1 if draw.between(0, 1) < 0.5 else -1
        turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
        back = np.linalg.inv(turn @ np.array([[1, shear], [0, flip]]) * size)
        side = int(SKETCH * size * 1.5)
        offset = np.full(2, (SKETCH - 1) / 2) - back @ np.full(2, (side - 1) / 2)
        patch = affine_transform(sketch, back, offset, (side, side), order=1)
        patch = np.clip(gaussian_filter(patch, draw.between(0.2, 0.7)) * draw.between(1.0, 2.2), 0, 1)
        rows, columns = np.flatnonzero((patch > INK).any(axis=1)), np.flatnonzero((patch > INK).any(axis=0))
        if not len(rows):
            return patch
        cut: Array = patch[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1] * draw.between(0.6, 1.0)
        return cut

    def _water(self, ink: Array, depth: float) -> Array:
        """The picture that a camera takes: deeper water is darker, murkier and fuller of particles, as a rule."""
        draw = self.draw
        light, murk, snow, grain = draw.normal(4)
        murk = max(0.05, 0.3 + 0.35 * depth + 0.22 * murk)
        light = np.exp(4.2 - 0.25 * depth + 0.25 * light)
        grain = np.exp(1.5 + 0.3 * depth + 0.25 * grain)
        ground = sum(
            weight * finer @ draw.normal(finer.shape[1], finer.shape[1]) @ finer.T for finer, weight in GROUND
        )
        across = np.linspace(-1, 1, SIZE)
        x, y = across[None, :] - draw.between(-0.4, 0.4), across[:, None] - draw.between(-0.4, 0.4)
        lamp = 1 / (1 + draw.between(0.2, 0.9) * (x * x + y * y))
        flakes = np.zeros((SIZE, SIZE))
        for _ in range(int(np.exp(2.3 + 0.6 * depth + 0.5 * snow))):
            flakes[draw.below(SIZE), draw.below(SIZE)] += draw.between(1, 5)
        flakes = gaussian_filter(flakes, draw.between(0.5, 0.9))
        seen = 1 + ground + 2.5 * np.exp(-murk) * ink + flakes
        seen = gaussian_filter(light * lamp * seen, 0.25 + 0.6 * murk) + grain * draw.normal(SIZE, SIZE)
        picture: Array = np.clip(np.rint(seen), 0, 255).astype(np.uint8)
        return picture


def _covered(one: Box, other: Box) -> float:
    """The share of the smaller of two boxes that lies in the other."""
    width = min(one.x + one.width, other.x + other.width) - max(one.x, other.x)
    height = min(one.y + one.height, other.y + other.height) - max(one.y, other.y)
    return max(width, 0) * max(height, 0) / min(one.width * one.height, other.width * other.height)


def halves(drawn: dict[str, Array], draw: Draw) -> tuple[list[Array], list[Array]]:
    """The sketches of each name in two parts that share none."""
    parts: tuple[list[Array], list[Array]] = ([], [])
    for name in NAMES:
        _, first = np.unique(drawn[name], axis=0, return_index=True)  # a sketch may be there twice
        sketches = drawn[name][np.sort(first)]
        for part, places in zip(parts, np.array_split(draw.order(len(sketches)), 2), strict=True):
            part.append(sketches[places])
    return parts


def generate(
    drawn: dict[str, Array], train: int, test: int, share: float, seed: int
) -> tuple[list[Picture], ...]:
    """Scenes to learn from and scenes to be graded on, of other sketches, a `share` of these out of sample."""
    draw = Draw(seed)
    sea = Sea(draw)
    known, new = halves(drawn, draw)
    deep = draw.order(test) < round(share * test)
    return [sea.scene(False, known) for _ in range(train)], [sea.scene(bool(out), new) for out in deep]
