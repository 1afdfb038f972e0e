"""Writes the network that is timed. There is no data: inputs and weights are drawn during grading."""

import json
from pathlib import Path

IMAGE_SHAPE = [1, 20, 20]  # channels, height, width; small, so that sending images takes little of the time
LAYERS = [
    {"filters": 16, "kernel": [5, 5], "stride": 1, "padding": 0},
    {"filters": 16, "kernel": [3, 3], "stride": 1, "padding": 1},
    {"filters": 32, "kernel": [4, 4], "stride": 2, "padding": 1},
    {"filters": 32, "kernel": [1, 1], "stride": 1, "padding": 0},
    {"filters": 32, "kernel": [3, 3], "stride": 1, "padding": 1},
    {"filters": 16, "kernel": [3, 3], "stride": 3, "padding": 1},
    {"filters": 10, "kernel": [3, 3], "stride": 1, "padding": 0},
]
IMAGES_PER_CALL = {"open": 256, "paper": 1024}
ROUND_LIMITS = {"open": (6, 12), "paper": (6, 12)}  # at least, and at most if measurements are noisy


def prepare(edition: str, raw: Path, public: Path, private: Path, seed: int) -> None:
    """Write the network to `public`, and a copy with the number of rounds to `private`."""
    network = {"images": [IMAGES_PER_CALL[edition], *IMAGE_SHAPE], "layers": LAYERS}
    lines = ",\n  ".join(map(json.dumps, LAYERS))
    (public / "network.json").write_text(
        f'{{\n "images": {json.dumps(network["images"])},\n "layers": [\n  {lines}\n ]\n}}\n'
    )
    min_rounds, max_rounds = ROUND_LIMITS[edition]
    (private / "plan.json").write_text(json.dumps({**network, "rounds": min_rounds, "most": max_rounds}))
