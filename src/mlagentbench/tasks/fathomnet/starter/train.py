"""Predict the categories in images with a very small network, and a constant out-of-sample score."""

import json
import os

import numpy as np
import pandas as pd
import torch
from sklearn.metrics import roc_auc_score
from torch import nn

LEARNING_RATE = 0.3
BATCH_SIZE = 32
EPOCHS = 3
CHANNELS = 8
KERNEL = 7
MAX_CATEGORIES = 20  # per image; more are not allowed
VALIDATION_SHARE = 0.2  # of the training images
VALIDATION_BOUNDARY_M = 500  # deeper images are withheld in validation, to imitate out-of-sample images
UNSEEN_CATEGORIES = 8  # likewise withheld
SEED = int(os.environ.get("SEED", "0"))

device = "cuda" if torch.cuda.is_available() else "cpu"


def read_images(part):
    """Return the ids and the images of one part; images have shape (images, channels, rows, columns)."""
    with np.load(f"images/{part}.npz") as arrays:
        return arrays["ids"], arrays["images"].transpose(0, 3, 1, 2)


def read_labels(ids, categories):
    """Return which categories each image shows, as an array of zeros and ones."""
    table = pd.read_csv("multilabel_classification/train.csv").set_index("id")
    return np.array(
        [np.isin(categories, json.loads(table.at[image_id, "categories"])) for image_id in ids],
        dtype=np.float32,
    )


def read_depths(ids):
    """Return the depth in metres at which each training image was taken, or zeros if there is no such file."""
    if not os.path.exists("depths.csv"):
        return np.zeros(len(ids))
    return pd.read_csv("depths.csv").set_index("id").loc[ids, "depth_m"].to_numpy()


def iter_batches(images):
    """Yield batches of images, scaled to 0 to 1."""
    for start in range(0, len(images), BATCH_SIZE):
        yield torch.tensor(images[start : start + BATCH_SIZE], device=device).float() / 255


def fit(images, labels):
    """Train a model of the categories in an image. You can replace it by any other model."""
    torch.manual_seed(SEED)
    rng = np.random.default_rng(SEED)
    model = nn.Sequential(
        nn.Conv2d(images.shape[1], CHANNELS, KERNEL, stride=3),
        nn.ReLU(),
        nn.Conv2d(CHANNELS, CHANNELS, KERNEL, stride=3),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(CHANNELS, labels.shape[1]),
    ).to(device)
    frequencies = torch.tensor((labels.sum(axis=0) + 1) / (len(labels) + 2))
    nn.init.zeros_(model[-1].weight)  # start with the frequency of each category
    model[-1].bias.data = frequencies.logit().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
    for epoch in range(1, EPOCHS + 1):
        order, total = rng.permutation(len(images)), 0.0
        for number, batch in enumerate(iter_batches(images[order])):
            targets = torch.tensor(labels[order[number * BATCH_SIZE :][: len(batch)]], device=device)
            optimizer.zero_grad()
            loss = nn.functional.binary_cross_entropy_with_logits(model(batch), targets)
            loss.backward()
            optimizer.step()
            total += loss.item() * len(batch)
        print(f"epoch {epoch} of {EPOCHS}: loss {total / len(images):.4f}", flush=True)
    return model


def predict(model, images):
    """Return the logits of all categories for each image."""
    with torch.no_grad():
        return torch.cat([model(batch) for batch in iter_batches(images)]).cpu().numpy()


def predict_out_of_sample(images):
    """Return how likely each image is out of sample, from 0 to 1. This baseline is a constant."""
    return np.full(len(images), 0.5)


def score(logits, osd, labels, is_out_of_sample):
    """Return the mean of MAP@20 and 2 AUC - 1."""
    order = np.argsort(-logits, axis=1, kind="stable")[:, :MAX_CATEGORIES]
    is_correct = np.take_along_axis(labels, order, axis=1)
    precision = is_correct.cumsum(axis=1) / np.arange(1, is_correct.shape[1] + 1)
    average_precision = (precision * is_correct).sum(axis=1) / np.minimum(labels.sum(axis=1), MAX_CATEGORIES)
    return (average_precision.mean() + 2 * roc_auc_score(is_out_of_sample, osd) - 1) / 2


def split_for_validation(labels, depths):
    """Return masks of the images to train on, to validate on, and of those that count as out of sample.

    Like the test images, those out of sample are deeper than all images to train on, and only they show some
    of the categories. Without depths, the images with such a category are out of sample.
    """
    rng = np.random.default_rng(SEED)
    counts = labels.sum(axis=0)
    rare_categories = np.flatnonzero((counts > 0) & (counts <= np.median(counts[counts > 0])))
    is_unseen = labels[:, rng.permutation(rare_categories)[:UNSEEN_CATEGORIES]].any(axis=1)
    is_validation = rng.random(len(labels)) < VALIDATION_SHARE
    if not depths.any():
        return ~is_validation & ~is_unseen, is_validation, is_unseen
    is_deep = depths > VALIDATION_BOUNDARY_M
    is_in_sample = ~is_deep & ~is_unseen
    return is_in_sample & ~is_validation, is_validation & (is_in_sample | is_deep), is_deep


def validate(images, labels, depths):
    """Return the score on held-out images, some of which imitate out-of-sample images."""
    is_training, is_validation, is_out_of_sample = split_for_validation(labels, depths)
    model = fit(images[is_training], labels[is_training])
    return score(
        predict(model, images[is_validation]),
        predict_out_of_sample(images[is_validation]),
        labels[is_validation],
        is_out_of_sample[is_validation],
    )


def main():
    """Validate, then train on all training images and predict the test images."""
    torch.set_num_threads(1)  # more threads help little, and are much slower on busy cores
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # needed for deterministic results on a GPU
    torch.use_deterministic_algorithms(True)
    categories = pd.read_csv("category_key.csv")["id"].to_numpy()
    ids, images = read_images("train")
    labels = read_labels(ids, categories)
    estimate = validate(images, labels, read_depths(ids))

    test_ids, test_images = read_images("test")
    logits = predict(fit(images, labels), test_images)
    best_categories = categories[np.argsort(-logits, axis=1, kind="stable")[:, :MAX_CATEGORIES]]
    category_lists = [" ".join(map(str, row)) for row in best_categories]
    table = pd.DataFrame(
        {"id": test_ids, "categories": category_lists, "osd": predict_out_of_sample(test_images)}
    )
    table.to_csv("submission.csv", index=False)
    print(f"validation score: {estimate:.4f}")


main()
