"""The tasks of the original: their names there and here, and their metrics."""

import re
from typing import NamedTuple

from mlagentbench.records import Better

SOURCE_PROGRAM = "MLAgentBench 0.1 (snap-stanford)"  # the only version that its setup.py ever had


class KnownTask(NamedTuple):
    """One task of the original."""

    name: str
    metric: str
    better: Better


KNOWN_TASKS = {
    "amp-parkinsons-disease-progression-prediction": KnownTask("parkinsons-disease", "SMAPE", "lower"),
    "babylm": KnownTask("BabyLM", "perplexity", "lower"),
    "cifar10": KnownTask("cifar10", "accuracy", "higher"),
    "cifar10-training": KnownTask("cifar10", "accuracy", "higher"),
    "CLRS": KnownTask("CLRS", "accuracy", "higher"),
    "debug": KnownTask("cifar10", "accuracy", "higher"),
    "fathomnet": KnownTask("fathomnet", "MAP@20", "higher"),
    "feedback": KnownTask("feedback", "MCRMSE", "lower"),
    "house-price": KnownTask("house-price", "mean absolute error", "lower"),
    "identify-contrails": KnownTask("identify-contrails", "Dice", "higher"),
    "imdb": KnownTask("imdb", "accuracy", "higher"),
    "llama-inference": KnownTask("llama-inference", "seconds a token", "lower"),
    "ogbn-arxiv": KnownTask("ogbn-arxiv", "accuracy", "higher"),
    "parkinsons-disease": KnownTask("parkinsons-disease", "SMAPE", "lower"),
    "spaceship-titanic": KnownTask("spaceship-titanic", "accuracy", "higher"),
    "vectorization": KnownTask("vectorization", "seconds", "lower"),
}
_BY_NORMALIZED_NAME = {re.sub(r"[^a-z0-9]", "", name.lower()): known for name, known in KNOWN_TASKS.items()}


def find_known_task(name: str) -> KnownTask | None:
    """Find a task of the original by name, ignoring case and punctuation."""
    return _BY_NORMALIZED_NAME.get(re.sub(r"[^a-z0-9]", "", name.lower()))
