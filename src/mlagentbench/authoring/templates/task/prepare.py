"""Draws points on a noisy curve."""

from pathlib import Path

import numpy as np
import pandas as pd


def prepare(edition: str, raw: Path, public: Path, private: Path, seed: int) -> None:
    """Write train.csv and test.csv to `public`, and the answers to `private`."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, size=1200)
    y = np.sin(3 * x) + rng.normal(scale=0.1, size=1200)
    table = pd.DataFrame({"id": range(1200), "x": x, "y": y})
    table[:200].to_csv(public / "train.csv", index=False)
    table[200:].drop(columns="y").to_csv(public / "test.csv", index=False)
    table[200:][["id", "y"]].to_csv(private / "answers.csv", index=False)
