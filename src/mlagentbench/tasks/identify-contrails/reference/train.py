"""Segment contrails in satellite images with a small U-Net on band differences of several frames."""

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
VALIDATION_SHARE = 0.1  # of the scenes
FRAMES = (0, 2, 4, 6)  # contrails appear between frames
SEED = int(os.environ.get("SEED", "0"))

device = "cuda" if torch.cuda.is_available() else "cpu"


def read_images(part):
    """Return band differences of several frames without background, and two raw channels."""
    with open("data/scale.json") as file:
        scale = json.load(file)

    def kelvin(band):
        counts = np.load(f"data/{part}_band_{band}.npy", mmap_mode="r")
        counts = counts[:, list(FRAMES)] if counts.ndim == 4 else counts
        return torch.from_numpy(
            scale["kelvin_at_count_0"] + scale["kelvin_per_count"] * counts.astype(np.float32)
        )

    band_11, band_14, band_15 = kelvin(11), kelvin(14), kelvin(15)
    labelled = FRAMES.index(scale["labelled_frame"])
    ice = remove_background(band_14 - band_15)
    cold = remove_background(band_14) / 2
    phase = remove_background((band_11 - band_14[:, labelled])[:, None])
    context = torch.stack([(band_14[:, labelled] - 280) / 10, (band_14 - band_15)[:, labelled] - 2], dim=1)
    return torch.cat([ice, cold, phase, context], dim=1).clamp(-6, 6)


def remove_background(images):
    """Even out the levels of rows, and subtract the smooth background."""
    levels = images.median(dim=-1, keepdim=True).values
    images = images - levels + box_average(levels, 9, 1)
    return images - box_average(box_average(images, 15, 1), 1, 15)


def box_average(images, rows, columns):
    """Replace every pixel by the average of its neighbourhood."""
    padding = (rows // 2, columns // 2)
    return nn.functional.avg_pool2d(
        images, (rows, columns), stride=1, padding=padding, count_include_pad=False
    )


def conv_block(inputs, outputs):
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
    """A U-Net with four scales and skip connections."""

    def __init__(self, inputs):
        super().__init__()
        sizes = [CHANNELS, 2 * CHANNELS, 4 * CHANNELS, 4 * CHANNELS]
        self.down = nn.ModuleList(conv_block(a, b) for a, b in zip([inputs, *sizes], sizes))
        self.up = nn.ModuleList(
            conv_block(a + b, b) for a, b in zip([sizes[3], sizes[2], sizes[1]], sizes[2::-1])
        )
        self.last = nn.Conv2d(sizes[0], 1, 1)

    def forward(self, images):
        """Return the logit of every pixel."""
        skip_connections = []
        for number, layer in enumerate(self.down):
            images = layer(images if number == 0 else nn.functional.max_pool2d(images, 2))
            skip_connections.append(images)
        for layer, skip in zip(self.up, skip_connections[2::-1]):
            images = layer(torch.cat([nn.functional.interpolate(images, scale_factor=2), skip], dim=1))
        return self.last(images)


def transform(images, number):
    """Apply one of the eight symmetries of a square; 0 to 3 are mirrorings, each of which undoes itself."""
    images = images.flip(-1) if number & 1 else images
    images = images.flip(-2) if number & 2 else images
    return images.transpose(-1, -2) if number & 4 else images


def compute_loss(logits, target):
    """Return the cross-entropy against the share of annotators, plus one minus a soft Dice."""
    probability = logits.sigmoid()
    overlap = 2 * (probability * target).sum() / (probability.sum() + target.sum() + 1)
    return nn.functional.binary_cross_entropy_with_logits(logits, target) + 0.3 * (1 - overlap)


def predict(model, images):
    """Return the probability of every pixel, averaged over four mirrorings."""
    model.eval()
    probabilities = []
    with torch.no_grad():
        for batch_images in images.split(64):
            batch_images = batch_images.to(device)
            probabilities.append(
                sum(
                    transform(model(transform(batch_images, orientation)).sigmoid(), orientation).cpu()
                    for orientation in range(4)
                )[:, 0]
                / 4
            )
    return torch.cat(probabilities).numpy()


def dice(marked, true):
    """Return the Dice coefficient over all pixels of all scenes together."""
    return 2 * (marked & true).sum() / (marked.sum() + true.sum())


def encode_runs(mask):
    """Encode marked pixels as runs: start and length, counted from 1, down the columns."""
    flat = np.concatenate([[0], mask.flatten(order="F"), [0]]).astype(int)
    edges = np.flatnonzero(np.diff(flat)) + 1
    runs = np.stack([edges[::2], edges[1::2] - edges[::2]], axis=1)
    return " ".join(map(str, runs.ravel())) or "-"


def main():
    """Train on most scenes, choose the threshold on the rest, then segment the test scenes."""
    started = time.monotonic()
    torch.manual_seed(SEED)
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # needed for deterministic results on a GPU
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(2)
    images = read_images("train")
    with np.load("data/train_masks.npz") as file:
        individual, agreed = torch.from_numpy(file["individual"]), torch.from_numpy(file["agreed"])
    share = (individual == 1).sum(dim=1) / (individual != 255).sum(dim=1)
    target = ((share + agreed) / 2)[:, None]
    order = torch.randperm(len(images))
    validation_indices, train_indices = (
        order[: int(VALIDATION_SHARE * len(order))],
        order[int(VALIDATION_SHARE * len(order)) :],
    )

    model = UNet(images.shape[1]).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY)
    batches = len(train_indices) // BATCH_SIZE
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, LEARNING_RATE, total_steps=EPOCHS * batches)
    true_masks = agreed[validation_indices].numpy() > 0
    for epoch in range(1, EPOCHS + 1):
        model.train()
        total = 0.0
        for batch in train_indices[torch.randperm(len(train_indices))][: batches * BATCH_SIZE].split(
            BATCH_SIZE
        ):
            orientation = int(torch.randint(4, ()))
            optimizer.zero_grad()
            loss = compute_loss(
                model(transform(images[batch], orientation).to(device)),
                transform(target[batch], orientation).to(device),
            )
            loss.backward()
            optimizer.step()
            schedule.step()
            total += loss.item()
        print(
            f"epoch {epoch} of {EPOCHS}: loss {total / batches:.4f}, {time.monotonic() - started:.0f} s",
            flush=True,
        )

    probabilities = predict(model, images[validation_indices])
    threshold = max(np.arange(0.2, 0.7, 0.05), key=lambda level: dice(probabilities > level, true_masks))
    test = pd.read_csv("data/test_records.csv")
    test["encoded_pixels"] = [encode_runs(mask) for mask in predict(model, read_images("test")) > threshold]
    test.to_csv("submission.csv", index=False)
    print(f"validation Dice: {dice(probabilities > threshold, true_masks):.4f}")


main()
