"""A recurrent network over words, and a small one that predicts the bytes of the next word from its state."""

import numpy as np
from contexts import MULTIPLIER
from torch import nn

BUCKETS = 2048  # for rare units, by their last three bytes


class Vocabulary:
    """Numbers of frequent hashes of units; rare ones share BUCKETS numbers, and 0 stands for the start."""

    def __init__(self, known):
        self.known = known  # sorted

    @staticmethod
    def build(hashes, min_count):
        """Return the vocabulary of the hashes that occur at least `min_count` times."""
        hashes, counts = np.unique(hashes, return_counts=True)
        return Vocabulary(hashes[counts >= min_count])

    def __len__(self):
        return 1 + BUCKETS + len(self.known)

    def numbers(self, hashes, endings):
        """Return the number of each unit, given by its hash and its last three bytes."""
        place = np.searchsorted(self.known, hashes).clip(max=len(self.known) - 1)
        bucket = (endings.astype(np.uint64) * MULTIPLIER >> np.uint64(40)) % np.uint64(BUCKETS)
        numbers = np.where(self.known[place] == hashes, 1 + BUCKETS + place, 1 + bucket.astype(np.int64))
        return numbers.astype(np.int32)


class Network(nn.Module):
    """Logits of the next symbol, from the finished units and the current unit so far."""

    def __init__(self, units, prefixes, symbols, embedding, state, hidden):
        super().__init__()
        self.unit_embedding, self.prefix_embedding = (
            nn.Embedding(units, embedding),
            nn.Embedding(prefixes, hidden),
        )
        self.recurrent = nn.GRU(embedding, state, batch_first=True)
        self.project = nn.Linear(state, hidden)
        self.norm, self.output = nn.LayerNorm(hidden), nn.Linear(hidden, symbols)
        for table in (self.unit_embedding, self.prefix_embedding):
            nn.init.normal_(table.weight, std=0.3)

    def forward(self, units, prefixes, position):
        """Predict all bytes of texts.

        units: (texts, units), the finished units.
        prefixes: (texts, bytes), the current unit before each byte.
        position: (texts, bytes), how many units are finished before each byte.
        """
        states, _ = self.recurrent(self.unit_embedding(units))
        projected = self.project(nn.functional.pad(states, (0, 0, 1, 0)))
        return self.decode(
            projected.gather(1, position[:, :, None].expand(-1, -1, projected.shape[2])), prefixes
        )

    def decode(self, projected, prefixes):
        """Return the logits from projected states and the numbers of prefixes."""
        return self.output(self.norm(nn.functional.relu(projected + self.prefix_embedding(prefixes))))

    def advance(self, states, units):
        """Return the states after one more unit."""
        return self.recurrent(self.unit_embedding(units)[:, None], states[None])[1][0]
