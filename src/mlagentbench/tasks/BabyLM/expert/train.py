"""Count n-grams, train a network over words, and fit a mixer of all models on validation text."""

import math
import os
import time
from pathlib import Path

import numpy as np
import torch
from contexts import NAMES, Contexts
from mixer import Mixer
from network import Network, Vocabulary
from ngrams import Ngrams
from predictor import FEATURES, MODELS, Predictor
from torch import nn

SEED = int(os.environ.get("SEED", "0"))
THREADS = min(2, len(os.sched_getaffinity(0)))
SEGMENTS = 4096  # of the training text, read in parallel
MIN_UNIT_COUNT, MIN_PREFIX_COUNT = 10, 20
EMBEDDING, STATE, HIDDEN = 192, 384, 384
TEXT_BYTES, BATCH_TEXTS = 384, 48
EPOCHS = 2.0
LEARNING_RATE, WARM_UP_STEPS = 0.01, 100
# Validation streams that learn from each other: as dense in their text as the hidden ones.
GROUP_STREAMS = 104
MIXER_HIDDEN, MIXER_EPOCHS, MIXER_BATCH, MIXER_LEARNING_RATE = 64, 8, 1024, 5e-3
STARTED = time.monotonic()

device = "cuda" if torch.cuda.is_available() else "cpu"


def report(message):
    """Print a message with the time since the start."""
    print(f"{time.monotonic() - STARTED:.0f} s: {message}", flush=True)


def read_contexts(text):
    """Return the keys of all n-grams, and the hash, ending and start of the unit at each byte of the text."""
    length = len(text) // SEGMENTS
    text = text[: SEGMENTS * length].reshape(SEGMENTS, length).astype(np.int64)
    contexts, keys = Contexts(SEGMENTS), np.empty((len(NAMES), length, SEGMENTS), np.uint64)
    units, endings = np.empty((SEGMENTS, length), np.uint64), np.empty((SEGMENTS, length), np.uint32)
    is_start = np.empty((SEGMENTS, length), bool)
    for position, column in enumerate(text.T):
        keys[:, position] = contexts.hashes() | column.astype(np.uint64)
        is_start[:, position] = contexts.update(column)
        units[:, position], endings[:, position] = contexts.unit, contexts.unit_ending
    return keys, units.ravel(), endings.ravel(), is_start.ravel()


def make_batch(starts, symbols, units, prefixes, is_start):
    """Return the inputs of the network and the targets for texts that begin at the given bytes."""
    places = starts[:, None] + np.arange(TEXT_BYTES)
    begins = is_start[places]
    begins[:, 0] = False
    finished = begins.cumsum(axis=1)
    rows, columns = np.nonzero(begins)
    batch_units = np.zeros((len(starts), finished.max()), np.int64)
    batch_units[rows, finished[rows, columns] - 1] = units[places[rows, columns] - 1]
    position, batch_prefixes = np.zeros((2, *places.shape), np.int64)  # before the first byte both are 0
    position[:, 1:], batch_prefixes[:, 1:] = finished[:, :-1], prefixes[places[:, :-1]]
    inputs = (torch.from_numpy(array) for array in (batch_units, batch_prefixes, position))
    return *inputs, torch.from_numpy(symbols[places])


def train_network(network, text, symbols, units, prefixes, is_start):
    """Train on random texts that begin with a word."""
    rng = np.random.default_rng(SEED)
    first_bytes = np.flatnonzero(np.isin(text, list(b" \n"))) + 1
    first_bytes = first_bytes[first_bytes < len(units) - TEXT_BYTES]
    optimizer = torch.optim.AdamW(
        network.parameters(), lr=LEARNING_RATE, betas=(0.9, 0.98), weight_decay=0.0, fused=True
    )
    steps, total = int(EPOCHS * len(text) / (BATCH_TEXTS * TEXT_BYTES)), 0.0
    for step in range(1, steps + 1):
        rate = LEARNING_RATE * min(1, step / WARM_UP_STEPS) * (0.51 + 0.49 * math.cos(math.pi * step / steps))
        for group in optimizer.param_groups:
            group["lr"] = rate
        *inputs, targets = make_batch(
            rng.choice(first_bytes, BATCH_TEXTS), symbols, units, prefixes, is_start
        )
        logits = network(*(array.to(device) for array in inputs))
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten().to(device))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        total += loss.item() / math.log(2)
        if step % 100 == 0:
            report(f"step {step} of {steps}: {total / 100:.4f} bits per byte")
            total = 0.0


