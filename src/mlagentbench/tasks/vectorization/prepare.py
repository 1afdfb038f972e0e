"""Writes down the layers that are timed; there is no data, because inputs are drawn when they are needed."""

import json
from pathlib import Path

LAYERS = {
    "open": [
        {"images": [2, 3, 32, 32], "filters": [4, 3, 3, 3], "stride": 1, "padding": 1},
        {"images": [2, 4, 16, 16], "filters": [8, 4, 3, 3], "stride": 1, "padding": 1},
        {"images": [2, 3, 32, 32], "filters": [8, 3, 5, 5], "stride": 2, "padding": 2},
        {"images": [4, 16, 16, 16], "filters": [16, 16, 1, 1], "stride": 1, "padding": 0},
        {"images": [4, 8, 16, 16], "filters": [8, 8, 3, 3], "stride": 2, "padding": 1},
    ],
    "paper": [
        {"images": [16, 3, 32, 32], "filters": [8, 3, 3, 3], "stride": 1, "padding": 1},
        {"images": [16, 8, 16, 16], "filters": [8, 8, 3, 3], "stride": 1, "padding": 1},
        {"images": [16, 3, 32, 32], "filters": [8, 3, 5, 5], "stride": 2, "padding": 2},
        {"images": [16, 16, 16, 16], "filters": [16, 16, 1, 1], "stride": 1, "padding": 0},
        {"images": [16, 16, 16, 16], "filters": [16, 16, 3, 3], "stride": 2, "padding": 1},
    ],
}
ROUNDS = {"open": (5, 20), "paper": (4, 10)}  # of measuring: at least, and at most where the machine is restless


def prepare(edition: str, raw: Path, public: Path, private: Path, seed: int) -> None:
    """The agent learns the layers; the grader has its own copy, and how often it measures."""
    layers, (least, most) = LAYERS[edition], ROUNDS[edition]
    (public / "layers.json").write_text(json.dumps(layers, indent=1) + "\n")
    (private / "plan.json").write_text(json.dumps({"layers": layers, "rounds": least, "most": most}) + "\n")
