"""Predict the categories in images with a network trained on crops around boxes and applied everywhere."""

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
CROP_PIXELS, STRIDE_PIXELS = 40, 8  # what the network sees at once, and the step of the grid
EMPTY_CROP_SHARE = 0.3  # empty crops per crop with an object
DROPOUT = 0.3
MAX_CATEGORIES = 20
VALIDATION_SHARE = 0.15
VALIDATION_BOUNDARY_M = 500  # deeper images are withheld in validation, to imitate out-of-sample images
UNSEEN_CATEGORIES = 8  # likewise withheld
SEED = int(os.environ.get("SEED", "0"))

device = "cuda" if torch.cuda.is_available() else "cpu"


def read_images(part):
    """Return the ids and the images of one part; images are greyscale with shape (images, rows, columns)."""
    with np.load(f"images/{part}.npz") as arrays:
        return arrays["ids"], arrays["images"].mean(axis=3, dtype=np.float32)


def read_boxes(ids, categories):
    """Return the boxes: index of the image, column and row of the centre, and index of the category."""
    with open("object_detection/train.json") as file:
        coco = json.load(file)
    file_names = {image["id"]: image["file_name"] for image in coco["images"]}
    image_index = {name: number for number, name in enumerate(ids)}
    category_index = {category: number for number, category in enumerate(categories)}
    rows = []
    for annotation in coco["annotations"]:
        x, y, width, height = annotation["bbox"]
        rows.append(
            (
                image_index[file_names[annotation["image_id"]]],
                x + width // 2,
                y + height // 2,
                category_index[annotation["category_id"]],
            )
        )
    return np.array(rows)


def read_depths(ids):
    """Return the depth in metres at which each training image was taken, or zeros if there is no such file."""
    if not os.path.exists("depths.csv"):
        return np.zeros(len(ids))
    return pd.read_csv("depths.csv").set_index("id").loc[ids, "depth_m"].to_numpy()


