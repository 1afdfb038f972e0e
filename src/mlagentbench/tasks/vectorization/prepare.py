"""Writes down the layers that are timed; there is no data, because inputs are drawn when they are needed."""

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
IMAGES = {"open": 1, "paper": 4}  # times as many as above
ROUNDS = {"open": (5, 10), "paper": (4, 10)}  # of measuring: at least, and at most on a restless machine


def prepare(edition: str, raw: Path, public: Path, private: Path, seed: int) -> None:
    """The agent learns the layers; the grader has its own copy, and how often it measures."""
    layers = json.loads(json.dumps(LAYERS))
    for layer in layers:
        layer["images"][0] *= IMAGES[edition]
    (public / "layers.json").write_text("[\n " + ",\n ".join(map(json.dumps, layers)) + "\n]\n")
    least, most = ROUNDS[edition]
    (private / "plan.json").write_text(json.dumps({"layers": layers, "rounds": least, "most": most}))