def choose_streams(text):
    """Return validation streams (streams, bytes) that begin with a word, in random order."""
    is_space = np.isin(text, list(b" \n"))
    first_bytes = np.flatnonzero(is_space[:-1] & ~is_space[1:]) + 1
    slots = np.arange(0, len(text) - 3 * TEXT_BYTES, 2 * TEXT_BYTES)
    starts = first_bytes[np.searchsorted(first_bytes, slots)]
    starts = np.random.default_rng(SEED).permutation(starts)[: len(starts) // GROUP_STREAMS * GROUP_STREAMS]
    return text[starts[:, None] + np.arange(TEXT_BYTES)].astype(np.int64)


def collect_predictions(predictor, streams):
    """Return what all models predict for the streams, and the features, for each byte of all streams."""
    predictions = np.empty((*streams.T.shape, MODELS, predictor.ngrams.size), np.float16)
    features = np.empty((*streams.T.shape, FEATURES), np.float32)
    for position, column in enumerate(streams.T):
        predictions[position], features[position] = predictor.predict()
        predictor.update(column)
    return torch.from_numpy(predictions), torch.from_numpy(features)


def fit_mixer(mixer, predictions, features, targets):
    """Fit the mixer to predictions (bytes, models, symbols)."""
    mixer.mean[:], mixer.scale[:] = features.mean(dim=0), features.std(dim=0) + 0.01
    optimizer = torch.optim.Adam(mixer.parameters())
    steps = MIXER_EPOCHS * len(targets) // MIXER_BATCH
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = MIXER_LEARNING_RATE * (1 - step / steps)
        chosen = torch.randint(len(targets), (MIXER_BATCH,))
        loss = nn.functional.cross_entropy(
            mixer(predictions[chosen].float(), features[chosen]), targets[chosen]
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def evaluate(predict, streams):
    """Return the bits per byte, computed as the grader does."""
    previous, bits = np.full(len(streams), -1), 0.0
    for column in streams.T:
        bits -= np.log2(np.maximum(predict(previous)[np.arange(len(streams)), column], 1e-9)).sum()
        previous = column
    return bits / streams.size


def main():
    """Train, fit, save and evaluate."""
    torch.manual_seed(SEED)
    torch.set_num_threads(THREADS)
    text = np.fromfile("train.txt", np.uint8)
    alphabet = np.unique(text)
    symbols = np.full(256, len(alphabet))
    symbols[alphabet] = np.arange(len(alphabet))
    keys, unit_hashes, endings, is_start = read_contexts(text)
    report("read the text")
    tables = Ngrams.count(keys)
    del keys
    report("counted n-grams")
    unit_vocabulary = Vocabulary.build(unit_hashes[:-1][is_start[1:]], MIN_UNIT_COUNT)
    prefix_vocabulary = Vocabulary.build(unit_hashes, MIN_PREFIX_COUNT)
    network_sizes = {
        "units": len(unit_vocabulary), "prefixes": len(prefix_vocabulary), "symbols": len(alphabet) + 1,
        "embedding": EMBEDDING, "state": STATE, "hidden": HIDDEN,
    }  # fmt: skip
    network = Network(**network_sizes).to(device)
    units, prefixes = (
        vocabulary.numbers(unit_hashes, endings) for vocabulary in (unit_vocabulary, prefix_vocabulary)
    )
    train_network(network, text, symbols[text], units, prefixes, is_start)
    report("trained the network")

    validation_text = np.fromfile("validation.txt", np.uint8)
    streams = choose_streams(validation_text)
    groups = np.arange(len(streams)) // GROUP_STREAMS
    is_fitted = groups < 0.75 * (groups[-1] + 1)  # the other groups are for the estimate
    ngrams = Ngrams(tables, symbols, len(alphabet) + 1)
    predictor = Predictor(ngrams, network.cpu().eval(), unit_vocabulary, prefix_vocabulary, groups[is_fitted])
    predictions, features = collect_predictions(predictor, streams[is_fitted])
    report("predicted validation streams")
    mixer_sizes = {
        "models": MODELS, "features": FEATURES, "symbols": len(alphabet) + 1, "hidden": MIXER_HIDDEN,
    }  # fmt: skip
    mixer = Mixer(**mixer_sizes)
    fit_mixer(
        mixer, predictions.flatten(0, 1), features.flatten(0, 1),
        torch.from_numpy(symbols[streams[is_fitted].T]).flatten(),
    )  # fmt: skip
    report("fitted the mixer")

    for number, (key, count, discount) in enumerate(tables):
        np.savez(f"ngrams_{number}.npz", keys=key, counts=count, discounts=discount)
    np.save("alphabet.npy", alphabet)
    np.save("units.npy", unit_vocabulary.known)
    np.save("prefixes.npy", prefix_vocabulary.known)
    saved = {"tables": len(tables), "network_sizes": network_sizes, "mixer_sizes": mixer_sizes}
    torch.save({**saved, "network": network.state_dict(), "mixer": mixer.state_dict()}, "model.pt")

    from model import predict  # evaluated as in grading: it loads the saved models

    scores = [evaluate(predict, streams[groups == group]) for group in np.unique(groups[~is_fitted])]
    word_count = len(Path("validation.txt").read_bytes().split())
    report("evaluated")
    print(f"word perplexity: {2 ** (np.mean(scores) * len(validation_text) / word_count):.0f}")
    print(f"validation bits per byte: {np.mean(scores):.4f}")


main()
