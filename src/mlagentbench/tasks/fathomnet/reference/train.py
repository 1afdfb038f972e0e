"""Names the categories on pictures: a net that learns from crops around the boxes, then looks everywhere."""

import json
import os

import lightgbm as lgb
import numpy as np
import pandas as pd
import torch
from scipy.ndimage import uniform_filter
from scipy.stats import rankdata
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import cross_val_predict
from torch import nn

LEARNING_RATE = 0.006
WEIGHT_DECAY = 1e-4
BATCH_SIZE = 128
EPOCHS, EPOCHS_VALIDATION = 8, 3
CHANNELS = (24, 48, 96, 160)
CROP, STRIDE = 40, 8  # pixels: what the net sees at once, and from where to where it looks
EMPTY = 0.3  # crops of nothing, for each crop of something
DROPOUT = 0.3
NAMED = 20
HELD_OUT = 0.15
UNSEEN = 8
SEED = int(os.environ.get("SEED", "0"))

device = "cuda" if torch.cuda.is_available() else "cpu"


def read_images(part):
    """The ids and the pictures of one part, these as (picture, row, column), grey."""
    with np.load(f"images/{part}.npz") as arrays:
        return arrays["ids"], arrays["images"].mean(axis=3, dtype=np.float32)


def read_boxes(ids, categories):
    """The places of all things: picture, column and row of the middle, and category, by their numbers."""
    with open("object_detection/train.json") as file:
        coco = json.load(file)
    pictures = {image["id"]: image["file_name"] for image in coco["images"]}
    numbers = {name: number for number, name in enumerate(ids)}
    places = {category: number for number, category in enumerate(categories)}
    rows = []
    for each in coco["annotations"]:
        x, y, width, height = each["bbox"]
        rows.append((numbers[pictures[each["image_id"]]], x + width // 2, y + height // 2, places[each["category_id"]]))
    return np.array(rows)


def evened(images):
    """The pictures without slow changes of light, at equal contrast, with a margin."""
    slow = uniform_filter(uniform_filter(images, (0, 25, 25)), (0, 25, 25))
    images = (images - slow) / (images.std(axis=(1, 2), keepdims=True) + 1)
    return np.pad(images, ((0, 0), (CROP // 2, CROP // 2), (CROP // 2, CROP // 2))).clip(-4, 8)


def crops(pictures, boxes, nothing, rng):
    """Crops around all boxes, and others that have none in the middle, with their labels."""
    height, width = (side - CROP for side in pictures.shape[1:])
    jitter = rng.integers(-STRIDE // 2, STRIDE // 2 + 1, (len(boxes), 2))
    middles = np.column_stack([boxes[:, 0], boxes[:, 1:3] + jitter])
    count = int(EMPTY * len(boxes))
    some = rng.choice(np.unique(boxes[:, 0]), count)
    empty = np.column_stack([some, rng.integers(0, width, count), rng.integers(0, height, count)])
    near = np.zeros(count, bool)
    by_picture = {number: boxes[boxes[:, 0] == number, 1:3] for number in np.unique(empty[:, 0])}
    for place, (number, x, y) in enumerate(empty):
        near[place] = (np.abs(by_picture[number] - (x, y)).max(axis=1) < 1.5 * STRIDE).any()
    where = np.concatenate([middles, empty[~near]])
    where[:, 1:] = where[:, 1:].clip(0, (width, height))
    labels = np.concatenate([boxes[:, 3], np.full((~near).sum(), nothing)])
    windows = np.lib.stride_tricks.sliding_window_view(pictures, (CROP, CROP), axis=(1, 2))
    found = windows[where[:, 0], where[:, 2], where[:, 1]]
    flipped = rng.random(len(found)) < 0.5
    found[flipped] = found[flipped, :, ::-1]
    return found, labels


def as_batch(pictures):
    """Pictures as the net wants them."""
    return torch.tensor(pictures[:, None], device=device).contiguous(memory_format=torch.channels_last)


def net(outputs):
    """A net that turns a crop into beliefs, and a larger picture into a grid of them."""
    one, two, three, four = CHANNELS
    return nn.Sequential(
        nn.Conv2d(1, one, 6, stride=2, padding=2, bias=False),
        nn.BatchNorm2d(one),
        nn.ReLU(),
        nn.Conv2d(one, two, 4, stride=2, padding=1, bias=False),
        nn.BatchNorm2d(two),
        nn.ReLU(),
        nn.Conv2d(two, three, 3, padding=1, bias=False),
        nn.BatchNorm2d(three),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(three, four, CROP // STRIDE, bias=False),
        nn.BatchNorm2d(four),
        nn.ReLU(),
        nn.Dropout(DROPOUT),
        nn.Conv2d(four, outputs, 1),
    ).to(device, memory_format=torch.channels_last)


def fit(pictures, boxes, count, epochs):
    """Learn categories from crops; the last output, number `count`, means nothing."""
    torch.manual_seed(SEED)
    rng = np.random.default_rng(SEED)
    model = net(count + 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY)
    steps = epochs * (int(len(boxes) * (1 + EMPTY)) // BATCH_SIZE + 1)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, LEARNING_RATE, total_steps=steps + 1, pct_start=0.2)
    for epoch in range(1, epochs + 1):
        found, labels = crops(pictures, boxes, count, rng)
        order, total = rng.permutation(len(labels)), 0.0
        model.train()
        for start in range(0, len(order), BATCH_SIZE):
            some = order[start : start + BATCH_SIZE]
            batch = as_batch(found[some])
            truth = torch.tensor(labels[some], device=device)
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(batch)[:, :, 0, 0], truth, label_smoothing=0.05)
            loss.backward()
            optimizer.step()
            schedule.step()
            total += loss.item() * len(some)
        print(f"epoch {epoch} of {epochs}: loss {total / len(order):.4f}", flush=True)
    return model.eval()


def look(model, pictures):
    """For each picture the belief in each category at the best place, and how strange its things look."""
    beliefs, strange = [], []
    with torch.no_grad():
        for start in range(0, len(pictures), 64):
            grid = model(as_batch(pictures[start : start + 64])).softmax(dim=1).flatten(2)
            known, nothing = grid[:, :-1], grid[:, -1]
            beliefs.append(known.amax(dim=2).cpu())
            doubt = 1 - nothing - known.amax(dim=1)  # something is there, but nothing that is known well
            strange.append(doubt.topk(4, dim=1).values.mean(dim=1).cpu())
    return torch.cat(beliefs).numpy(), torch.cat(strange).numpy()


def statistics(images):
    """What light, murk and noise do to a picture, in numbers."""
    columns = [*np.percentile(images, (2, 50, 98), axis=(1, 2)), images.std(axis=(1, 2))]
    for width in (3, 7, 21):
        rest = images - uniform_filter(images, (0, width, width))
        columns += [np.abs(rest).mean(axis=(1, 2)), (rest**2).mean(axis=(1, 2)) ** (1 / 2), rest.max(axis=(1, 2))]
        columns += [np.cbrt((rest**3).mean(axis=(1, 2))), np.abs(np.diff(rest, axis=1)).mean(axis=(1, 2))]
    table = np.stack(columns, axis=1)
    return np.column_stack([table, table / table[:, [1]]])


def foreignness(known, new):
    """How unlike the known pictures the new ones are, by trees that tell the two apart, each by trees of others."""
    trees = lgb.LGBMClassifier(
        n_estimators=60, learning_rate=0.05, num_leaves=8, min_child_samples=30, colsample_bytree=0.5,
        random_state=SEED, n_jobs=1, verbose=-1,
    )  # fmt: skip
    both, which = np.concatenate([known, new]), np.repeat([0, 1], [len(known), len(new)])
    return cross_val_predict(trees, both, which, cv=5, method="predict_proba")[len(known) :, 1]


def out_of_sample(known, new, strange):
    """The mean of two ranks: pictures unlike the known ones, and things unlike the known ones."""
    return (rankdata(foreignness(known, new)) + rankdata(strange)) / (2 * len(new))


def score(beliefs, osd, labels, out):
    """The mean of MAP@20 and 2 AUC - 1."""
    order = np.argsort(-beliefs, axis=1, kind="stable")[:, :NAMED]
    right = np.take_along_axis(labels, order, axis=1)
    precision = right.cumsum(axis=1) / np.arange(1, right.shape[1] + 1)
    average = (precision * right).sum(axis=1) / np.minimum(labels.sum(axis=1), NAMED)
    return (average.mean() + 2 * roc_auc_score(out, osd) - 1) / 2


def validate(pictures, numbers, boxes, count):
    """The score on pictures that the model did not learn from, some with categories that it never saw."""
    rng = np.random.default_rng(SEED)
    labels = np.zeros((len(pictures), count), bool)
    labels[boxes[:, 0], boxes[:, 3]] = True
    counts = labels.sum(axis=0)
    rarer = np.flatnonzero((counts > 0) & (counts <= np.median(counts[counts > 0])))
    out = labels[:, rng.permutation(rarer)[:UNSEEN]].any(axis=1)
    held = rng.random(len(pictures)) < HELD_OUT
    model = fit(pictures, boxes[(~held & ~out)[boxes[:, 0]]], count, EPOCHS_VALIDATION)
    beliefs, strange = look(model, pictures[held])
    return score(beliefs, out_of_sample(numbers[~held], numbers[held], strange), labels[held], out[held])


def main():
    """Validate, then learn from all pictures and predict the others."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # what a GPU needs to repeat itself
    torch.use_deterministic_algorithms(True)
    categories = pd.read_csv("category_key.csv")["id"].to_numpy()
    (ids, images), (test_ids, test_images) = read_images("train"), read_images("test")
    boxes = read_boxes(ids, categories)
    numbers, test_numbers = statistics(images), statistics(test_images)
    print("measured light, murk and noise", flush=True)
    pictures = evened(images)
    figure = validate(pictures, numbers, boxes, len(categories))

    beliefs, strange = look(fit(pictures, boxes, len(categories), EPOCHS), evened(test_images))
    best = categories[np.argsort(-beliefs, axis=1, kind="stable")[:, :NAMED]]
    named = [" ".join(map(str, row)) for row in best]
    osd = out_of_sample(numbers, test_numbers, strange)
    pd.DataFrame({"id": test_ids, "categories": named, "osd": osd}).to_csv("submission.csv", index=False)
    print(f"validation score: {figure:.4f}")


main()
