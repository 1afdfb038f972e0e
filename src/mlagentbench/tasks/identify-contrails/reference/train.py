"""Finds contrails in satellite images: a small U-Net over band differences and what changed since earlier frames."""

import json
import os
import time

import numpy as np
import pandas as pd
import torch
from torch import nn

LEARNING_RATE = 0.004
WEIGHT_DECAY = 1e-3
CHANNELS = 8
BATCH_SIZE = 16
EPOCHS = 15
HELD_OUT = 0.1  # share of the scenes that are kept for validation
FRAMES = (0, 2, 4, 6)  # what is in frame 4, but not before, is new
SEED = int(os.environ.get("SEED", "0"))

device = "cuda" if torch.cuda.is_available() else "cpu"


def read_images(part):
    """Band differences in several frames, cleared of what is smooth, and two pictures of the labelled frame."""
    with open("data/scale.json") as file:
        scale = json.load(file)

    def kelvin(band):
        counts = np.load(f"data/{part}_band_{band}.npy", mmap_mode="r")
        counts = counts[:, list(FRAMES)] if counts.ndim == 4 else counts
        return torch.from_numpy(scale["kelvin_at_count_0"] + scale["kelvin_per_count"] * counts.astype(np.float32))

    band_11, band_14, band_15 = kelvin(11), kelvin(14), kelvin(15)
    labelled = FRAMES.index(scale["labelled_frame"])
    ice = sharpened(band_14 - band_15)
    cold = sharpened(band_14) / 2
    phase = sharpened((band_11 - band_14[:, labelled])[:, None])
    whole = torch.stack([(band_14[:, labelled] - 280) / 10, (band_14 - band_15)[:, labelled] - 2], dim=1)
    return torch.cat([ice, cold, phase, whole], dim=1).clamp(-6, 6)


def sharpened(images):
    """The images with the levels of their rows made even, and without what is smooth."""
    levels = images.median(dim=-1, keepdim=True).values
    images = images - levels + average(levels, 9, 1)
    return images - average(average(images, 15, 1), 1, 15)


def average(images, rows, columns):
    """Every pixel becomes the average of those round about it that there are."""
    around = (rows // 2, columns // 2)
    return nn.functional.avg_pool2d(images, (rows, columns), stride=1, padding=around, count_include_pad=False)


def block(inputs, outputs):
    """Two convolutions."""
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(),
        nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(),
    )


class UNet(nn.Module):
    """Four scales; on the way up, each gets the channels that it had on the way down."""

    def __init__(self, inputs):
        super().__init__()
        sizes = [CHANNELS, 2 * CHANNELS, 4 * CHANNELS, 4 * CHANNELS]
        self.down = nn.ModuleList(block(a, b) for a, b in zip([inputs, *sizes], sizes))
        self.up = nn.ModuleList(block(a + b, b) for a, b in zip([sizes[3], sizes[2], sizes[1]], sizes[2::-1]))
        self.last = nn.Conv2d(sizes[0], 1, 1)

    def forward(self, images):
        """The logit of every pixel."""
        kept = []
        for number, layer in enumerate(self.down):
            images = layer(images if number == 0 else nn.functional.max_pool2d(images, 2))
            kept.append(images)
        for layer, beside in zip(self.up, kept[2::-1]):
            images = layer(torch.cat([nn.functional.interpolate(images, scale_factor=2), beside], dim=1))
        return self.last(images)


def turned(images, number):
    """One of the eight ways to lay an image."""
    images = images.flip(-1) if number & 1 else images
    images = images.flip(-2) if number & 2 else images
    return images.transpose(-1, -2) if number & 4 else images


def loss_of(logits, target):
    """Cross-entropy against the share of annotators, and one minus a soft Dice."""
    probability = logits.sigmoid()
    overlap = 2 * (probability * target).sum() / (probability.sum() + target.sum() + 1)
    return nn.functional.binary_cross_entropy_with_logits(logits, target) + 0.3 * (1 - overlap)


def predict(model, images):
    """The probability of every pixel, averaged over four ways to lay the image."""
    model.eval()
    found = []
    with torch.no_grad():
        for some in images.split(64):
            some = some.to(device)
            found.append(sum(turned(model(turned(some, way)).sigmoid(), way).cpu() for way in range(4))[:, 0] / 4)
    return torch.cat(found).numpy()


def dice(marked, true):
    """Over all pixels of all scenes at once."""
    return 2 * (marked & true).sum() / (marked.sum() + true.sum())


def encode(mask):
    """Runs of marked pixels: start and length, counted from 1, down the columns."""
    flat = np.concatenate([[0], mask.flatten(order="F"), [0]]).astype(int)
    edges = np.flatnonzero(np.diff(flat)) + 1
    runs = np.stack([edges[::2], edges[1::2] - edges[::2]], axis=1)
    return " ".join(map(str, runs.ravel())) or "-"


def main():
    """Train on most scenes, choose the threshold on the rest, then mark the test scenes."""
    started = time.monotonic()
    torch.manual_seed(SEED)
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # what a GPU needs to repeat itself
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(2)
    images = read_images("train")
    with np.load("data/train_masks.npz") as file:
        individual, agreed = torch.from_numpy(file["individual"]), torch.from_numpy(file["agreed"])
    share = (individual == 1).sum(dim=1) / (individual != 255).sum(dim=1)
    target = ((share + agreed) / 2)[:, None]
    order = torch.randperm(len(images))
    held, seen = order[: int(HELD_OUT * len(order))], order[int(HELD_OUT * len(order)) :]

    model = UNet(images.shape[1]).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY)
    batches = len(seen) // BATCH_SIZE
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, LEARNING_RATE, total_steps=EPOCHS * batches)
    true = agreed[held].numpy() > 0
    for epoch in range(1, EPOCHS + 1):
        model.train()
        total = 0.0
        for batch in seen[torch.randperm(len(seen))][: batches * BATCH_SIZE].split(BATCH_SIZE):
            way = int(torch.randint(4, ()))
            optimizer.zero_grad()
            loss = loss_of(model(turned(images[batch], way).to(device)), turned(target[batch], way).to(device))
            loss.backward()
            optimizer.step()
            schedule.step()
            total += loss.item()
        print(f"epoch {epoch} of {EPOCHS}: loss {total / batches:.4f}, {time.monotonic() - started:.0f} s", flush=True)

    found = predict(model, images[held])
    best = max(np.arange(0.2, 0.7, 0.05), key=lambda threshold: dice(found > threshold, true))
    test = pd.read_csv("data/test_records.csv")
    test["encoded_pixels"] = [encode(mask) for mask in predict(model, read_images("test")) > best]
    test.to_csv("submission.csv", index=False)
    print(f"validation Dice: {dice(found > best, true):.4f}")


main()
