"""The fathomnet task: its invented scenes, its two-part score, and the competition's own layout."""

import gzip
import io
import json
import struct
import sys
import tarfile
import threading
import zlib
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType

import numpy as np
import pandas as pd
import pytest

from mlagentbench.discovery import load_module_from_file
from mlagentbench.errors import InvalidSubmission
from mlagentbench.task import BUILTIN_TASKS_DIR

TASK = BUILTIN_TASKS_DIR / "fathomnet"
TASK_MODULES = ("generator", "image_download")
SEED = 2**63 - 25
FILES = {
    "category_key.csv",
    "sample_submission.csv",
    "images/train.npz",
    "images/test.npz",
    "multilabel_classification/train.csv",
    "object_detection/train.json",
}


class Made:
    """What prepare.py left."""

    def __init__(self, root: Path) -> None:
        self.public, self.private = root / "public", root / "private"
        self.public.mkdir(parents=True)
        self.private.mkdir()
        self.answers = pd.DataFrame()

    def read(self) -> "Made":
        self.answers = pd.read_csv(self.private / "answers.csv", dtype={"categories": str})
        self.out = self.answers["osd"].to_numpy() == 1
        self.truth = [set(map(int, cell.split())) for cell in self.answers["categories"]]
        labels = pd.read_csv(self.public / "multilabel_classification/train.csv")
        self.labels = {
            name: set(json.loads(cell)) for name, cell in zip(labels["id"], labels["categories"], strict=True)
        }
        self.coco = json.loads((self.public / "object_detection/train.json").read_text())
        self.key = pd.read_csv(self.public / "category_key.csv")
        return self

    def images(self, part: str) -> tuple[list[str], np.ndarray]:
        with np.load(self.public / "images" / f"{part}.npz") as arrays:
            return arrays["ids"].tolist(), arrays["images"]

    def bytes(self) -> dict[str, bytes]:
        rooms = (self.public, self.private)
        return {path.name: path.read_bytes() for room in rooms for path in room.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def prepare() -> Iterator[ModuleType]:
    """prepare.py with fewer pictures, and its own modules beside it."""
    sys.path.insert(0, str(TASK))
    others = {name: sys.modules.pop(name, None) for name in TASK_MODULES}
    module = load_module_from_file(TASK / "prepare.py")
    module.TRAIN_IMAGES, module.TEST_IMAGES = 160, 160
    yield module
    sys.path.remove(str(TASK))
    for name, other in others.items():
        sys.modules.pop(name)
        if other:
            sys.modules[name] = other


@pytest.fixture(scope="module")
def grader() -> ModuleType:
    return load_module_from_file(TASK / "grade.py")


@pytest.fixture(scope="module")
def raw(prepare: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive of the package's layout: ten sketches a name, all of them scribbles."""
    folder = tmp_path_factory.mktemp("raw")
    rng = np.random.default_rng(0)
    with tarfile.open(folder / prepare.ARCHIVE, "w:gz") as archive:
        for name in prepare.NAMES:
            sketches = (rng.random((10, 28 * 28)) < 0.15) * 1.0
            content = gzip.compress("".join(json.dumps(each.tolist()) + "\n" for each in sketches).encode())
            about = tarfile.TarInfo(prepare.DRAWINGS_FILE.format(name))
            about.size = len(content)
            archive.addfile(about, io.BytesIO(content))
    return folder


def make(prepare: ModuleType, root: Path, raw: Path, seed: int = SEED, edition: str = "open") -> Made:
    made = Made(root)
    prepare.prepare(edition, raw, made.public, made.private, seed)
    return made.read()


@pytest.fixture(scope="module")
def made(prepare: ModuleType, raw: Path, tmp_path_factory: pytest.TempPathFactory) -> Made:
    return make(prepare, tmp_path_factory.mktemp("open") / "made", raw)


def test_one_seed_makes_one_instance_and_another_seed_another(
    prepare: ModuleType, made: Made, raw: Path, tmp_path: Path
) -> None:
    assert make(prepare, tmp_path / "again", raw).bytes() == made.bytes()
    other = make(prepare, tmp_path / "other", raw, seed=1).bytes()
    assert {name for name, content in made.bytes().items() if content == other[name]} == {
        "category_key.csv",
        "known.csv",
    }


def test_all_files_are_there_and_no_others(made: Made) -> None:
    given = {path.relative_to(made.public).as_posix() for path in made.public.rglob("*") if path.is_file()}
    assert given == FILES
    assert {path.name for path in made.private.iterdir()} == {"answers.csv", "known.csv"}


def test_boxes_lie_in_their_pictures_and_agree_with_the_labels(made: Made) -> None:
    ids, images = made.images("train")
    assert images.shape == (160, 96, 96, 1) and images.dtype == np.uint8
    assert ids == sorted(made.labels) == [image["file_name"] for image in made.coco["images"]]
    boxed: dict[str, set[int]] = {name: set() for name in ids}
    for each in made.coco["annotations"]:
        x, y, width, height = each["bbox"]
        assert x >= 0 and y >= 0 and width > 0 and height > 0 and x + width <= 96 and y + height <= 96
        boxed[ids[each["image_id"] - 1]].add(each["category_id"])
    assert boxed == made.labels and all(1 <= len(present) <= 6 for present in boxed.values())
    assert [each["name"] for each in made.coco["categories"]] == made.key["name"].tolist()


def test_only_pictures_out_of_sample_show_categories_that_live_nowhere_else(made: Made) -> None:
    known = set().union(*made.labels.values()) | set().union(
        *(true for true, out in zip(made.truth, made.out, strict=True) if not out)
    )
    new = [bool(true - known) for true, out in zip(made.truth, made.out, strict=True) if out]
    assert made.out.sum() == 64 and 0.3 < np.mean(new) < 0.9


def test_the_two_parts_share_no_sketch_even_if_one_was_drawn_twice(prepare: ModuleType) -> None:
    generator = sys.modules["generator"]
    rng = np.random.default_rng(0)
    drawn = {name: np.repeat(rng.random((7, 28, 28)), 2, axis=0) for name in prepare.NAMES}
    for one, other in zip(*generator.split_sketches(drawn, generator.PortableRandom(5)), strict=True):
        assert len(one) + len(other) == 7
        assert not {each.tobytes() for each in one} & {each.tobytes() for each in other}


def test_ids_and_their_order_say_nothing(made: Made) -> None:
    ids, images = made.images("test")
    train_ids, train_images = made.images("train")
    assert ids == made.answers["id"].tolist() == sorted(ids) and not set(ids) & set(train_ids)
    assert ids == pd.read_csv(made.public / "sample_submission.csv")["id"].tolist()
    assert abs(np.corrcoef(np.arange(len(ids)), made.out)[0, 1]) < 0.2
    assert len({picture.tobytes() for picture in [*images, *train_images]}) == 320


def scored(grader: ModuleType, made: Made, folder: Path, categories: list[str], osd: list[float]) -> float:
    table = made.answers.assign(categories=categories, osd=osd).sample(frac=1, random_state=0)
    table.to_csv(folder / "submission.csv", index=False)
    return grader.grade(folder / "submission.csv", made.private)


def test_the_answers_are_a_perfect_submission_and_upside_down_they_cost_the_other_part(
    made: Made, grader: ModuleType, tmp_path: Path
) -> None:
    assert grader.grade(made.private / "answers.csv", made.private) == 1
    right = made.answers["categories"].tolist()
    assert scored(grader, made, tmp_path, right, [1.0 - out for out in made.out]) == pytest.approx(0)
    assert scored(grader, made, tmp_path, right, [0.3] * 160) == pytest.approx(0.5)


def test_the_frequent_categories_beat_one_and_a_look_at_the_noise_beats_none(
    made: Made, grader: ModuleType, tmp_path: Path
) -> None:
    counts = pd.Series([each for present in made.labels.values() for each in present]).value_counts()
    one, frequent = str(counts.index[0]), " ".join(map(str, counts.index[:20]))
    images = made.images("test")[1].astype(float)
    noise = np.abs(np.diff(images, axis=1)).mean(axis=(1, 2, 3)) / images.mean(axis=(1, 2, 3))
    ladder = [
        scored(grader, made, tmp_path, [one] * 160, [0.5] * 160),
        scored(grader, made, tmp_path, [frequent] * 160, [0.5] * 160),
        scored(grader, made, tmp_path, [frequent] * 160, (noise / noise.max()).tolist()),
    ]
    assert 0 < 1.1 * ladder[0] < ladder[1] < ladder[2] - 0.03


def lay_answers(folder: Path) -> None:
    (folder / "answers.csv").write_text("id,categories,osd\na,1 2,1\nb,3,0\nc,2 3 4,0\nd,4,1\n")
    (folder / "known.csv").write_text("category\n" + "".join(f"{number}\n" for number in range(1, 31)))


def test_the_score_is_what_the_description_says(grader: ModuleType, tmp_path: Path) -> None:
    lay_answers(tmp_path)
    (tmp_path / "submission.csv").write_text(
        "id,categories,osd\nd,,0.1\nc,2 9 4,0.1\nb,3,0.0\na,7 1 8 2,0.9\n"
    )
    precision = np.mean([(1 / 2 + 2 / 4) / 2, 1, (1 + 2 / 3) / 3, 0])
    auc = (1 + 1 + 0.5 + 1) / 4
    assert grader.grade(tmp_path / "submission.csv", tmp_path) == pytest.approx((precision + 2 * auc - 1) / 2)


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        ("31,0.5", "submission.csv: image b: '31' is not a category id"),
        ("3.0,0.5", "'3.0' is not a category id"),
        ("3 4 3,0.5", "image b lists a category twice"),
        (" ".join(map(str, range(1, 22))) + ",0.5", "lists 21 categories; at most 20 are allowed"),
        ("3,1.01", "submission.csv: osd must be a number from 0 to 1, but one is '1.01'"),
        ("3,-0.1", "osd must be a number from 0 to 1"),
        ("3,nan", "osd must be a number from 0 to 1"),
        ("3,", "osd must be a number from 0 to 1"),
        ("3,likely", "osd must be a number from 0 to 1"),
    ],
)
def test_malformed_predictions_are_refused_with_a_sentence(
    grader: ModuleType, tmp_path: Path, row: str, sentence: str
) -> None:
    lay_answers(tmp_path)
    (tmp_path / "submission.csv").write_text(f"id,categories,osd\na,1,0\nb,{row}\nc,1,0\nd,1,0\n")
    with pytest.raises(InvalidSubmission, match=sentence):
        grader.grade(tmp_path / "submission.csv", tmp_path)


