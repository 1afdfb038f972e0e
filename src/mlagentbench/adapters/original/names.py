"""What the original calls its tasks, how it measures them, and what they are called here."""

import re
from typing import NamedTuple

from mlagentbench.records import Better

PROGRAM = "MLAgentBench 0.1 (snap-stanford)"  # the only version that its setup.py ever had


class Known(NamedTuple):
    """One task of the original."""

    ours: str
    metric: str
    better: Better


KNOWN = {
    "amp-parkinsons-disease-progression-prediction": Known("parkinsons-disease", "SMAPE", "lower"),
    "babylm": Known("BabyLM", "perplexity", "lower"),
    "cifar10": Known("cifar10", "accuracy", "higher"),
    "cifar10-training": Known("cifar10", "accuracy", "higher"),
    "CLRS": Known("CLRS", "accuracy", "higher"),
    "debug": Known("cifar10", "accuracy", "higher"),
    "fathomnet": Known("fathomnet", "MAP@20", "higher"),
    "feedback": Known("feedback", "MCRMSE", "lower"),
    "house-price": Known("house-price", "mean absolute error", "lower"),
    "identify-contrails": Known("identify-contrails", "Dice", "higher"),
    "imdb": Known("imdb", "accuracy", "higher"),
    "llama-inference": Known("llama-inference", "seconds a token", "lower"),
    "ogbn-arxiv": Known("ogbn-arxiv", "accuracy", "higher"),
    "parkinsons-disease": Known("parkinsons-disease", "SMAPE", "lower"),
    "spaceship-titanic": Known("spaceship-titanic", "accuracy", "higher"),
    "vectorization": Known("vectorization", "seconds", "lower"),
}
_PLAIN = {re.sub(r"[^a-z0-9]", "", name.lower()): known for name, known in KNOWN.items()}


def known(name: str) -> Known | None:
    """The task that the original means by `name`; case and punctuation do not matter."""
    return _PLAIN.get(re.sub(r"[^a-z0-9]", "", name.lower()))
