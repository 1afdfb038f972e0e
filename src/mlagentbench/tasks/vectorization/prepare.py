"""Writes the list of layers that are timed. There is no data: inputs are drawn during grading."""

import json
from pathlib import Path

LAYERS = [
    {"images": [1, 3, 32, 32], "filters": [4, 3, 3, 3], "stride": 1, "padding": 1},
    {"images": [1, 4, 16, 16], "filters": [8, 4, 4, 4], "stride": 1, "padding": 2},
    {"images": [1, 3, 32, 32], "filters": [6, 3, 5, 5], "stride": 2, "padding": 2},
    {"images": [2, 16, 16, 16], "filters": [12, 16, 1, 1], "stride": 1, "padding": 0},
    {"images": [2, 8, 16, 16], "filters": [12, 8, 3, 3], "stride": 2, "padding": 1},
    {"images": [2, 6, 14, 14], "filters": [8, 6, 3, 3], "stride": 1, "padding": 0},
    {"images": [1, 3, 36, 36], "filters": [6, 3, 5, 5], "stride": 3, "padding": 1},
    {"images": [4, 16, 8, 8], "filters": [24, 16, 1, 1], "stride": 1, "padding": 0},
]
IMAGE_FACTOR = {"open": 1, "paper": 4}  # of the numbers of images above
ROUND_LIMITS = {"open": (5, 10), "paper": (4, 10)}  # at least, and at most if measurements are noisy


def prepare(edition: str, raw: Path, public: Path, private: Path, seed: int) -> None:
    """Write the layers to `public`, and a copy with the number of rounds to `private`."""
    layers = json.loads(json.dumps(LAYERS))
    for layer in layers:
        layer["images"][0] *= IMAGE_FACTOR[edition]
    (public / "layers.json").write_text("[\n " + ",\n ".join(map(json.dumps, layers)) + "\n]\n")
    min_rounds, max_rounds = ROUND_LIMITS[edition]
    (private / "plan.json").write_text(
        json.dumps({"layers": layers, "rounds": min_rounds, "most": max_rounds})
    )
