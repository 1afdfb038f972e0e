"""Data of a task that an installed package contains is found, however it is hidden; other data is not."""

import gzip
import shutil
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlagentbench.audit.dataset_scan.matching import KnownRows, match_images, match_rows
from mlagentbench.audit.dataset_scan.parts import DataPart, parts_of
from mlagentbench.audit.dataset_scan.png import decode_png
from mlagentbench.audit.dataset_scan.scan import find_leaks, read_task_parts
from mlagentbench.authoring.contract import TaskUnderTest, run_contract
from mlagentbench.authoring.skeletons import create_task
from mlagentbench.authoring.task_checks import TASK_CHECKS
from mlagentbench.runtimes.base import find_runtime
from mlagentbench.system.progress import ignore_progress

RANDOM = np.random.default_rng(1)
RANDOM_STATE = RANDOM.bit_generator.state
DIGITS_FILE = find_runtime("tabular").packages / "sklearn" / "datasets" / "data" / "digits.csv.gz"
Array = Any
Change = Callable[[Array], Array]


@pytest.fixture(autouse=True)
def same_random_numbers() -> None:
    """Every test draws the same numbers, whatever ran before it in this process."""
    RANDOM.bit_generator.state = RANDOM_STATE


@pytest.fixture(scope="module")
def digits() -> Array:
    """The pixels of 1,797 handwritten digits, as scikit-learn has them."""
    return np.loadtxt(gzip.open(DIGITS_FILE), delimiter=",")[:, :-1]


HIDDEN: dict[str, Change] = {
    "as it is": lambda rows: rows,
    "float16": lambda rows: rows.astype(np.float16).astype(float),
    "small integers": lambda rows: rows.astype(np.uint8).astype(float),
    "other row order": lambda rows: RANDOM.permutation(rows),
    "other column order": lambda rows: rows[:, RANDOM.permutation(rows.shape[1])],
    "an id and a label added": lambda rows: np.c_[np.arange(len(rows)), rows, np.arange(len(rows)) % 10],
    "ten columns removed": lambda rows: rows[:, 5:-5],
    "between 0 and 1": lambda rows: rows / 16,
    "to 255, with an id": lambda rows: np.c_[np.arange(len(rows)) + 7000, rows * 255 / 16],
    "inverted, other column order": lambda rows: 1 - rows[:, ::-1] / 16,
    "noise added": lambda rows: rows + RANDOM.normal(scale=0.3, size=rows.shape),
    "a tenth of the rows": lambda rows: np.r_[rows[:180], RANDOM.integers(0, 17, (1617, 64))],
}
UNRELATED: dict[str, Change] = {
    "random pixels": lambda rows: RANDOM.integers(0, 17, rows.shape).astype(float),
    "columns of other rows": lambda rows: np.stack([RANDOM.permutation(column) for column in rows.T], axis=1),
    "three columns of bits": lambda rows: RANDOM.integers(0, 2, (len(rows), 3)).astype(float),
    "one constant row": lambda rows: np.ones_like(rows),
    "bits": lambda rows: (rows > RANDOM.integers(0, 17, rows.shape)).astype(float),
    "a few small numbers": lambda rows: np.diag(np.arange(len(rows)) % 5.0)[:, : rows.shape[1]],
    "rows of zeros": lambda rows: np.zeros_like(rows),
}


@pytest.mark.parametrize("change", HIDDEN.values(), ids=HIDDEN.keys())
def test_rows_of_a_known_data_set_are_found(digits: Array, change: Change) -> None:
    assert match_rows(change(digits), KnownRows(digits)) > 0.05


@pytest.mark.parametrize("change", UNRELATED.values(), ids=UNRELATED.keys())
def test_other_rows_are_not_found(digits: Array, change: Change) -> None:
    assert match_rows(change(digits), KnownRows(digits)) < 0.02


def test_images_of_another_size_are_found_and_other_images_are_not(digits: Array) -> None:
    images = digits.reshape(-1, 8, 8)
    enlarged = np.kron(images[:300], np.ones((4, 4))) + RANDOM.normal(scale=1.0, size=(300, 32, 32))
    assert match_images(enlarged, images) > 0.9
    others = RANDOM.normal(size=(300, 32, 32)).cumsum(axis=1).cumsum(axis=2)
    assert match_images(others, images) < 0.05


def test_texts_are_found_if_half_of_them_is_known() -> None:
    words = [f"word{number}" for number in RANDOM.integers(0, 500, 5000)]
    articles = [" ".join(words[start : start + 100]) for start in range(0, 5000, 100)]
    edited = [article.replace(" ", "  ").upper() + " and something new at the end" for article in articles]
    known = DataPart("a package", texts=tuple(articles))
    leak, _ = find_leaks([DataPart("test.csv", texts=tuple(edited[:20]))], iter([known]))
    assert leak == "LEAK 100% of the texts of test.csv are in a package"
    shuffled = tuple(" ".join(RANDOM.permutation(article.split())) for article in articles)
    assert len(list(find_leaks([DataPart("test.csv", texts=shuffled)], iter([known])))) == 1


