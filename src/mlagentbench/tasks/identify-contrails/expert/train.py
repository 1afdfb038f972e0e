"""Segment contrails with a U-Net on eight frames that are aligned by the estimated wind."""

import json
import math
import os
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import nn
from torch.nn import functional

CHANNELS = (24, 48, 96, 96, 96)  # at each scale
EPOCHS = 40
BATCH_SIZE = 32
LEARNING_RATE = 0.004
FILTER_RATE = 0.1  # length of a step of the filters, which have length 1
MOMENTUM = 0.6
WEIGHT_DECAY = 0.01
WARMUP = 0.2  # share of the steps in which the learning rates rise; then they fall to 0
DICE_WEIGHT = 0.3
MAX_WIND, WIND_STEP = 2.3, 0.1  # pixels from one frame to the next
WAVE_NUMBERS = (0.03, 0.22)  # cycles per pixel, in which the wind is estimated
VALIDATION_SHARE = 0.07  # of the scenes
SEED = int(os.environ.get("SEED", "0"))

device = "cuda" if torch.cuda.is_available() else "cpu"
has_fast_bfloat16 = device == "cuda" or "avx512_bf16" in Path("/proc/cpuinfo").read_text()
number_type = torch.bfloat16 if has_fast_bfloat16 else torch.float32


def read_images(part):
    """Return the channels of all scenes of a part: aligned band differences and temperatures, and context."""
    scale = json.loads(Path("data/scale.json").read_text())
    labelled = scale["labelled_frame"]
    bands = [np.load(f"data/{part}_band_{band}.npy", mmap_mode="r") for band in (11, 14, 15)]
    images = []
    for start in range(0, len(bands[0]), 50):
        band_11, band_14, band_15 = (
            torch.from_numpy(
                scale["kelvin_at_count_0"] + scale["kelvin_per_count"] * band[start : start + 50].astype("f4")
            ).to(device)
            for band in bands
        )
        ice, cold = even_rows(band_14 - band_15), even_rows(band_14)
        phase = even_rows(band_11[:, None] - band_14[:, [labelled]])
        times = torch.arange(ice.shape[1], device=device) - float(labelled)
        wind = estimate_wind(remove_background(ice).clamp(-1.5, 1.5), times)
        channels = [
            align_frames(remove_background(ice), wind, times),
            align_frames(remove_background(cold) / 2, wind, times),
            remove_background(phase),
            (cold[:, [labelled]] - 280) / 10,
            ice[:, [labelled]] - 2,
        ]
        images.append(torch.cat(channels, dim=1).clamp(-6, 6))
    return torch.cat(images)


def even_rows(images):
    """Give each row the level of its neighbours: the sensor adds an offset to some rows."""
    levels = images.median(dim=-1, keepdim=True).values
    return images - levels + box_average(levels, 9, 1)


def remove_background(images):
    """Subtract the average of the surroundings."""
    return images - box_average(images, 15, 15)