def png(pixels: np.ndarray, colour: int, filters: int = 5) -> bytes:
    """A PNG file that uses all five filters in turn, or the first ones."""
    height, width, samples = pixels.shape
    padded = np.zeros((height + 1, width + 1, samples), int)
    padded[1:, 1:] = pixels
    lines = b""
    for row in range(1, height + 1):
        kind = row % filters
        left, above, corner = padded[row, :-1], padded[row - 1, 1:], padded[row - 1, :-1]
        near = [abs(left + above - corner - each) for each in (left, above, corner)]
        paeth = np.choose(
            np.argmin(near, axis=0), [left, above, corner]
        )  # of equal ones the first, as is specified
        forecast = [0 * left, left, above, (left + above) // 2, paeth][kind]
        lines += bytes([kind]) + ((padded[row, 1:] - forecast) % 256).astype(np.uint8).tobytes()
    packed = zlib.compress(lines)
    header = struct.pack(">IIBBBBB", width, height, 8, colour, 0, 0, 0)
    parts = [(b"IHDR", header), (b"IDAT", packed[:99]), (b"IDAT", packed[99:]), (b"IEND", b"")]
    chunks = [
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        for kind, body in parts
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


@pytest.mark.parametrize(("colour", "samples"), [(0, 1), (2, 3), (4, 2), (6, 4)])
def test_png_files_are_read_whatever_their_filters(prepare: ModuleType, colour: int, samples: int) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (97, 161, samples), dtype=np.uint8)
    read = sys.modules["image_download"].decode_png(png(pixels, colour))
    assert (read == (pixels[:, :, :3] if samples > 2 else pixels[:, :, [0, 0, 0]])).all()


@pytest.mark.parametrize("junk", [b"", b"<html>gone</html>", png(np.zeros((97, 161, 3), np.uint8), 2)[:60]])
def test_what_is_no_png_file_is_an_error_that_is_reported(prepare: ModuleType, junk: bytes) -> None:
    with pytest.raises((ValueError, struct.error, zlib.error)):
        sys.modules["image_download"].decode_png(junk)


class Pages(SimpleHTTPRequestHandler):
    """Serves a folder and counts what it served."""

    served = 0

    def do_GET(self) -> None:
        Pages.served += 1
        super().do_GET()

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def site(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A folder on a web server on the loopback, and its address."""
    root = tmp_path / "site"
    root.mkdir()
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Pages, directory=str(root))) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield root, f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def lay_competition(raw: Path, root: Path, url: str) -> None:
    """The competition's files: ten dives of six pictures, whose grey level tells the dive and what is shown."""
    (raw / "object_detection").mkdir(parents=True)
    names = ["id,name,supercat\n", *(f"{number},Name {number},Fish\n" for number in range(1, 13))]
    (raw / "category_key.csv").write_text("".join(names))
    images, annotations = [], []
    for number in range(60):
        dive, category = number // 6, 1 if number % 2 else 2 + number // 2 % 10
        folder = root / "framegrabs" / "Doc Ricketts" / "images" / f"{dive:04}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{number}.png").write_bytes(
            png(np.full((108, 192, 3), 20 * dive + category, np.uint8), 2, filters=1)
        )
        address = f"{url}/framegrabs/Doc%20Ricketts/images/{dive:04}/{number}.png"
        images.append({"id": number, "width": 192, "height": 108, "file_name": f"{number}.png", "license": 0,
                       "flickr_url": address, "coco_url": address, "date_captured": "2009-11-17 01:33:54"})  # fmt: skip
        annotations.append({"id": number, "image_id": number, "category_id": category, "bbox": [96.0, 54.0, 48.0, 27.0],
                            "area": 1296.0, "iscrowd": 0, "segmentation": []})  # fmt: skip
    coco = {"info": {}, "licenses": [], "images": images, "annotations": annotations, "categories": []}
    (raw / "object_detection/train.json").write_text(json.dumps(coco))


def test_the_competitions_pictures_are_fetched_once_and_split_by_dive(
    prepare: ModuleType, grader: ModuleType, tmp_path: Path, site: tuple[Path, str]
) -> None:
    lay_competition(tmp_path / "raw", *site)
    made = make(prepare, tmp_path / "made", tmp_path / "raw", edition="paper")
    asked = Pages.served
    (train_ids, train), (_, test) = made.images("train"), made.images("test")
    assert train.shape[1:] == test.shape[1:] == (96, 160, 3)
    levels, hidden = train[:, 0, 0, 0].astype(int), test[:, 0, 0, 0].astype(int)
    assert not set(levels // 20) & set(hidden // 20) and len(set(hidden // 20)) == 4
    assert [made.labels[name] for name in train_ids] == [{level % 20} for level in levels]
    assert made.truth == [{level % 20} for level in hidden]
    seen = set(levels % 20)
    assert (made.out == [level % 20 not in seen for level in hidden]).all() and 0.3 < made.out.mean() < 0.5
    assert made.coco["annotations"][0]["bbox"] == [80, 48, 40, 24]
    assert grader.grade(made.private / "answers.csv", made.private) == 1
    again = make(prepare, tmp_path / "again", tmp_path / "raw", edition="paper")
    assert again.bytes() == made.bytes() and asked == Pages.served


def test_pictures_that_are_gone_stop_the_preparation_with_a_sentence(
    prepare: ModuleType, tmp_path: Path, site: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lay_competition(tmp_path / "raw", *site)
    for gone in site[0].rglob("*.png"):
        gone.unlink()
    monkeypatch.setattr(sys.modules["image_download"], "MAX_ATTEMPTS", 1)
    monkeypatch.setattr(sys.modules["image_download"], "RETRY_PAUSE_S", 0)
    with pytest.raises(SystemExit, match="images could not be downloaded; run again to continue"):
        make(prepare, tmp_path / "made", tmp_path / "raw", edition="paper")
