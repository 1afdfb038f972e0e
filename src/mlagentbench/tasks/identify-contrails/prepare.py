"""Prepares satellite scenes: a training set with the masks of annotators, and a hidden test set."""

import json
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from generator import BANDS, KELVIN_OFFSET, KELVIN_STEP, generate_scene
from numpy.typing import NDArray

Array = NDArray[Any]

ARCHIVE = "google-research-identify-contrails-reduce-global-warming.zip"
TRAIN_SCENES = {"open": 700, "paper": 1200}  # in the paper edition a sample of the folder train
TEST_SCENES = {"open": 700, "paper": 800}  # in the paper edition a sample of the folder validation
FRAMES, LABELLED_FRAME = 8, 4
KELVIN_SCALES = {
    "open": (KELVIN_OFFSET, KELVIN_STEP),
    "paper": (150.0, 0.01),
}  # kelvin = offset + step * count
ABSENT_ANNOTATOR = 255  # value of a missing annotator's mask


class Record(NamedTuple):
    """One scene: counts by band, frame, row and column; one mask per annotator; the agreed mask."""

    counts: Array
    individual: list[Array]
    agreed: Array


def prepare(edition: str, raw: Path, public: Path, private: Path, seed: int) -> None:
    """Write the scenes and the training masks to `public`, and the agreed test masks to `private`."""
    train_count, test_count = TRAIN_SCENES[edition], TEST_SCENES[edition]
    if edition == "open":
        records = (_generate_record(seed, number) for number in range(train_count + test_count))
        _write_scenes(edition, records, train_count, test_count, public, private, seed)
    else:
        with zipfile.ZipFile(raw / ARCHIVE) as archive:
            chosen = [
                *_sample_records(archive, "train", train_count, seed),
                *_sample_records(archive, "validation", test_count, seed),
            ]
            train_count = sum(name.startswith("train/") for name in chosen)
            records = (_read_record(archive, name) for name in chosen)
            _write_scenes(edition, records, train_count, len(chosen) - train_count, public, private, seed)


def _write_scenes(
    edition: str,
    records: Iterator[Record],
    train_count: int,
    test_count: int,
    public: Path,
    private: Path,
    seed: int,
) -> None:
    data = public / "data"
    data.mkdir()
    ids = _make_ids(train_count + test_count, seed)
    individual, agreed = [], []
    for record in _store_counts(records, ids[:train_count], data, "train"):
        individual.append(record.individual)
        agreed.append(record.agreed)
    max_annotators = max(map(len, individual))
    masks = np.full((train_count, max_annotators, *agreed[0].shape), ABSENT_ANNOTATOR, np.uint8)
    for index, record_masks in enumerate(individual):
        masks[index, : len(record_masks)] = record_masks
    np.savez_compressed(data / "train_masks.npz", individual=masks, agreed=np.stack(agreed))
    truth = [record.agreed for record in _store_counts(records, ids[train_count:], data, "test")]
    assert sum(map(np.sum, truth)) > 0, "no scene of the hidden test set has a marked pixel"
    offset, step = KELVIN_SCALES[edition]
    scale = {"kelvin_at_count_0": offset, "kelvin_per_count": step, "labelled_frame": LABELLED_FRAME}
    (data / "scale.json").write_text(json.dumps(scale) + "\n")
    answers = pd.DataFrame({"record_id": ids[train_count:], "encoded_pixels": map(_encode_runs, truth)})
    _write_csv(answers.sort_values("record_id"), private / "answers.csv")
    height, width = truth[0].shape
    (private / "shape.json").write_text(json.dumps({"height": height, "width": width}))


def _make_ids(count: int, seed: int) -> list[str]:
    """Return distinct new ids that carry no information."""
    ids = [sha256(f"{seed} name {index}".encode()).hexdigest()[:12] for index in range(count)]
    assert len(set(ids)) == count, "two scenes have the same id"
    return ids


def _store_counts(records: Iterator[Record], ids: Sequence[str], data: Path, part: str) -> Iterable[Record]:
    """Yield each record after writing its counts to disk; all together may not fit into memory."""
    _write_csv(pd.DataFrame({"record_id": ids}), data / f"{part}_records.csv")
    files: dict[str, Array] = {}
    for index in range(len(ids)):
        record = next(records)
        for band, counts in zip(BANDS, record.counts, strict=True):
            stored = counts[LABELLED_FRAME] if band == "band_11" else counts
            if index == 0:
                path, shape = data / f"{part}_{band}.npy", (len(ids), *stored.shape)
                files[band] = np.lib.format.open_memmap(path, "w+", stored.dtype, shape)
            files[band][index] = stored
        yield record


def _write_csv(table: pd.DataFrame, path: Path) -> None:
    table.to_csv(path, index=False, lineterminator="\n")


def _encode_runs(mask: Array) -> str:
    """Encode marked pixels as runs "start length ...", from 1 down the columns; `-` if there are none."""
    flat = np.concatenate([[0], mask.flatten(order="F") > 0, [0]])
    edges = np.flatnonzero(np.diff(flat.astype(int))) + 1
    runs = np.stack([edges[::2], edges[1::2] - edges[::2]], axis=1)
    return " ".join(map(str, runs.ravel())) or "-"


def _generate_record(seed: int, number: int) -> Record:
    """Generate a scene of the open edition; the majority of annotators is the ground truth."""
    scene = generate_scene(seed, number)
    agreed = 2 * scene.masks.sum(axis=0) > len(scene.masks)
    return Record(scene.counts, list(scene.masks), agreed.astype(np.uint8))


def _sample_records(archive: zipfile.ZipFile, folder: str, count: int, seed: int) -> list[str]:
    """Return the folders of some records, drawn by hashes of their names."""
    parts = (name.split("/") for name in archive.namelist() if name.endswith("/human_pixel_masks.npy"))
    ids = [part[1] for part in parts if part[0] == folder and len(part) == 3]
    assert ids, f"{ARCHIVE} has no records in {folder}/"
    chosen = sorted(ids, key=lambda record_id: sha256(f"{seed} record {record_id}".encode()).digest())[:count]
    return [f"{folder}/{record_id}" for record_id in chosen]


def _read_record(archive: zipfile.ZipFile, folder: str) -> Record:
    """Read one of the competition's records; only records of train/ have the masks of annotators."""

    def array(name: str) -> Array:
        with archive.open(f"{folder}/{name}.npy") as file:
            return np.asarray(np.lib.format.read_array(file, allow_pickle=False))

    offset, step = KELVIN_SCALES["paper"]
    bands = [np.moveaxis(array(band), -1, 0) for band in BANDS]
    assert all(len(band) == FRAMES for band in bands), f"{folder} does not have {FRAMES} frames"
    counts = np.stack([((band - offset) / step).round().clip(0, 65535).astype(np.uint16) for band in bands])
    individual = (
        array("human_individual_masks")[:, :, 0] if folder.startswith("train/") else np.zeros((1, 1, 0))
    )
    agreed = array("human_pixel_masks")[:, :, 0]
    masks = [(mask > 0).astype(np.uint8) for mask in np.moveaxis(individual, -1, 0)]
    return Record(counts, masks, (agreed > 0).astype(np.uint8))
