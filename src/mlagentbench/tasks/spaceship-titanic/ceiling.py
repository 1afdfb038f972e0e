"""An upper bound of the accuracy: predictions that know all that the generator has drawn but the label."""

import json
from pathlib import Path

from generator import generate_passengers


def ceiling(public: Path, private: Path) -> float:
    """Return the accuracy of the generator's own probabilities, rounded, on the hidden test set.

    An upper bound: they know every coefficient, region and surname effect, and the values of empty cells.
    Only the final draw of the label is unknown. The passengers are generated again from the seed in
    `private`, so the ceiling of a twin is that of its original.
    """
    seed = json.loads((private / "seed.json").read_text())
    counts = [len((public / name).read_text().splitlines()) - 1 for name in ("train.csv", "test.csv")]
    _, test = generate_passengers(seed, counts)
    return float(((test["probability"] > 0.5) == (test["Transported"] == 1)).mean())
