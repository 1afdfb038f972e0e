"""Names the categories on pictures: a very small convolutional net, and no idea of what is out of sample."""

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
NAMED = 20  # categories for each picture; more are not allowed
HELD_OUT = 0.2  # of the pictures to learn from, to validate by
UNSEEN = 8  # categories that are kept from the model then, to imitate pictures that are out of sample
SEED = int(os.environ.get("SEED", "0"))

device = "cuda" if torch.cuda.is_available() else "cpu"


def read_images(part):
    """The ids and the pictures of one part, these as (picture, channel, row, column)."""
    with np.load(f"images/{part}.npz") as arrays:
        return arrays["ids"], arrays["images"].transpose(0, 3, 1, 2)


def read_labels(ids, categories):
    """Which categories each picture shows, as a table of zeros and ones."""
    table = pd.read_csv("multilabel_classification/train.csv").set_index("id")
    return np.array([np.isin(categories, json.loads(table.at[each, "categories"])) for each in ids], dtype=np.float32)


def batches(images):
    """The pictures as small numbers, some at a time."""
    for start in range(0, len(images), BATCH_SIZE):
        yield torch.tensor(images[start : start + BATCH_SIZE], device=device).float() / 255


def fit(images, labels):
    """Learn which categories a picture shows. Any other model may stand here."""
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
    share = torch.tensor((labels.sum(axis=0) + 1) / (len(labels) + 2))
    nn.init.zeros_(model[-1].weight)  # at first each category is believed in as often as it is seen
    model[-1].bias.data = share.logit().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
    for epoch in range(1, EPOCHS + 1):
        order, total = rng.permutation(len(images)), 0.0
        for number, batch in enumerate(batches(images[order])):
            truth = torch.tensor(labels[order[number * BATCH_SIZE :][: len(batch)]], device=device)
            optimizer.zero_grad()
            loss = nn.functional.binary_cross_entropy_with_logits(model(batch), truth)
            loss.backward()
            optimizer.step()
            total += loss.item() * len(batch)
        print(f"epoch {epoch} of {EPOCHS}: loss {total / len(images):.4f}", flush=True)
    return model


def predict(model, images):
    """How strongly the model believes in each category, for each picture."""
    with torch.no_grad():
        return torch.cat([model(batch) for batch in batches(images)]).cpu().numpy()


def out_of_sample(images):
    """How likely each picture is out of sample, from 0 to 1. Nothing is known here yet."""
    return np.full(len(images), 0.5)


def score(beliefs, osd, labels, out):
    """The mean of MAP@20 and 2 AUC - 1."""
    order = np.argsort(-beliefs, axis=1, kind="stable")[:, :NAMED]
    right = np.take_along_axis(labels, order, axis=1)
    precision = right.cumsum(axis=1) / np.arange(1, right.shape[1] + 1)
    average = (precision * right).sum(axis=1) / np.minimum(labels.sum(axis=1), NAMED)
    return (average.mean() + 2 * roc_auc_score(out, osd) - 1) / 2


def validate(images, labels):
    """The score on pictures that the model did not learn from, some with categories that it never saw."""
    rng = np.random.default_rng(SEED)
    counts = labels.sum(axis=0)
    rarer = np.flatnonzero((counts > 0) & (counts <= np.median(counts[counts > 0])))
    out = labels[:, rng.permutation(rarer)[:UNSEEN]].any(axis=1)
    held = rng.random(len(images)) < HELD_OUT
    model = fit(images[~held & ~out], labels[~held & ~out])
    return score(predict(model, images[held]), out_of_sample(images[held]), labels[held], out[held])


def main():
    """Validate, then learn from all pictures and predict the others."""
    torch.set_num_threads(1)  # more gain little here, and lose much when the cores are busy
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # what a GPU needs to repeat itself
    torch.use_deterministic_algorithms(True)
    categories = pd.read_csv("category_key.csv")["id"].to_numpy()
    ids, images = read_images("train")
    labels = read_labels(ids, categories)
    figure = validate(images, labels)

    test_ids, test_images = read_images("test")
    beliefs = predict(fit(images, labels), test_images)
    best = categories[np.argsort(-beliefs, axis=1, kind="stable")[:, :NAMED]]
    named = [" ".join(map(str, row)) for row in best]
    table = pd.DataFrame({"id": test_ids, "categories": named, "osd": out_of_sample(test_images)})
    table.to_csv("submission.csv", index=False)
    print(f"validation score: {figure:.4f}")


main()
