"""Classify images with a small residual network, augmentation, a schedule and averaged weights."""

import os

import numpy as np
import pandas as pd
import torch
from torch import nn

LEARNING_RATE = 0.01  # maximum of the schedule
WEIGHT_DECAY = 0.05
SMOOTHING = 0.1
BATCH_SIZE = 64
EPOCHS = 10
SHIFT = 3  # pixels by which an image is moved at most
WIDTHS = (16, 40, 80, 160)
VALIDATION_IMAGES = 1000  # held out
SEED = int(os.environ.get("SEED", "0"))

device = "cuda" if torch.cuda.is_available() else "cpu"


def convolution(inputs, outputs):
    """A convolution with normalization that keeps the image size."""
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)
    )


class Residual(nn.Module):
    """Adds the output of a layer to its input."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        """Return the sum."""
        return x + self.layer(x)


def make_model():
    """Convolutions at four scales, wider at coarser ones, then global max pooling and a linear layer."""
    first, second, third, fourth = WIDTHS
    return nn.Sequential(
        convolution(3, first),
        nn.MaxPool2d(2),
        convolution(first, second),
        nn.MaxPool2d(2),
        convolution(second, third),
        nn.MaxPool2d(2),
        convolution(third, fourth),
        Residual(convolution(fourth, fourth)),
        nn.AdaptiveMaxPool2d(1),
        nn.Flatten(),
        nn.Linear(fourth, 10),
    )


def pad_images(images):
    """Pad images by reflection."""
    planes = torch.tensor(images).permute(0, 3, 1, 2)
    return (
        nn.functional.pad(planes.float(), (SHIFT,) * 4, mode="reflect")
        .byte()
        .permute(0, 2, 3, 1)
        .contiguous()
    )


def augment(images):
    """Crop each padded image at a random position to its former size, and mirror half of them."""
    size, count = images.shape[1] - 2 * SHIFT, len(images)
    rows, columns = torch.randint(2 * SHIFT + 1, (2, count, 1)) + torch.arange(size)
    columns = torch.where(torch.rand(count, 1) < 0.5, columns.flip(1), columns)
    return images[torch.arange(count)[:, None, None], rows[:, :, None], columns[:, None, :]]


def to_input(images):
    """Convert uint8 images (count, 32, 32, 3) to floats around 0 (count, 3, 32, 32)."""
    return (images.to(device).float() / 64 - 2).permute(0, 3, 1, 2)


def predict(model, images):
    """Return the most likely class of each image, averaged over the image and its mirror image."""
    model.eval()
    predictions = []
    with torch.no_grad():
        for part in torch.tensor(images).split(500):
            probabilities = model(to_input(part)).softmax(1) + model(to_input(part.flip(2))).softmax(1)
            predictions.append(probabilities.argmax(1).cpu())
    return torch.cat(predictions).numpy()


def main():
    """Train on most labelled images, validate on the rest, then label the test images."""
    torch.manual_seed(SEED)
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # needed for deterministic results on a GPU
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.set_num_threads(1)  # more threads help little, and are much slower on busy cores
    train, test = np.load("train.npz"), np.load("test.npz")
    labels = train["labels"].astype(np.int64)
    order = np.random.default_rng(SEED).permutation(len(labels))
    validation_indices, train_indices = order[:VALIDATION_IMAGES], order[VALIDATION_IMAGES:]
    validation_images, validation_labels = train["images"][validation_indices], labels[validation_indices]
    images, labels = pad_images(train["images"][train_indices]), torch.tensor(labels[train_indices])
    count = len(labels) // BATCH_SIZE

    model = make_model().to(device, memory_format=torch.channels_last)
    averaged = torch.optim.swa_utils.AveragedModel(
        model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.99), use_buffers=True
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, LEARNING_RATE, epochs=EPOCHS, steps_per_epoch=count, pct_start=0.25
    )
    loss_function = nn.CrossEntropyLoss(label_smoothing=SMOOTHING)
    for epoch in range(1, EPOCHS + 1):
        model.train()
        total = 0.0
        for batch in torch.randperm(len(labels)).split(BATCH_SIZE)[:count]:
            optimizer.zero_grad()
            loss = loss_function(model(to_input(augment(images[batch]))), labels[batch].to(device))
            loss.backward()
            optimizer.step()
            schedule.step()
            averaged.update_parameters(model)
            total += loss.item()
        accuracy = (predict(averaged, validation_images) == validation_labels).mean()
        print(f"epoch {epoch} of {EPOCHS}: loss {total / count:.4f}, validation {accuracy:.4f}", flush=True)

    table = pd.DataFrame({"Id": test["ids"], "label": predict(averaged, test["images"])})
    table.to_csv("submission.csv", index=False)
    print(f"validation accuracy: {accuracy:.4f}")


main()
