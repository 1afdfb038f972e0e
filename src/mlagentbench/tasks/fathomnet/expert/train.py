"""Find categories with a network trained on distorted crops, and out-of-sample images by their water."""

import json
import os
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from scipy.ndimage import gaussian_filter, maximum_filter, uniform_filter
from scipy.stats import rankdata
from sklearn.linear_model import RidgeCV
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn

LEARNING_RATE = 0.008
WEIGHT_DECAY = 1e-4
LABEL_SMOOTHING = 0.05
DROPOUT = 0.3
BATCH_SIZE = 128
EPOCHS, EPOCHS_VALIDATION = 24, 8
CHANNELS = (24, 48, 96, 160)
CROP_PIXELS, STRIDE_PIXELS = 40, 8  # what the network sees at once, and the step of the grid
EMPTY_CROP_SHARE = 0.6  # empty crops per crop with an object
OBJECT_PLACES = 6  # of the grid, with the most likely objects
JITTER_PIXELS, MAX_ANGLE, MAX_LOG_SIZE, MAX_SHEAR = 4.0, 0.35, 0.2, 0.15  # of crops around objects
NEIGHBOUR_SHARE, NEIGHBOUR_PIXELS = 0.5, (24, 34)  # crops that get a part of another crop, and its distance
NEAR_PIXELS = 12  # a crop is not empty if the centre of a box is as near as this
SPECTRUM_EDGES = (0.02, 0.04, 0.07, 0.1, 0.14, 0.18, 0.22, 0.27, 0.32, 0.37, 0.42, 0.47, 0.55, 0.72)
DETAIL_SIGMAS = (0.7, 1.2, 2.0)
STRANGENESS_WEIGHT = 0.25
MAX_CATEGORIES = 20
VALIDATION_SHARE = 0.2
VALIDATION_BOUNDARY_M = 500  # deeper images are withheld in validation, to imitate out-of-sample images
UNSEEN_CATEGORIES = 8  # likewise withheld
SEED = int(os.environ.get("SEED", "0"))

device = "cuda" if torch.cuda.is_available() else "cpu"


# The files


def read_images(part):
    """Return the ids and the images of one part; images are greyscale with shape (images, rows, columns)."""
    with np.load(f"images/{part}.npz") as arrays:
        return arrays["ids"], arrays["images"].mean(axis=3, dtype=np.float32)


def read_boxes(ids, categories):
    """Return the boxes: index of the image, column and row of the centre, and index of the category."""
    coco = json.loads(Path("object_detection/train.json").read_text())
    file_names = {image["id"]: image["file_name"] for image in coco["images"]}
    image_index = {name: number for number, name in enumerate(ids)}
    category_index = {category: number for number, category in enumerate(categories)}
    rows = []
    for annotation in coco["annotations"]:
        x, y, width, height = annotation["bbox"]
        image, category = file_names[annotation["image_id"]], annotation["category_id"]
        rows.append((image_index[image], x + width / 2, y + height / 2, category_index[category]))
    return np.array(rows)


def read_depths(ids):
    """Return the depth in metres of each training image, or zeros if there is no such file."""
    if not Path("depths.csv").exists():
        return np.zeros(len(ids))
    return pd.read_csv("depths.csv").set_index("id").loc[ids, "depth_m"].to_numpy()


# The categories


def normalize_images(images):
    """Remove slow changes of brightness, and equalize contrast; return (images, 1, rows, columns)."""
    background = uniform_filter(uniform_filter(images, (0, 25, 25)), (0, 25, 25))
    normalized = (images - background) / (images.std(axis=(1, 2), keepdims=True) + 1)
    return torch.from_numpy(normalized.clip(-4, 8)[:, None]).to(device)


