"""Mixes the predictions of many models: a product of powers, with exponents that depend on the situation."""

import torch
from torch import nn


class Mixer(nn.Module):
    """Computes the exponents from features with a small network."""

    def __init__(self, models, features, symbols, hidden):
        super().__init__()
        self.register_buffer("mean", torch.zeros(features))
        self.register_buffer("scale", torch.ones(features))
        self.hidden, self.exponents = nn.Linear(features, hidden), nn.Linear(hidden, models)
        self.bias = nn.Parameter(torch.zeros(symbols))
        nn.init.zeros_(self.exponents.weight)
        nn.init.constant_(self.exponents.bias, 1 / models)

    def forward(self, log_probabilities, features):
        """Return logits (rows, symbols) from (rows, models, symbols) and (rows, features)."""
        exponents = self.exponents(torch.tanh(self.hidden((features - self.mean) / self.scale)))
        return (exponents[:, None] @ log_probabilities)[:, 0] + self.bias