def box_average(images, rows, columns):
    """Replace every pixel by the average of its neighbourhood."""
    padding = (rows // 2, columns // 2)
    return functional.avg_pool2d(images, (rows, columns), stride=1, padding=padding, count_include_pad=False)


def estimate_wind(frames, times):
    """Return by how many rows and columns ice drifts from frame to frame in each scene.

    The wind is the one for which the frames, moved back, agree best: in the Fourier transform, moving is a
    change of phase, and the sum of all frames is then largest. What does not move is subtracted first.
    """
    size = frames.shape[-1]
    window = torch.hann_window(size + 2, periodic=False, device=device)[1:-1].sqrt()
    frames = (frames - frames.mean(dim=1, keepdim=True)) * window * window[:, None]
    down = torch.fft.fftfreq(size, device=device)[:, None].expand(size, size // 2 + 1)
    right = torch.fft.rfftfreq(size, device=device).expand(size, size // 2 + 1)
    length = torch.hypot(down, right)
    is_used = (length > WAVE_NUMBERS[0]) & (length < WAVE_NUMBERS[1])
    down, right = down[is_used], right[is_used]
    waves = torch.fft.rfft2(frames)[..., is_used]  # scene, frame, wave
    waves = waves / waves.abs().square().mean(dim=1, keepdim=True).sqrt().clamp(min=1e-6)
    speeds = torch.arange(-MAX_WIND, MAX_WIND + WIND_STEP / 2, WIND_STEP, device=device)
    turns = 2j * math.pi * speeds[:, None, None] * times[:, None]  # speed, frame, 1
    moved_right = torch.exp(turns * right)
    agreement = []
    for turn in turns:
        total = torch.einsum("nfw,cfw->ncw", waves * torch.exp(turn * down), moved_right)
        agreement.append(torch.view_as_real(total).square().sum(dim=(2, 3)))
    best = torch.stack(agreement, dim=1).flatten(1).argmax(dim=1)
    return torch.stack([speeds[best // len(speeds)], speeds[best % len(speeds)]], dim=1)


def align_frames(frames, wind, times):
    """Move what drifts with the wind to its place in the labelled frame; what is not seen is 0."""
    scenes, count, size, _ = frames.shape
    shift = wind[:, None] * times[:, None]  # scene, frame, direction
    places = (2 * torch.arange(size, device=device) + 1 + 2 * shift[..., None]) / size - 1
    rows = places[:, :, 0, :, None].expand(frames.shape)
    columns = places[:, :, 1, None, :].expand(frames.shape)
    grid = torch.stack([columns, rows], dim=-1).flatten(0, 1)
    moved = functional.grid_sample(frames.reshape(scenes * count, 1, size, size), grid, align_corners=False)
    return moved.view(frames.shape)


def conv_block(inputs, outputs):
    """Two convolutions."""
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(),
        nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(),
    )


class UNet(nn.Module):
    """A U-Net with skip connections."""

    def __init__(self, inputs):
        super().__init__()
        self.down = nn.ModuleList(conv_block(a, b) for a, b in pairwise((inputs, *CHANNELS)))
        self.up = nn.ModuleList(conv_block(a + b, b) for a, b in pairwise(CHANNELS[::-1]))
        self.last = nn.Conv2d(CHANNELS[0], 1, 1)

    def forward(self, images):
        """Return the logit of every pixel."""
        skip_connections = []
        for number, layer in enumerate(self.down):
            images = layer(images if number == 0 else functional.max_pool2d(images, 2))
            skip_connections.append(images)
        for layer, skip in zip(self.up, skip_connections[-2::-1], strict=True):
            images = layer(torch.cat([functional.interpolate(images, scale_factor=2), skip], dim=1))
        return self.last(images)


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


def transform(images, number):
    """Apply one of the eight symmetries of a square."""
    images = images.flip(-1) if number & 1 else images
    images = images.flip(-2) if number & 2 else images
    return images.transpose(-1, -2) if number & 4 else images


def transform_back(images, number):
    """Undo `transform`."""
    images = images.transpose(-1, -2) if number & 4 else images
    images = images.flip(-2) if number & 2 else images
    return images.flip(-1) if number & 1 else images


def forward(model, images):
    """Return logits; convolutions use the faster type of numbers."""
    with torch.autocast(device, dtype=torch.bfloat16, enabled=number_type == torch.bfloat16):
        return model(images.contiguous(memory_format=torch.channels_last)).float()


def compute_loss(logits, target):
    """Return the cross-entropy against the share of annotators, plus one minus a soft Dice."""
    probability = logits.sigmoid()
    overlap = 2 * (probability * target).sum() / (probability.sum() + target.sum() + 1)
    return functional.binary_cross_entropy_with_logits(logits, target) + DICE_WEIGHT * (1 - overlap)


def train_model(images, target):
    """Train a U-Net."""
    model = UNet(images.shape[1]).to(device, memory_format=torch.channels_last)
    filters = [weight for weight in model.parameters() if weight.ndim == 4 and weight.shape[0] > 1]
    others = [weight for weight in model.parameters() if not (weight.ndim == 4 and weight.shape[0] > 1)]
    optimizers = [
        OrthogonalMomentum(filters, FILTER_RATE, MOMENTUM),
        torch.optim.AdamW(others, lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY),
    ]
    batches = len(images) // BATCH_SIZE
    total = EPOCHS * batches

    def rate(step):
        return min((step + 1) / (WARMUP * total), (total - step) / ((1 - WARMUP) * total))

    schedules = [torch.optim.lr_scheduler.LambdaLR(optimizer, rate) for optimizer in optimizers]
    started = time.monotonic()
    for epoch in range(1, EPOCHS + 1):
        model.train()
        loss_sum = 0.0
        for batch in torch.randperm(len(images), device=device)[: batches * BATCH_SIZE].split(BATCH_SIZE):
            orientation = int(torch.randint(8, ()))
            logits = forward(model, transform(images[batch], orientation))
            loss = compute_loss(logits, transform(target[batch], orientation))
            model.zero_grad()
            loss.backward()
            for optimizer, schedule in zip(optimizers, schedules, strict=True):
                optimizer.step()
                schedule.step()
            loss_sum += loss.item()
        seconds = time.monotonic() - started
        print(f"epoch {epoch} of {EPOCHS}: loss {loss_sum / batches:.4f}, {seconds:.0f} s", flush=True)
    return model


def predict(model, images):
    """Return the probability of every pixel, averaged over the eight symmetries."""
    model.eval()
    probabilities = []
    with torch.no_grad():
        for part in images.split(50):
            views = [
                transform_back(forward(model, transform(part, orientation)).sigmoid(), orientation)
                for orientation in range(8)
            ]
            probabilities.append(torch.stack(views).mean(dim=0)[:, 0].cpu())
    return torch.cat(probabilities).numpy()


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
    """Train on most scenes, choose the threshold on the rest, then segment the test scenes."""
    torch.manual_seed(SEED)
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # needed for deterministic results on a GPU
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.set_num_threads(min(2, len(os.sched_getaffinity(0))))
    images = read_images("train")
    with np.load("data/train_masks.npz") as file:
        individual, agreed = torch.from_numpy(file["individual"]), torch.from_numpy(file["agreed"])
    share = (individual == 1).sum(dim=1) / (individual != 255).sum(dim=1)
    target = ((share + agreed) / 2)[:, None].to(device)
    order = torch.randperm(len(images))
    validation_indices, train_indices = (
        order[: int(VALIDATION_SHARE * len(order))],
        order[int(VALIDATION_SHARE * len(order)) :],
    )

    model = train_model(images[train_indices], target[train_indices])
    true_masks = agreed[validation_indices].numpy() > 0
    probabilities = predict(model, images[validation_indices])
    threshold = max(np.arange(0.3, 0.6, 0.03), key=lambda level: dice(probabilities > level, true_masks))
    test = pd.read_csv("data/test_records.csv")
    test["encoded_pixels"] = [encode_runs(mask) for mask in predict(model, read_images("test")) > threshold]
    test.to_csv("submission.csv", index=False)
    print(f"validation Dice: {dice(probabilities > threshold, true_masks):.4f}")


main()