def choose_crops(boxes, image_numbers, height, width, empty_label, rng):
    """Return the centres (image, column, row) and labels of crops around all boxes, and of empty crops."""
    near = boxes[:, 1:3] + rng.uniform(-JITTER_PIXELS, JITTER_PIXELS, (len(boxes), 2))
    count = int(EMPTY_CROP_SHARE * len(boxes))
    images, places = rng.choice(image_numbers, count), rng.uniform(0, (width, height), (count, 2))
    order = np.argsort(boxes[:, 0], kind="stable")
    first, end = (np.searchsorted(boxes[order, 0], images, side=side) for side in ("left", "right"))
    is_empty = np.array(
        [
            (np.abs(boxes[order[start:stop], 1:3] - place).max(axis=1, initial=0) >= NEAR_PIXELS).all()
            for start, stop, place in zip(first, end, places, strict=True)
        ]
    )
    centres = np.concatenate(
        [np.column_stack([boxes[:, 0], near]), np.column_stack([images, places])[is_empty]]
    )
    return centres, np.concatenate([boxes[:, 3], np.full(is_empty.sum(), empty_label)]).astype(np.int64)


def draw_crops(normalized, centres, rng):
    """Cut out crops that are randomly turned, sheared, mirrored and resized."""
    count, (height, width) = len(centres), normalized.shape[2:]
    angle, shear = rng.uniform(-MAX_ANGLE, MAX_ANGLE, count), rng.uniform(-MAX_SHEAR, MAX_SHEAR, count)
    size, mirror = np.exp(rng.uniform(-MAX_LOG_SIZE, MAX_LOG_SIZE, count)), rng.choice([-1.0, 1.0], count)
    cos, sin = np.cos(angle), np.sin(angle)
    matrices = np.array([[cos * mirror, shear * cos - sin], [sin * mirror, shear * sin + cos]]) * size
    offsets = np.arange(CROP_PIXELS) - (CROP_PIXELS - 1) / 2
    offsets = np.stack(np.meshgrid(offsets, offsets), axis=-1)  # (rows, columns, 2)
    places = np.einsum("ijn,rcj->nrci", matrices, offsets) + centres[:, None, None, 1:]
    grid = torch.from_numpy((places / (width, height) * 2 - 1).astype(np.float32)).to(device)
    images = normalized[torch.from_numpy(centres[:, 0].astype(np.int64)).to(device)]
    return nn.functional.grid_sample(images, grid, align_corners=False)


def add_neighbours(crops, rng):
    """Draw a shifted copy of another crop over some of the crops, as a neighbour at the border."""
    count = len(crops)
    angle, distance = rng.uniform(0, 2 * np.pi, count), rng.uniform(*NEIGHBOUR_PIXELS, count)
    shift = np.stack([np.cos(angle), np.sin(angle)], axis=1) * (distance * 2 / CROP_PIXELS)[:, None]
    matrices = np.concatenate([np.tile(np.eye(2), (count, 1, 1)), shift[:, :, None]], axis=2)
    grid = nn.functional.affine_grid(
        torch.from_numpy(matrices.astype(np.float32)).to(device), list(crops.shape), align_corners=False
    )
    others = crops[torch.from_numpy(rng.permutation(count)).to(device)]
    neighbours = nn.functional.grid_sample(others, grid, align_corners=False)
    is_chosen = torch.from_numpy(rng.random(count) < NEIGHBOUR_SHARE).to(device)[:, None, None, None]
    return torch.where(is_chosen, torch.maximum(crops, neighbours), crops)


def make_layer(inputs, outputs, kernel, stride=1, padding=0):
    """Return a convolution with normalization and activation."""
    convolution = nn.Conv2d(inputs, outputs, kernel, stride, padding, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(outputs), nn.ReLU())


