"""Train a small transformer on bytes, save it in model.pt, and evaluate model.py on validation text."""

import math
import os
from pathlib import Path

import numpy as np
import torch
from torch import nn

from network import START, Network

WIDTH = 64
LAYERS = 2
HEADS = 4
CONTEXT = 64
BATCH_SIZE = 16
STEPS = 250
LEARNING_RATE = 3e-3
WEIGHT_DECAY = 0.1
SEED = int(os.environ.get("SEED", "0"))

device = "cuda" if torch.cuda.is_available() else "cpu"


def evaluate(predict, text, streams=64, length=384):
    """Return the bits per byte on parts of the text, computed as the grader does."""
    starts = np.arange(streams) * (len(text) // streams)
    text = text[starts[:, None] + np.arange(length)]
    previous, bits = np.full(streams, -1), 0.0
    for position in range(length):
        probabilities = np.asarray(predict(previous), np.float64)
        previous = text[:, position].astype(np.int64)
        bits -= np.log2(np.maximum(probabilities[np.arange(streams), previous], 1e-9)).sum()
    return bits / text.size


def main():
    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    text = torch.from_numpy(np.fromfile("train.txt", np.uint8))
    sizes = {"width": WIDTH, "layers": LAYERS, "heads": HEADS, "context": CONTEXT}
    network = Network(**sizes).to(device)
    optimizer = torch.optim.AdamW(network.parameters(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY)
    total = 0.0
    for step in range(1, STEPS + 1):
        starts = torch.randint(len(text) - CONTEXT, (BATCH_SIZE, 1))
        targets = text[starts + torch.arange(CONTEXT)].long().to(device)
        inputs = nn.functional.pad(targets[:, :-1], (1, 0), value=START)
        loss = nn.functional.cross_entropy(network(inputs).flatten(0, 1), targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item() / math.log(2)
        if step % 100 == 0 or step == STEPS:
            print(f"step {step} of {STEPS}: {total / ((step - 1) % 100 + 1):.4f} bits per byte", flush=True)
            total = 0.0
    torch.save({"sizes": sizes, "weights": network.state_dict()}, "model.pt")

    from model import predict  # evaluated as in grading: it loads the saved model

    validation_text = np.fromfile("validation.txt", np.uint8)
    score = evaluate(predict, validation_text)
    word_count = len(Path("validation.txt").read_bytes().split())
    print(f"word perplexity: {2 ** (score * len(validation_text) / word_count):.0f}")
    print(f"validation bits per byte: {score:.4f}")


main()
