"""Says what small images show: a small residual net, with augmented images, a schedule and averaged weights."""

import os

import numpy as np
import pandas as pd
import torch
from torch import nn

LEARNING_RATE = 0.01  # the highest of the schedule
WEIGHT_DECAY = 0.05
SMOOTHING = 0.1
BATCH_SIZE = 64
EPOCHS = 10  # at most 10: a rule of the task
SHIFT = 3  # pixels by which an image is moved, at most
WIDTHS = (16, 40, 80, 160)
VALIDATION = 1000  # images that are held out
SEED = int(os.environ.get("SEED", "0"))

device = "cuda" if torch.cuda.is_available() else "cpu"


def convolution(inputs, outputs):
    """A convolution with normalisation; the size stays."""
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True))


class Residual(nn.Module):
    """Adds what a layer makes of its input to the input."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        """The sum."""
        return x + self.layer(x)


def make_model():
    """Convolutions at four scales, the coarser ones wider; the maximum over the image goes to a linear layer."""
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


def padded(images):
    """Images with a rim that mirrors what is inside."""
    planes = torch.tensor(images).permute(0, 3, 1, 2)
    return nn.functional.pad(planes.float(), (SHIFT,) * 4, mode="reflect").byte().permute(0, 2, 3, 1).contiguous()


def augmented(images):
    """Out of each image with a rim a piece of the former size, anywhere; half of them mirrored."""
    size, count = images.shape[1] - 2 * SHIFT, len(images)
    rows, columns = torch.randint(2 * SHIFT + 1, (2, count, 1)) + torch.arange(size)
    columns = torch.where(torch.rand(count, 1) < 0.5, columns.flip(1), columns)
    return images[torch.arange(count)[:, None, None], rows[:, :, None], columns[:, None, :]]


def as_input(images):
    """Bytes of shape (count, 32, 32, 3) as numbers about 0 of shape (count, 3, 32, 32), in the same order in memory."""
    return (images.to(device).float() / 64 - 2).permute(0, 3, 1, 2)


def predict(model, images):
    """The most likely class of each image, from it and its mirror image."""
    model.eval()
    found = []
    with torch.no_grad():
        for part in torch.tensor(images).split(500):
            both = model(as_input(part)).softmax(1) + model(as_input(part.flip(2))).softmax(1)
            found.append(both.argmax(1).cpu())
    return torch.cat(found).numpy()


def main():
    """Train on nearly all labelled images, report the accuracy on the rest, then label the test images."""
    torch.manual_seed(SEED)
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # what a GPU needs to repeat itself
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.set_num_threads(1)  # more gain little here, and lose much when the cores are busy
    train, test = np.load("train.npz"), np.load("test.npz")
    labels = train["labels"].astype(np.int64)
    order = np.random.default_rng(SEED).permutation(len(labels))
    held, seen = order[:VALIDATION], order[VALIDATION:]
    held_images, held_labels = train["images"][held], labels[held]
    images, labels = padded(train["images"][seen]), torch.tensor(labels[seen])
    count = len(labels) // BATCH_SIZE

    model = make_model().to(device, memory_format=torch.channels_last)
    smooth = torch.optim.swa_utils.AveragedModel(
        model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.99), use_buffers=True
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, LEARNING_RATE, epochs=EPOCHS, steps_per_epoch=count, pct_start=0.25
    )
    loss_of = nn.CrossEntropyLoss(label_smoothing=SMOOTHING)
    for epoch in range(1, EPOCHS + 1):
        model.train()
        total = 0.0
        for batch in torch.randperm(len(labels)).split(BATCH_SIZE)[:count]:
            optimizer.zero_grad()
            loss = loss_of(model(as_input(augmented(images[batch]))), labels[batch].to(device))
            loss.backward()
            optimizer.step()
            schedule.step()
            smooth.update_parameters(model)
            total += loss.item()
        accuracy = (predict(smooth, held_images) == held_labels).mean()
        print(f"epoch {epoch} of {EPOCHS}: loss {total / count:.4f}, validation {accuracy:.4f}", flush=True)

    table = pd.DataFrame({"Id": test["ids"], "label": predict(smooth, test["images"])})
    table.to_csv("submission.csv", index=False)
    print(f"validation accuracy: {accuracy:.4f}")


main()