def make_model(outputs):
    """Return a network that maps a crop to logits, and a larger image to a grid of them."""
    one, two, three, four = CHANNELS
    return nn.Sequential(
        make_layer(1, one, 6, 2, 2),
        make_layer(one, one, 3, padding=1),
        make_layer(one, two, 4, 2, 1),
        make_layer(two, two, 3, padding=1),
        make_layer(two, three, 3, padding=1),
        make_layer(three, three, 3, padding=1),
        nn.MaxPool2d(2),
        make_layer(three, four, CROP_PIXELS // STRIDE_PIXELS),
        nn.Dropout(DROPOUT),
        nn.Conv2d(four, outputs, 1),
    ).to(device, memory_format=torch.channels_last)


def fit(normalized, boxes, count, epochs):
    """Train on crops; the last output, number `count`, means that there is no object."""
    torch.manual_seed(SEED)
    rng = np.random.default_rng(SEED)
    model, image_numbers = make_model(count + 1), np.unique(boxes[:, 0])
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY)
    steps = epochs * (int(len(boxes) * (1 + EMPTY_CROP_SHARE)) // BATCH_SIZE + 1)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, LEARNING_RATE, total_steps=steps + 1, pct_start=0.2
    )
    for epoch in range(1, epochs + 1):
        centres, labels = choose_crops(boxes, image_numbers, *normalized.shape[2:], count, rng)
        order, total = rng.permutation(len(labels)), 0.0
        for start in range(0, len(order) - BATCH_SIZE + 1, BATCH_SIZE):
            chosen = order[start : start + BATCH_SIZE]
            crops = add_neighbours(draw_crops(normalized, centres[chosen], rng), rng)
            crops = crops.contiguous(memory_format=torch.channels_last)
            targets = torch.from_numpy(labels[chosen]).to(device)
            loss = nn.functional.cross_entropy(
                model(crops)[:, :, 0, 0], targets, label_smoothing=LABEL_SMOOTHING
            )
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            total += loss.item() * len(chosen)
        print(f"epoch {epoch} of {epochs}: loss {total / len(order):.4f}", flush=True)
    return model.eval()


@torch.no_grad()
def scan_images(model, normalized):
    """Return the maximum probability of each category in each image, and how strange its objects look.

    Both are means over the image and its mirror image.
    """
    margin, probabilities, strangeness = CROP_PIXELS // 2, [], []
    for start in range(0, len(normalized), 64):
        padded = nn.functional.pad(normalized[start : start + 64], (margin,) * 4)
        both = torch.cat([padded, padded.flip(3)]).contiguous(memory_format=torch.channels_last)
        grid = model(both).softmax(dim=1).flatten(2)
        is_object, best = 1 - grid[:, -1], grid[:, :-1].amax(dim=1)
        is_object, places = is_object.topk(min(OBJECT_PLACES, is_object.shape[1]), dim=1)
        strange = 1 - (best.gather(1, places) * is_object).sum(dim=1) / is_object.sum(dim=1)
        probabilities.append(grid[:, :-1].amax(dim=2).view(2, len(padded), -1).mean(dim=0).cpu())
        strangeness.append(strange.view(2, -1).mean(dim=0).cpu())
    return torch.cat(probabilities).numpy(), torch.cat(strangeness).numpy()


# The depths


def describe_water(images):
    """Return statistics of brightness, blur, noise and particles."""
    rows, columns = images.shape[1:]
    window = np.outer(np.hanning(rows), np.hanning(columns)).astype(np.float32)
    centred = (images - images.mean(axis=(1, 2), keepdims=True)) * window
    frequencies = np.hypot(np.fft.fftfreq(rows)[:, None], np.fft.rfftfreq(columns))
    power = np.stack([np.abs(np.fft.rfft2(image)) ** 2 for image in centred]).astype(np.float32)
    bands = [(frequencies >= low) & (frequencies < high) for low, high in pairwise(SPECTRUM_EDGES)]
    features = [np.log(power[:, band].mean(axis=1)) for band in bands]
    features.append(np.log(np.median(power[:, frequencies >= 0.4], axis=1)))
    features.append(np.log(images.mean(axis=(1, 2))))
    features += [np.log1p(values) for values in quantiles(images, (5, 25, 50, 75, 95, 99, 99.8))]
    for sigma in DETAIL_SIGMAS:
        detail = gaussian_filter(images, (0, sigma, sigma)) - gaussian_filter(
            images, (0, 1.6 * sigma, 1.6 * sigma)
        )
        scale = np.median(np.abs(detail), axis=(1, 2)) + 1e-3
        features.append(np.log(scale))
        features += [values / scale for values in quantiles(detail, (0.2, 2, 90, 97, 99, 99.7, 99.95))]
        peaks = np.where(detail == maximum_filter(detail, (1, 3, 3)), detail, 0) / scale[:, None, None]
        features += [np.log1p(np.count_nonzero(peaks > height, axis=(1, 2))) for height in (4, 6, 9, 13)]
    return np.stack(features, axis=1)


