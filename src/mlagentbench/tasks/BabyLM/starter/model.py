"""Predict text byte by byte, for many streams at once, with the network that train.py saved in model.pt."""

from pathlib import Path

import torch

from network import START, Network

torch.set_num_threads(1)
device = "cuda" if torch.cuda.is_available() else "cpu"
saved = torch.load(Path(__file__).with_name("model.pt"), map_location=device, weights_only=True)
network = Network(**saved["sizes"]).to(device).eval()
network.load_state_dict(saved["weights"])

history = []  # the bytes of all streams, one array per call since the start
cache = []


@torch.no_grad()
def predict(previous):
    """Take the latest byte of each stream (-1 at the start); return probabilities of the next (streams, 256)."""
    tokens = torch.as_tensor(previous, device=device)
    tokens = torch.where(tokens < 0, START, tokens)[:, None]
    if (previous < 0).all():
        history.clear()
        cache.clear()
    history.append(tokens)
    if cache and cache[0][0].shape[2] == network.context:  # full: start again with the latest half
        cache.clear()
        tokens = torch.cat(history[-max(1, network.context // 2) :], dim=1)
    return network(tokens, cache)[:, -1].softmax(dim=1).cpu().numpy()
