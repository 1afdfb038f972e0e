"""The network, and the function that the grader calls."""

import numpy as np
import torch
from torch import nn

WEIGHTS = "weights.npz"
INPUTS = 8  # length and existence of the paths (i, j), (i, k) and (k, j), and whether k is i or j

device = "cuda" if torch.cuda.is_available() else "cpu"
loaded = []


class Network(nn.Module):
    """Imitates one step of the algorithm: is the path through k shorter, and how long is it?

    A linear layer beside a hidden one: what is linear in the lengths holds for larger graphs as well.
    """

    def __init__(self, hidden):
        super().__init__()
        self.hidden = hidden
        self.linear = nn.Linear(INPUTS, 2)
        self.layers = nn.Sequential(nn.Linear(INPUTS, hidden), nn.ReLU(), nn.Linear(hidden, 2))
        self.log_scale = nn.Parameter(torch.tensor(2.0))

    def forward(self, inputs):
        """Return the logit that the path through k is shorter, and its length."""
        logits, lengths = (self.linear(inputs) + self.layers(inputs)).unbind(dim=-1)
        return logits * self.log_scale.exp(), lengths


def make_inputs(lengths, exists, k):
    """Return the inputs of step k for all pairs (graphs, i, j); the length is 0 where no path is known."""
    inputs = []
    for values in (lengths, exists.float()):
        inputs += [values, values[:, :, k, None].expand_as(values), values[:, None, k].expand_as(values)]
    is_k = (torch.arange(lengths.shape[1], device=lengths.device) == k).float()
    return torch.stack([*inputs, is_k[:, None].expand_as(lengths), is_k.expand_as(lengths)], dim=-1)


def save(network):
    """Save the parameters as plain arrays."""
    arrays = {name: value.cpu().numpy() for name, value in network.state_dict().items()}
    np.savez(WEIGHTS, hidden=network.hidden, **arrays)


def load():
    """Load the saved network."""
    with np.load(WEIGHTS) as file:
        arrays = {name: torch.tensor(file[name]) for name in file}
    network = Network(int(arrays.pop("hidden")))
    network.load_state_dict(arrays)
    return network.to(device).eval()


def predict(adjacency, weights):
    """Predict the pointers of a batch of graphs of one size.

    adjacency: bool (graphs, nodes, nodes); weights: float32 (graphs, nodes, nodes), 0 where there is no edge.
    Returns int64 (graphs, nodes, nodes): for i and j the last node before j on the shortest path from i to j.
    """
    if not loaded:
        loaded.append(load())
    nodes = weights.shape[1]
    lengths, exists = torch.tensor(weights, device=device), torch.tensor(adjacency, device=device)
    exists = exists | torch.eye(nodes, dtype=torch.bool, device=device)
    pointers = torch.arange(nodes, device=device)[:, None].expand_as(lengths)
    with torch.no_grad():
        for k in range(nodes):
            logits, lengths_through_k = loaded[0](make_inputs(lengths, exists, k))
            is_shorter = logits > 0
            lengths, exists = torch.where(is_shorter, lengths_through_k, lengths), exists | is_shorter
            pointers = torch.where(is_shorter, pointers[:, None, k], pointers)
    return pointers.cpu().numpy()