def quantiles(images, percentages):
    """Return percentiles of the pixels of each image, (percentages, images)."""
    pixels = np.sort(images.reshape(len(images), -1), axis=1)
    return pixels[:, [int(share / 100 * (pixels.shape[1] - 1)) for share in percentages]].T


def score_out_of_sample(water, depths, new_water, strangeness):
    """Combine the depth that the water suggests with the strangeness of objects, on a scale from 0 to 1.

    A linear regression of the depth extrapolates beyond the depths of the training images.
    """
    if depths.any():
        regression = make_pipeline(StandardScaler(), RidgeCV(np.logspace(-1, 4, 12)))
        estimates = regression.fit(water, depths).predict(new_water)
    else:
        estimates = np.zeros(len(new_water))
    combined = standardize(estimates) + STRANGENESS_WEIGHT * standardize(rankdata(strangeness))
    return rankdata(combined) / len(combined)


def standardize(values):
    """Shift and scale values to a mean of 0 and a standard deviation of 1."""
    return (values - values.mean()) / max(values.std(), 1e-9)


# Putting it together


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


def validate(normalized, water, boxes, depths, count):
    """Return the score on held-out images, some of which imitate out-of-sample images."""
    labels = np.zeros((len(normalized), count), bool)
    labels[boxes[:, 0].astype(int), boxes[:, 3].astype(int)] = True
    is_training, is_validation, is_out_of_sample = split_for_validation(labels, depths)
    model = fit(normalized, boxes[is_training[boxes[:, 0].astype(int)]], count, EPOCHS_VALIDATION)
    probabilities, strangeness = scan_images(model, normalized[torch.from_numpy(is_validation).to(device)])
    osd = score_out_of_sample(water[is_training], depths[is_training], water[is_validation], strangeness)
    return score(probabilities, osd, labels[is_validation], is_out_of_sample[is_validation])


def main():
    """Validate, then train on all training images and predict the test images."""
    torch.set_num_threads(min(2, len(os.sched_getaffinity(0))))
    categories = pd.read_csv("category_key.csv")["id"].to_numpy()
    (ids, images), (test_ids, test_images) = read_images("train"), read_images("test")
    boxes, depths = read_boxes(ids, categories), read_depths(ids)
    water, test_water = describe_water(images), describe_water(test_images)
    print("described the water", flush=True)
    normalized = normalize_images(images)
    estimate = validate(normalized, water, boxes, depths, len(categories))

    model = fit(normalized, boxes, len(categories), EPOCHS)
    probabilities, strangeness = scan_images(model, normalize_images(test_images))
    best_categories = categories[np.argsort(-probabilities, axis=1, kind="stable")[:, :MAX_CATEGORIES]]
    category_lists = [" ".join(map(str, row)) for row in best_categories]
    osd = score_out_of_sample(water, depths, test_water, strangeness)
    table = pd.DataFrame({"id": test_ids, "categories": category_lists, "osd": osd})
    table.to_csv("submission.csv", index=False)
    print(f"validation score: {estimate:.4f}")


main()
