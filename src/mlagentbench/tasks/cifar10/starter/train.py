"""Classify images with a network of two convolutions, trained at a constant learning rate."""

import os

import numpy as np
import pandas as pd
import torch
from torch import nn

LEARNING_RATE = 0.005
MOMENTUM = 0.9
WEIGHT_DECAY = 0.001
BATCH_SIZE = 64
CHANNELS = 16
SHRINK = 2  # factor by which images are shrunk, to save time
EPOCHS = 5
VALIDATION_SHARE = 0.2  # of train.npz
SEED = int(os.environ.get("SEED", "0"))

device = "cuda" if torch.cuda.is_available() else "cpu"


def to_input(images):
    """Convert uint8 images (count, 32, 32, 3) to floats from -1 to 1, channels first, and shrink them."""
    planes = torch.tensor(images, device=device).permute(0, 3, 1, 2).float()
    return nn.functional.avg_pool2d(planes, SHRINK) / 127.5 - 1


def make_model():
    """Two convolutions, each with pooling, then a linear layer."""
    model = nn.Sequential(
        nn.Conv2d(3, CHANNELS, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(CHANNELS, 2 * CHANNELS, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(2 * CHANNELS * (32 // SHRINK // 4) ** 2, 10),
    )
    for layer in (model[0], model[3]):
        nn.init.kaiming_normal_(layer.weight)
    return model


def predict(model, images):
    """Return the most likely class of each image."""
    model.eval()
    with torch.no_grad():
        return (
            torch.cat([model(to_input(batch)).argmax(dim=1) for batch in np.array_split(images, 20)])
            .cpu()
            .numpy()
        )


def main():
    """Train on a part of the labelled images, validate on the rest, then label the test images."""
    torch.manual_seed(SEED)
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # needed for deterministic results on a GPU
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.set_num_threads(1)  # more threads help little, and are much slower on busy cores
    train_file, test_file = np.load("train.npz"), np.load("test.npz")
    images, labels = train_file["images"], train_file["labels"].astype(np.int64)
    order = np.random.default_rng(SEED).permutation(len(labels))
    validation_indices, train_indices = np.split(order, [round(VALIDATION_SHARE * len(order))])

    model = make_model().to(device)
    optimizer = torch.optim.SGD(
        model.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM, weight_decay=WEIGHT_DECAY
    )
    for epoch in range(1, EPOCHS + 1):
        model.train()
        total = 0.0
        for batch in torch.randperm(len(train_indices)).split(BATCH_SIZE):
            indices = train_indices[batch.numpy()]
            optimizer.zero_grad()
            output = model(to_input(images[indices]))
            loss = nn.functional.cross_entropy(output, torch.tensor(labels[indices], device=device))
            loss.backward()
            optimizer.step()
            total += loss.item() * len(indices)
        accuracy = (predict(model, images[validation_indices]) == labels[validation_indices]).mean()
        print(
            f"epoch {epoch} of {EPOCHS}: loss {total / len(train_indices):.4f}, validation {accuracy:.4f}",
            flush=True,
        )

    table = pd.DataFrame({"Id": test_file["ids"], "label": predict(model, test_file["images"])})
    table.to_csv("submission.csv", index=False)
    print(f"validation accuracy: {accuracy:.4f}")


main()