def normalize_images(images):
    """Remove slow changes of brightness, equalize contrast, and add a margin."""
    background = uniform_filter(uniform_filter(images, (0, 25, 25)), (0, 25, 25))
    images = (images - background) / (images.std(axis=(1, 2), keepdims=True) + 1)
    return np.pad(
        images, ((0, 0), (CROP_PIXELS // 2, CROP_PIXELS // 2), (CROP_PIXELS // 2, CROP_PIXELS // 2))
    ).clip(-4, 8)


def draw_crops(normalized, boxes, empty_label, rng):
    """Draw crops around all boxes, and empty ones with no box in the middle, with their labels."""
    height, width = (side - CROP_PIXELS for side in normalized.shape[1:])
    jitter = rng.integers(-STRIDE_PIXELS // 2, STRIDE_PIXELS // 2 + 1, (len(boxes), 2))
    centres = np.column_stack([boxes[:, 0], boxes[:, 1:3] + jitter])
    count = int(EMPTY_CROP_SHARE * len(boxes))
    image_numbers = rng.choice(np.unique(boxes[:, 0]), count)
    empty = np.column_stack([image_numbers, rng.integers(0, width, count), rng.integers(0, height, count)])
    is_near_box = np.zeros(count, bool)
    boxes_by_image = {number: boxes[boxes[:, 0] == number, 1:3] for number in np.unique(empty[:, 0])}
    for row, (number, x, y) in enumerate(empty):
        is_near_box[row] = (np.abs(boxes_by_image[number] - (x, y)).max(axis=1) < 1.5 * STRIDE_PIXELS).any()
    positions = np.concatenate([centres, empty[~is_near_box]])
    positions[:, 1:] = positions[:, 1:].clip(0, (width, height))
    labels = np.concatenate([boxes[:, 3], np.full((~is_near_box).sum(), empty_label)])
    windows = np.lib.stride_tricks.sliding_window_view(normalized, (CROP_PIXELS, CROP_PIXELS), axis=(1, 2))
    crops = windows[positions[:, 0], positions[:, 2], positions[:, 1]]
    flipped = rng.random(len(crops)) < 0.5
    crops[flipped] = crops[flipped, :, ::-1]
    return crops, labels


def to_batch(normalized):
    """Convert images to a batch for the network."""
    return torch.tensor(normalized[:, None], device=device).contiguous(memory_format=torch.channels_last)


def make_model(outputs):
    """Return a network that maps a crop to logits, and a larger image to a grid of them."""
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
        nn.Conv2d(three, four, CROP_PIXELS // STRIDE_PIXELS, bias=False),
        nn.BatchNorm2d(four),
        nn.ReLU(),
        nn.Dropout(DROPOUT),
        nn.Conv2d(four, outputs, 1),
    ).to(device, memory_format=torch.channels_last)


def fit(normalized, boxes, count, epochs):
    """Train on crops; the last output, number `count`, means that there is no object."""
    torch.manual_seed(SEED)
    rng = np.random.default_rng(SEED)
    model = make_model(count + 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY)
    steps = epochs * (int(len(boxes) * (1 + EMPTY_CROP_SHARE)) // BATCH_SIZE + 1)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, LEARNING_RATE, total_steps=steps + 1, pct_start=0.2
    )
    for epoch in range(1, epochs + 1):
        crops, labels = draw_crops(normalized, boxes, count, rng)
        order, total = rng.permutation(len(labels)), 0.0
        model.train()
        for start in range(0, len(order), BATCH_SIZE):
            batch_indices = order[start : start + BATCH_SIZE]
            batch = to_batch(crops[batch_indices])
            targets = torch.tensor(labels[batch_indices], device=device)
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(batch)[:, :, 0, 0], targets, label_smoothing=0.05)
            loss.backward()
            optimizer.step()
            schedule.step()
            total += loss.item() * len(batch_indices)
        print(f"epoch {epoch} of {epochs}: loss {total / len(order):.4f}", flush=True)
    return model.eval()


def scan_images(model, normalized):
    """Return for each image the maximum probability of each category, and how strange its objects look."""
    probabilities, strangeness = [], []
    with torch.no_grad():
        for start in range(0, len(normalized), 64):
            grid = model(to_batch(normalized[start : start + 64])).softmax(dim=1).flatten(2)
            known, nothing = grid[:, :-1], grid[:, -1]
            probabilities.append(known.amax(dim=2).cpu())
            unknown_object = 1 - nothing - known.amax(dim=1)  # an object, but of no known category
            strangeness.append(unknown_object.topk(4, dim=1).values.mean(dim=1).cpu())
    return torch.cat(probabilities).numpy(), torch.cat(strangeness).numpy()


def image_statistics(images):
    """Return statistics of brightness, blur and noise."""
    columns = [*np.percentile(images, (2, 50, 98), axis=(1, 2)), images.std(axis=(1, 2))]
    for width in (3, 7, 21):
        detail = images - uniform_filter(images, (0, width, width))
        columns += [
            np.abs(detail).mean(axis=(1, 2)),
            (detail**2).mean(axis=(1, 2)) ** (1 / 2),
            detail.max(axis=(1, 2)),
        ]
        columns += [np.cbrt((detail**3).mean(axis=(1, 2))), np.abs(np.diff(detail, axis=1)).mean(axis=(1, 2))]
    table = np.stack(columns, axis=1)
    return np.column_stack([table, table / table[:, [1]]])


def score_foreignness(known, new):
    """Score how unlike the known images the new ones are, with trees that tell them apart."""
    trees = lgb.LGBMClassifier(
        n_estimators=60, learning_rate=0.05, num_leaves=8, min_child_samples=30, colsample_bytree=0.5,
        random_state=SEED, n_jobs=1, verbose=-1,
    )  # fmt: skip
    features, is_new = np.concatenate([known, new]), np.repeat([0, 1], [len(known), len(new)])
    return cross_val_predict(trees, features, is_new, cv=5, method="predict_proba")[len(known) :, 1]


def score_out_of_sample(known, new, strangeness):
    """Average two ranks: of images unlike the known ones, and of objects unlike the known ones."""
    return (rankdata(score_foreignness(known, new)) + rankdata(strangeness)) / (2 * len(new))


def score(probabilities, osd, labels, is_out_of_sample):
    """Return the mean of MAP@20 and 2 AUC - 1."""
    order = np.argsort(-probabilities, axis=1, kind="stable")[:, :MAX_CATEGORIES]
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


def validate(normalized, statistics, boxes, depths, count):
    """Return the score on held-out images, some of which imitate out-of-sample images."""
    labels = np.zeros((len(normalized), count), bool)
    labels[boxes[:, 0], boxes[:, 3]] = True
    is_training, is_validation, is_out_of_sample = split_for_validation(labels, depths)
    model = fit(normalized, boxes[is_training[boxes[:, 0]]], count, EPOCHS_VALIDATION)
    probabilities, strangeness = scan_images(model, normalized[is_validation])
    return score(
        probabilities,
        score_out_of_sample(statistics[is_training], statistics[is_validation], strangeness),
        labels[is_validation],
        is_out_of_sample[is_validation],
    )


def main():
    """Validate, then train on all training images and predict the test images."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # needed for deterministic results on a GPU
    torch.use_deterministic_algorithms(True)
    categories = pd.read_csv("category_key.csv")["id"].to_numpy()
    (ids, images), (test_ids, test_images) = read_images("train"), read_images("test")
    boxes = read_boxes(ids, categories)
    statistics, test_statistics = image_statistics(images), image_statistics(test_images)
    print("computed image statistics", flush=True)
    normalized = normalize_images(images)
    estimate = validate(normalized, statistics, boxes, read_depths(ids), len(categories))

    probabilities, strangeness = scan_images(
        fit(normalized, boxes, len(categories), EPOCHS), normalize_images(test_images)
    )
    best_categories = categories[np.argsort(-probabilities, axis=1, kind="stable")[:, :MAX_CATEGORIES]]
    category_lists = [" ".join(map(str, row)) for row in best_categories]
    osd = score_out_of_sample(statistics, test_statistics, strangeness)
    pd.DataFrame({"id": test_ids, "categories": category_lists, "osd": osd}).to_csv(
        "submission.csv", index=False
    )
    print(f"validation score: {estimate:.4f}")


main()
