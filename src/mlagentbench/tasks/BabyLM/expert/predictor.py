"""Reads many streams in parallel and predicts their next bytes with all models."""

import numpy as np
import torch
from contexts import NAMES, Contexts
from ngrams import RECENT, Ngrams, RecentCounts

MODELS = len(NAMES) + len(RECENT) + 1  # the last one is the network
FEATURES = 3 * MODELS - 1
MIN_PROBABILITY = 1e-7


class Predictor:
    """The state of all models for streams that are read in parallel."""

    def __init__(self, ngrams: Ngrams, network, unit_vocabulary, prefix_vocabulary, groups):
        """`groups` has a number for each stream; streams of a group learn from each other."""
        streams = len(groups)
        self.ngrams, self.network = ngrams, network
        self.unit_vocabulary, self.prefix_vocabulary = unit_vocabulary, prefix_vocabulary
        self.contexts, self.recent = Contexts(streams), RecentCounts(groups, ngrams.size)
        self.states = torch.zeros(streams, network.recurrent.hidden_size)
        self.prefixes, self.bytes_read = np.zeros(streams, np.int64), 0

    def update(self, read):
        """Read the next byte of each stream."""
        contexts = self.contexts
        finished = self.unit_vocabulary.numbers(contexts.unit, contexts.unit_ending)
        is_start = contexts.update(read)
        if self.bytes_read and is_start.any():
            rows = torch.from_numpy(np.flatnonzero(is_start))
            with torch.no_grad():
                units = torch.from_numpy(finished[is_start].astype(np.int64))
                self.states[rows] = self.network.advance(self.states[rows], units)
        self.prefixes = self.prefix_vocabulary.numbers(contexts.unit, contexts.unit_ending).astype(np.int64)
        self.recent.update(self.ngrams.symbols[read])
        self.bytes_read += 1

    def predict(self):
        """Return log probabilities (streams, models, symbols) and features (streams, FEATURES)."""
        hashes = self.contexts.hashes()
        counted = self.ngrams.probabilities(hashes)
        recent = self.recent.probabilities(hashes, counted[0])
        with torch.no_grad():
            projected = self.network.project(self.states)
            logits = self.network.decode(projected, torch.from_numpy(self.prefixes)).numpy()
        logits -= logits.max(axis=1, keepdims=True)
        logits -= np.log(np.exp(logits).sum(axis=1, keepdims=True))
        probabilities, totals, distinct = (np.concatenate(pair) for pair in zip(counted, recent, strict=True))
        log_probabilities = np.concatenate([np.log(np.maximum(probabilities, MIN_PROBABILITY)), logits[None]])
        features = [
            np.log1p(totals),
            distinct / np.maximum(totals, 1),
            log_probabilities.max(axis=2),
            np.full((1, len(self.prefixes)), np.log1p(self.bytes_read)),
        ]
        return log_probabilities.transpose(1, 0, 2), np.concatenate(features).astype(np.float32).T
