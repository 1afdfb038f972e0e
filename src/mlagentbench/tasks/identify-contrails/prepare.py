"""Lays out scenes of a satellite: some with the marks of their annotators, others to be graded on."""

import json
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from generator import BANDS, OFFSET, STEP, scene
from numpy.typing import NDArray

Array = NDArray[Any]

ARCHIVE = "google-research-identify-contrails-reduce-global-warming.zip"
LEARN = {"open": 700, "paper": 1200}  # scenes with marks; in the paper edition a sample of the folder train
HIDDEN = {
    "open": 700,
    "paper": 800,
}  # scenes to be graded on; in the paper edition a sample of the folder validation
FRAMES, LABELLED = 8, 4
KELVIN = {"open": (OFFSET, STEP), "paper": (150.0, 0.01)}  # kelvin = offset + step * count
ABSENT = 255  # in the mask of an annotator who was not there


class Record(NamedTuple):
    """One scene: counts by band, frame, row and column; masks by annotator, row and column; the agreed mask."""

    counts: Array
    individual: list[Array]
    agreed: Array


def prepare(edition: str, raw: Path, public: Path, private: Path, seed: int) -> None:
    """Write the scenes and the marks of the first part to `public`, and the agreed masks of the other to `private`."""
    learn, hidden = LEARN[edition], HIDDEN[edition]
    if edition == "open":
        records = (_invented(seed, number) for number in range(learn + hidden))
        _lay_out(edition, records, learn, hidden, public, private, seed)
    else:
        with zipfile.ZipFile(raw / ARCHIVE) as archive:
            chosen = [*_sample(archive, "train", learn, seed), *_sample(archive, "validation", hidden, seed)]
            learn = sum(name.startswith("train/") for name in chosen)
            records = (_read(archive, name) for name in chosen)
            _lay_out(edition, records, learn, len(chosen) - learn, public, private, seed)


def _lay_out(
    edition: str, records: Iterator[Record], learn: int, hidden: int, public: Path, private: Path, seed: int
) -> None:
    data = public / "data"
    data.mkdir()
    names = _names(learn + hidden, seed)
    individual, agreed = [], []
    for record in _stored(records, names[:learn], data, "train"):
        individual.append(record.individual)
        agreed.append(record.agreed)
    most = max(map(len, individual))
    masks = np.full((learn, most, *agreed[0].shape), ABSENT, np.uint8)
    for place, given in enumerate(individual):
        masks[place, : len(given)] = given
    np.savez_compressed(data / "train_masks.npz", individual=masks, agreed=np.stack(agreed))
    truth = [record.agreed for record in _stored(records, names[learn:], data, "test")]
    assert sum(map(np.sum, truth)) > 0, "nothing is marked in any scene of the hidden test"
    offset, step = KELVIN[edition]
    scale = {"kelvin_at_count_0": offset, "kelvin_per_count": step, "labelled_frame": LABELLED}
    (data / "scale.json").write_text(json.dumps(scale) + "\n")
    answers = pd.DataFrame({"record_id": names[learn:], "encoded_pixels": map(_encode, truth)})
    _write(answers.sort_values("record_id"), private / "answers.csv")
    height, width = truth[0].shape
    (private / "shape.json").write_text(json.dumps({"height": height, "width": width}))


def _names(count: int, seed: int) -> list[str]:
    """New ids that say nothing, different from each other."""
    names = [sha256(f"{seed} name {place}".encode()).hexdigest()[:12] for place in range(count)]
    assert len(set(names)) == count, "two scenes have one name"
    return names


def _stored(records: Iterator[Record], names: Sequence[str], data: Path, part: str) -> Iterable[Record]:
    """Each record, once its counts are on the disk: one at a time, as all of them may not fit into memory."""
    _write(pd.DataFrame({"record_id": names}), data / f"{part}_records.csv")
    files: dict[str, Array] = {}
    for place in range(len(names)):
        record = next(records)
        for band, counts in zip(BANDS, record.counts, strict=True):
            kept = counts[LABELLED] if band == "band_11" else counts
            if place == 0:
                path, shape = data / f"{part}_{band}.npy", (len(names), *kept.shape)
                files[band] = np.lib.format.open_memmap(path, "w+", kept.dtype, shape)
            files[band][place] = kept
        yield record


def _write(table: pd.DataFrame, path: Path) -> None:
    table.to_csv(path, index=False, lineterminator="\n")


def _encode(mask: Array) -> str:
    """The runs of marked pixels as "start length ...", counted from 1 down the columns; `-` if there are none."""
    flat = np.concatenate([[0], mask.flatten(order="F") > 0, [0]])
    edges = np.flatnonzero(np.diff(flat.astype(int))) + 1
    runs = np.stack([edges[::2], edges[1::2] - edges[::2]], axis=1)
    return " ".join(map(str, runs.ravel())) or "-"


def _invented(seed: int, number: int) -> Record:
    """A scene of the open edition; what most annotators marked is taken for true."""
    made = scene(seed, number)
    agreed = 2 * made.masks.sum(axis=0) > len(made.masks)
    return Record(made.counts, list(made.masks), agreed.astype(np.uint8))


def _sample(archive: zipfile.ZipFile, folder: str, count: int, seed: int) -> list[str]:
    """The folders of some records, drawn by hashes of their names."""
    parts = (name.split("/") for name in archive.namelist() if name.endswith("/human_pixel_masks.npy"))
    ids = [part[1] for part in parts if part[0] == folder and len(part) == 3]
    assert ids, f"{ARCHIVE} has no records in {folder}/"
    drawn = sorted(ids, key=lambda each: sha256(f"{seed} record {each}".encode()).digest())[:count]
    return [f"{folder}/{each}" for each in drawn]


def _read(archive: zipfile.ZipFile, folder: str) -> Record:
    """One of the competition's records, out of the archive; only records of train/ have the masks of annotators."""

    def array(name: str) -> Array:
        with archive.open(f"{folder}/{name}.npy") as file:
            return np.asarray(np.lib.format.read_array(file, allow_pickle=False))

    offset, step = KELVIN["paper"]
    bands = [np.moveaxis(array(band), -1, 0) for band in BANDS]
    assert all(len(band) == FRAMES for band in bands), f"{folder} does not have {FRAMES} frames"
    counts = np.stack([((band - offset) / step).round().clip(0, 65535).astype(np.uint16) for band in bands])
    individual = (
        array("human_individual_masks")[:, :, 0] if folder.startswith("train/") else np.zeros((1, 1, 0))
    )
    agreed = array("human_pixel_masks")[:, :, 0]
    masks = [(mask > 0).astype(np.uint8) for mask in np.moveaxis(individual, -1, 0)]
    return Record(counts, masks, (agreed > 0).astype(np.uint8))
