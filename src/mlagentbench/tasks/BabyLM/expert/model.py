"""Predict text byte by byte, for many streams at once, with the models that train.py saved."""

from pathlib import Path

import numpy as np
import torch
from mixer import Mixer
from network import Network, Vocabulary
from ngrams import Ngrams
from predictor import Predictor

UNIFORM_SHARE = 1e-6  # so that no byte is impossible

torch.set_num_threads(1)
folder = Path(__file__).parent
saved = torch.load(folder / "model.pt", weights_only=True)
alphabet, tables = np.load(folder / "alphabet.npy"), []
for number in range(saved["tables"]):
    with np.load(folder / f"ngrams_{number}.npz") as arrays:
        tables.append((arrays["keys"], arrays["counts"], arrays["discounts"]))
symbols = np.full(256, len(alphabet))  # the last symbol stands for all bytes that train.txt does not contain
symbols[alphabet] = np.arange(len(alphabet))
symbol_shares = 1 / np.bincount(symbols)[symbols]
network, mixer = Network(**saved["network_sizes"]).eval(), Mixer(**saved["mixer_sizes"]).eval()
network.load_state_dict(saved["network"])
mixer.load_state_dict(saved["mixer"])
vocabularies = [Vocabulary(np.load(folder / f"{name}.npy")) for name in ("units", "prefixes")]
predictor = None


@torch.no_grad()
def predict(previous):
    """Take the latest byte of each stream (-1 at the start); return (streams, 256) probabilities."""
    global predictor
    if predictor is None or (previous < 0).all():
        ngrams = Ngrams(tables, symbols, len(alphabet) + 1)
        predictor = Predictor(ngrams, network, *vocabularies, np.zeros(len(previous), np.int64))
    else:
        predictor.update(previous)
    log_probabilities, features = (
        torch.from_numpy(np.ascontiguousarray(part)) for part in predictor.predict()
    )
    mixed = mixer(log_probabilities, features).double().softmax(dim=1).numpy()[:, symbols] * symbol_shares
    return (1 - UNIFORM_SHARE) * mixed + UNIFORM_SHARE / 256
