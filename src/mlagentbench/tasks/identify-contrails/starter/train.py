"""Segment contrails in satellite images with one convolution of the difference of two bands."""

import json
import os

import numpy as np
import pandas as pd
import torch
from torch import nn

POSITIVE_WEIGHT = 20.0  # weight of a marked pixel relative to another
THRESHOLD = 0.5  # probability above which a pixel is marked
NEIGHBOURHOOD = 4  # pixels to each side in the local average
KERNEL = 3  # width of the convolution, in pixels
LEARNING_RATE = 0.01
MOMENTUM = 0.9
BATCH_SIZE = 16
EPOCHS = 30
VALIDATION_SHARE = 0.15  # of the scenes
SEED = int(os.environ.get("SEED", "0"))

device = "cuda" if torch.cuda.is_available() else "cpu"


def read_images(part):
    """Return the difference of bands 14 and 15 in the labelled frame, in kelvin, minus its local average."""
    with open("data/scale.json") as file:
        scale = json.load(file)
    counts = [
        np.load(f"data/{part}_band_{band}.npy", mmap_mode="r")[:, scale["labelled_frame"]]
        for band in (14, 15)
    ]
    difference = scale["kelvin_per_count"] * (counts[0].astype(np.float32) - counts[1].astype(np.float32))
    images = torch.from_numpy(difference)[:, None]
    return images - nn.functional.avg_pool2d(
        images, 2 * NEIGHBOURHOOD + 1, 1, NEIGHBOURHOOD, count_include_pad=False
    )


def predict(model, images):
    """Return the probability of every pixel."""
    model.eval()
    with torch.no_grad():
        return torch.cat([model(batch.to(device)).sigmoid().cpu() for batch in images.split(64)])[
            :, 0
        ].numpy()


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
    """Train on most scenes, validate on the rest, then segment the test scenes."""
    torch.manual_seed(SEED)
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # needed for deterministic results on a GPU
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)
    images = read_images("train")
    masks = torch.from_numpy(np.load("data/train_masks.npz")["agreed"]).float()[:, None]
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(SEED))
    validation_indices, train_indices = (
        order[: int(VALIDATION_SHARE * len(order))],
        order[int(VALIDATION_SHARE * len(order)) :],
    )

    model = nn.Conv2d(1, 1, KERNEL, padding="same").to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM)
    loss_function = nn.BCEWithLogitsLoss(pos_weight=torch.tensor(POSITIVE_WEIGHT, device=device))
    for epoch in range(1, EPOCHS + 1):
        model.train()
        total = 0.0
        for batch in train_indices[torch.randperm(len(train_indices))].split(BATCH_SIZE):
            optimizer.zero_grad()
            loss = loss_function(model(images[batch].to(device)), masks[batch].to(device))
            loss.backward()
            optimizer.step()
            total += loss.item() * len(batch)
        print(f"epoch {epoch} of {EPOCHS}: loss {total / len(train_indices):.4f}", flush=True)

    validation = dice(
        predict(model, images[validation_indices]) > THRESHOLD, masks[validation_indices, 0].numpy() > 0
    )
    test = pd.read_csv("data/test_records.csv")
    marked = predict(model, read_images("test")) > THRESHOLD
    test["encoded_pixels"] = [encode_runs(mask) for mask in marked]
    test.to_csv("submission.csv", index=False)
    print(f"validation Dice: {validation:.4f}")


main()
