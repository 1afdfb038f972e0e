"""Classify images with a residual network on whitened patches, trained by orthogonalized steps."""

import os
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import nn
from torch.nn import functional

WIDTHS = (48, 160, 256)  # channels of the three stages
DEPTH = 4  # convolutions of a stage
EPOCHS = 20
BATCH_SIZE = 250
CONVOLUTION_RATE = 0.16  # length of a step, where filters have length 1
OTHER_RATE, HEAD_RATE = 0.05, 0.6
CONVOLUTION_MOMENTUM, OTHER_MOMENTUM = 0.6, 0.85
WARMUP = 0.1  # share of the steps in which the learning rates rise; then they fall to 0
SMOOTHING = 0.2
SHIFT = 2  # pixels by which a training image is moved at most
VALIDATION_IMAGES = 500  # held out
SEED = int(os.environ.get("SEED", "0"))

device = "cuda" if torch.cuda.is_available() else "cpu"
has_fast_bfloat16 = device == "cuda" or "avx512_bf16" in Path("/proc/cpuinfo").read_text()
number_type = torch.bfloat16 if has_fast_bfloat16 else torch.float32


class Whitening(nn.Module):
    """Fixed filters that decorrelate patches of 2 x 2 pixels, and their negatives."""

    def __init__(self, images):
        super().__init__()
        patches = functional.unfold(images, 2).transpose(1, 2).flatten(0, 1).double()
        variances, directions = torch.linalg.eigh(patches.T @ patches / len(patches))
        filters = (directions / (variances + 5e-4).sqrt()).T.float().unflatten(1, (3, 2, 2))
        self.register_buffer("filters", torch.cat([filters, -filters]))
        self.bias = nn.Parameter(torch.zeros(len(self.filters)))

    def forward(self, images):
        """Return activations, one row and column fewer."""
        return functional.gelu(functional.conv2d(images, self.filters, self.bias))