def test_all_parts_of_what_a_loader_returns_are_found() -> None:
    rows, images = np.ones((30, 4)), np.ones((30, 9, 9, 3))
    loaded = {"data": rows, "images": [images], "names": ["short"], "texts": ["a long text " * 10], "n": 5}
    parts = list(parts_of(loaded, "load_it"))
    assert [
        (part.name, part.rows is not None, part.images is not None, len(part.texts)) for part in parts
    ] == [
        ("load_it.data", True, False, 0),
        ("load_it.images[0]", False, True, 0),
        ("load_it.images[0]", True, False, 0),
        ("load_it.texts", False, False, 1),
    ]


def test_files_of_a_task_are_read(tmp_path: Path) -> None:
    lines = ["id,x,y,text", *(f"{n},{n / 7},,{'some words ' * 8}" for n in range(40))]
    (tmp_path / "table.csv").write_text("\n".join(lines))
    np.savez(tmp_path / "arrays.npz", a=np.ones((40, 3)), b=np.ones(5))
    (tmp_path / "compressed.csv.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
    (tmp_path / "broken.npy").write_bytes(b"\x93NUMPY and so on")
    (tmp_path / "broken.npz").write_bytes((tmp_path / "arrays.npz").read_bytes()[:-30])
    (tmp_path / "pictures").mkdir()
    for number in range(3):
        (tmp_path / "pictures" / f"{number}.png").write_bytes(encode_png(np.full((9, 9), number * 20)))
    parts = read_task_parts(tmp_path)
    assert {part.name for part in parts} == {
        *("table.csv", "arrays.npz[a]", "compressed.csv.gz", "pictures/*.png")
    }
    assert next(part for part in parts if part.images is not None).images.shape == (3, 8, 8)
    assert next(part for part in parts if part.name == "table.csv").rows.shape == (40, 2)


def encode_png(image: Array, filters: bytes = b"\0") -> bytes:
    """Write a grey image; `filters` are used line by line."""
    lines, above = b"", np.zeros(image.shape[1], int)
    for y, line in enumerate(image.astype(int)):
        kind = filters[y % len(filters)]
        left, corner = np.r_[0, line[:-1]], np.r_[0, above[:-1]]
        estimate = left + above - corner
        distances = np.abs(np.stack([left, above, corner]) - estimate)
        paeth = np.choose(distances.argmin(axis=0), [left, above, corner])
        guess = [0, left, above, (left + above) // 2, paeth][kind]
        lines += bytes([kind]) + ((line - guess) & 255).astype(np.uint8).tobytes()
        above = line
    header = struct.pack(">IIBBBBB", image.shape[1], image.shape[0], 8, 0, 0, 0, 0)
    chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(lines)), (b"IEND", b"")]
    body = b"".join(struct.pack(">I", len(data)) + kind + data + bytes(4) for kind, data in chunks)
    return b"\x89PNG\r\n\x1a\n" + body


def test_a_png_file_is_decoded_with_every_filter() -> None:
    image = RANDOM.integers(0, 256, (10, 7))
    assert np.array_equal(decode_png(encode_png(image, bytes(range(5)))), image)
    for broken in (b"", b"\x89PNG\r\n\x1a\n", encode_png(image)[:40]):
        with pytest.raises((ValueError, struct.error, zlib.error)):
            decode_png(broken)


DIGITS_PREPARE = '''
"""Handwritten digits."""

from pathlib import Path

import numpy as np
import pandas as pd


def prepare(edition: str, raw: Path, public: Path, private: Path, seed: int) -> None:
    table = np.loadtxt(Path(__file__).parent / "data" / "digits.csv.gz", delimiter=",")
    table = np.random.default_rng(seed).permutation(table)
    pixels = pd.DataFrame(table[:, :-1] / 16).add_prefix("p").assign(id=range(len(table)))
    (pixels.assign(y=table[:, -1]))[:900].to_csv(public / "train.csv", index=False)
    pixels[900:].to_csv(public / "test.csv", index=False)
    answers = pd.DataFrame({"id": range(900, len(table)), "y": table[900:, -1]})
    answers.to_csv(private / "answers.csv", index=False)
'''


@pytest.fixture
def digits_task(tmp_path: Path) -> Path:
    """A task whose answers are in a package of its runtime."""
    folder = create_task(tmp_path / "digits-task")
    (folder / "data").mkdir()
    shutil.copy(DIGITS_FILE, folder / "data" / "digits.csv.gz")
    (folder / "prepare.py").write_text(DIGITS_PREPARE)
    return folder


def test_a_task_with_answers_in_its_runtime_fails_the_check(
    digits_task: Path,
) -> None:
    checks = tuple(check for check in TASK_CHECKS if check.name in ("files", "data", "packages"))
    with TaskUnderTest(str(digits_task), "open", "bwrap", ignore_progress) as subject:
        *_, outcome = run_contract(checks, subject)
    assert (outcome.name, outcome.status) == ("packages", "fail")
    assert "100% of the rows of test.csv are in sklearn.datasets.load_digits.data" in outcome.detail