class Stage(nn.Module):
    """Convolutions with normalization: one with pooling, then some with a residual connection around them."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.convolutions = nn.ModuleList(
            nn.Conv2d(outputs if number else inputs, outputs, 3, padding=1, bias=False)
            for number in range(DEPTH)
        )
        self.norms = nn.ModuleList(nn.BatchNorm2d(outputs, momentum=0.2) for _ in range(DEPTH))
        for convolution, norm in zip(self.convolutions, self.norms, strict=True):
            passed_on = min(convolution.weight.shape[:2])
            nn.init.dirac_(convolution.weight[:passed_on])  # at first, channels are passed on unchanged
            norm.weight.requires_grad = False

    def forward(self, images):
        """Return activations at half the size."""
        images = inner = functional.gelu(
            self.norms[0](functional.max_pool2d(self.convolutions[0](images), 2))
        )
        for number in range(1, DEPTH - 1):
            inner = functional.gelu(self.norms[number](self.convolutions[number](inner)))
        return functional.gelu(images + self.norms[-1](self.convolutions[-1](inner)))


class Network(nn.Module):
    """Whitening, three stages, global max pooling, and a linear layer."""

    def __init__(self, images):
        super().__init__()
        whitening = Whitening(images)
        sizes = (len(whitening.bias), *WIDTHS)
        self.stages = nn.Sequential(whitening, *(Stage(a, b) for a, b in pairwise(sizes)))
        self.head = nn.Linear(sizes[-1], 10, bias=False)
        nn.init.normal_(self.head.weight)

    def forward(self, images):
        """Return the logits of the classes."""
        features = self.stages(images).amax(dim=(2, 3))
        return self.head(features) / features.shape[1]


class OrthogonalMomentum(torch.optim.Optimizer):
    """Momentum with orthogonalized steps (Muon: Jordan et al., 2024); filters keep their length."""

    def __init__(self, parameters, lr, momentum):
        super().__init__(parameters, {"lr": lr, "momentum": momentum})

    @torch.no_grad()
    def step(self):
        """Update all filters."""
        for group in self.param_groups:
            for filters in group["params"]:
                velocity = self.state[filters].setdefault("velocity", torch.zeros_like(filters))
                velocity.mul_(group["momentum"]).add_(filters.grad)
                step = orthogonalize((filters.grad + group["momentum"] * velocity).flatten(1))
                filters.mul_(len(filters) ** 0.5 / filters.norm())
                filters.sub_(group["lr"] * step.view_as(filters))


def orthogonalize(matrix):
    """Bring all singular values of a matrix near 1, by an iteration of Newton and Schulz."""
    if matrix.shape[0] > matrix.shape[1]:
        return orthogonalize(matrix.T).T
    matrix = (matrix / (matrix.norm() + 1e-7)).to(number_type)
    for _ in range(4):
        square = matrix @ matrix.T
        matrix = 3.4445 * matrix + (2.0315 * square @ square - 4.7750 * square) @ matrix
    return matrix.float()


def prepare_images(images, reference):
    """Convert uint8 images (count, 32, 32, 3) to floats (count, 3, 32, 32), normalized like the reference."""
    mean, spread = reference.mean(axis=(0, 1, 2)), reference.std()
    planes = torch.tensor(images, device=device).float().sub_(torch.tensor(mean, device=device)).div_(spread)
    return planes.permute(0, 3, 1, 2)


def move_images(images, rows, columns):
    """Move each image by its own number of rows and columns of at most SHIFT; edges are reflected."""
    padded = functional.pad(images, (SHIFT,) * 4, mode="reflect")
    places = torch.arange(images.shape[-1], device=device) + SHIFT
    index = torch.arange(len(images), device=device)[:, None, None]
    return padded.permute(0, 2, 3, 1)[
        index, (places + rows[:, None])[:, :, None], (places + columns[:, None])[:, None, :]
    ].permute(0, 3, 1, 2)


def predict(model, images):
    """Return logits, averaged over the image, eight moved ones and the mirror images of all."""
    model.eval()
    logits = 0
    with torch.no_grad():
        for row, column in torch.cartesian_prod(*[torch.arange(-1, 2, device=device)] * 2):
            weight = 2.0 ** -(row.abs() + column.abs())
            moved = move_images(images, row.expand(len(images)), column.expand(len(images)))
            for view in (moved, moved.flip(-1)):
                logits = logits + weight * torch.cat([forward(model, part) for part in view.split(500)])
    return logits


def forward(model, images):
    """Return logits; convolutions use the faster type of numbers."""
    with torch.autocast(device, dtype=torch.bfloat16, enabled=number_type == torch.bfloat16):
        return model(images.contiguous(memory_format=torch.channels_last)).float()


def train_model(images, labels):
    """Train a network; each image is mirrored in every other epoch, and moved at random."""
    model = Network(images[:2000]).to(device, memory_format=torch.channels_last)
    filters = [weight for weight in model.stages.parameters() if weight.ndim == 4]
    others = [weight for weight in model.stages.parameters() if weight.ndim == 1 and weight.requires_grad]
    optimizers = [
        OrthogonalMomentum(filters, CONVOLUTION_RATE, CONVOLUTION_MOMENTUM),
        torch.optim.SGD(
            [{"params": others, "lr": OTHER_RATE}, {"params": [model.head.weight], "lr": HEAD_RATE}],
            momentum=OTHER_MOMENTUM,
            nesterov=True,
        ),
    ]
    batches = len(images) // BATCH_SIZE
    total = EPOCHS * batches

    def rate(step):
        return min((step + 1) / (WARMUP * total), (total - step) / ((1 - WARMUP) * total))

    schedules = [torch.optim.lr_scheduler.LambdaLR(optimizer, rate) for optimizer in optimizers]
    is_mirrored = torch.rand(len(images), device=device) < 0.5
    started = time.monotonic()
    for epoch in range(1, EPOCHS + 1):
        model.train()
        loss_sum = 0.0
        is_mirrored = ~is_mirrored
        for batch in torch.randperm(len(images), device=device)[: batches * BATCH_SIZE].split(BATCH_SIZE):
            inputs = move_images(
                images[batch], *torch.randint(-SHIFT, SHIFT + 1, (2, BATCH_SIZE), device=device)
            )
            inputs = torch.where(is_mirrored[batch, None, None, None], inputs.flip(-1), inputs)
            loss = functional.cross_entropy(forward(model, inputs), labels[batch], label_smoothing=SMOOTHING)
            model.zero_grad()
            loss.backward()
            for optimizer, schedule in zip(optimizers, schedules, strict=True):
                optimizer.step()
                schedule.step()
            loss_sum += loss.item()
        seconds = time.monotonic() - started
        print(f"epoch {epoch} of {EPOCHS}: loss {loss_sum / batches:.4f}, {seconds:.0f} s", flush=True)
    return model


def main():
    """Train on most labelled images, validate on the rest, then label the test images."""
    torch.manual_seed(SEED)
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # needed for deterministic results on a GPU
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.set_num_threads(min(2, len(os.sched_getaffinity(0))))
    train, test = np.load("train.npz"), np.load("test.npz")
    images = prepare_images(train["images"], train["images"])
    labels = torch.tensor(train["labels"].astype(np.int64), device=device)
    order = torch.randperm(len(labels), device=device)
    validation_indices, train_indices = order[:VALIDATION_IMAGES], order[VALIDATION_IMAGES:]

    model = train_model(images[train_indices], labels[train_indices])
    predicted = predict(model, images[validation_indices]).argmax(dim=1)
    accuracy = (predicted == labels[validation_indices]).float().mean().item()
    classes = predict(model, prepare_images(test["images"], train["images"])).argmax(dim=1).cpu()
    pd.DataFrame({"Id": test["ids"], "label": classes}).to_csv("submission.csv", index=False)
    print(f"validation accuracy: {accuracy:.4f}")


main()
