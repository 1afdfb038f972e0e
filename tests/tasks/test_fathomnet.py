"""The fathomnet task: its generated scenes, its two-part score, and the competition's layout."""

import ast
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
    "depths.csv",
    "sample_submission.csv",
    "images/train.npz",
    "images/test.npz",
    "multilabel_classification/train.csv",
    "object_detection/train.json",
}


class PreparedFolders:
    """The files that prepare.py wrote."""

    def __init__(self, root: Path) -> None:
        self.public, self.private = root / "public", root / "private"
        self.public.mkdir(parents=True)
        self.private.mkdir()
        self.answers = pd.DataFrame()

    def read(self) -> "PreparedFolders":
        self.answers = pd.read_csv(self.private / "answers.csv", dtype={"categories": str})
        self.is_out_of_sample = self.answers["osd"].to_numpy() == 1
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
    """Load prepare.py with fewer images, and with its own modules on the path."""
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
    """Make an archive with the package's layout: ten random sketches per name."""
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


def prepare_edition(
    prepare: ModuleType, root: Path, raw: Path, seed: int = SEED, edition: str = "open"
) -> PreparedFolders:
    prepared = PreparedFolders(root)
    prepare.prepare(edition, raw, prepared.public, prepared.private, seed)
    return prepared.read()


@pytest.fixture(scope="module")
def prepared(prepare: ModuleType, raw: Path, tmp_path_factory: pytest.TempPathFactory) -> PreparedFolders:
    return prepare_edition(prepare, tmp_path_factory.mktemp("open") / "made", raw)


def test_a_seed_determines_the_instance(
    prepare: ModuleType, prepared: PreparedFolders, raw: Path, tmp_path: Path
) -> None:
    assert prepare_edition(prepare, tmp_path / "again", raw).bytes() == prepared.bytes()
    other = prepare_edition(prepare, tmp_path / "other", raw, seed=1).bytes()
    assert {name for name, content in prepared.bytes().items() if content == other[name]} == {
        "category_key.csv",
        "known.csv",
    }


def test_exactly_the_documented_files_are_written(prepared: PreparedFolders) -> None:
    given = {
        path.relative_to(prepared.public).as_posix() for path in prepared.public.rglob("*") if path.is_file()
    }
    assert given == FILES
    assert {path.name for path in prepared.private.iterdir()} == {"answers.csv", "known.csv"}


def test_boxes_are_inside_their_images_and_agree_with_the_labels(prepared: PreparedFolders) -> None:
    ids, images = prepared.images("train")
    assert images.shape == (160, 96, 96, 1) and images.dtype == np.uint8
    assert ids == sorted(prepared.labels) == [image["file_name"] for image in prepared.coco["images"]]
    categories_by_image: dict[str, set[int]] = {name: set() for name in ids}
    for each in prepared.coco["annotations"]:
        x, y, width, height = each["bbox"]
        assert x >= 0 and y >= 0 and width > 0 and height > 0 and x + width <= 96 and y + height <= 96
        categories_by_image[ids[each["image_id"] - 1]].add(each["category_id"])
    assert categories_by_image == prepared.labels and all(
        1 <= len(present) <= 6 for present in categories_by_image.values()
    )
    assert [each["name"] for each in prepared.coco["categories"]] == prepared.key["name"].tolist()


def test_only_out_of_sample_images_show_deep_categories(prepared: PreparedFolders) -> None:
    known = set().union(*prepared.labels.values()) | set().union(
        *(
            true
            for true, is_out_of_sample in zip(prepared.truth, prepared.is_out_of_sample, strict=True)
            if not is_out_of_sample
        )
    )
    new = [
        bool(true - known)
        for true, is_out_of_sample in zip(prepared.truth, prepared.is_out_of_sample, strict=True)
        if is_out_of_sample
    ]
    assert prepared.is_out_of_sample.sum() == 64 and 0.3 < np.mean(new) < 0.9


def test_train_and_test_share_no_sketch_even_if_it_occurs_twice(prepare: ModuleType) -> None:
    generator = sys.modules["generator"]
    rng = np.random.default_rng(0)
    drawn = {name: np.repeat(rng.random((7, 28, 28)), 2, axis=0) for name in prepare.NAMES}
    for one, other in zip(*generator.split_sketches(drawn, generator.PortableRandom(5)), strict=True):
        assert len(one) + len(other) == 7
        assert not {each.tobytes() for each in one} & {each.tobytes() for each in other}


def test_ids_and_their_order_carry_no_information(prepared: PreparedFolders) -> None:
    ids, images = prepared.images("test")
    train_ids, train_images = prepared.images("train")
    assert ids == prepared.answers["id"].tolist() == sorted(ids) and not set(ids) & set(train_ids)
    assert ids == pd.read_csv(prepared.public / "sample_submission.csv")["id"].tolist()
    assert abs(np.corrcoef(np.arange(len(ids)), prepared.is_out_of_sample)[0, 1]) < 0.2
    assert len({image.tobytes() for image in [*images, *train_images]}) == 320


def test_depths_are_those_of_the_training_images_above_the_boundary(prepared: PreparedFolders) -> None:
    depths = pd.read_csv(prepared.public / "depths.csv")
    assert depths["id"].tolist() == prepared.images("train")[0]
    assert depths["depth_m"].between(0, 800).all() and depths["depth_m"].max() > 700
    brightness = prepared.images("train")[1].mean(axis=(1, 2, 3))
    assert np.corrcoef(brightness, depths["depth_m"])[0, 1] < -0.15


@pytest.mark.parametrize("solution", ["starter", "reference", "expert"])
def test_validation_mirrors_the_test_split(solution: str) -> None:
    source = (TASK / solution / "train.py").read_text()
    function = next(
        node
        for node in ast.parse(source).body
        if isinstance(node, ast.FunctionDef) and node.name == "split_for_validation"
    )
    names = {
        "np": np,
        "SEED": 3,
        "UNSEEN_CATEGORIES": 8,
        "VALIDATION_SHARE": 0.2,
        "VALIDATION_BOUNDARY_M": 500,
    }
    exec(ast.unparse(function), names)
    rng = np.random.default_rng(0)
    labels, depths = rng.random((2000, 30)) < np.linspace(0.01, 0.3, 30), rng.uniform(0, 800, 2000)
    training, validation, is_out = names["split_for_validation"](labels, depths)
    assert not (training & validation).any() and not (training & is_out).any()
    assert depths[is_out].min() > 500 > depths[training].max() and 0.2 < is_out[validation].mean() < 0.6
    unseen = ~labels[training].any(axis=0)
    assert unseen.sum() == 8
    assert not labels[validation & ~is_out][:, unseen].any() and labels[validation & is_out][:, unseen].any()


def score_submission(
    grader: ModuleType, prepared: PreparedFolders, folder: Path, categories: list[str], osd: list[float]
) -> float:
    table = prepared.answers.assign(categories=categories, osd=osd).sample(frac=1, random_state=0)
    table.to_csv(folder / "submission.csv", index=False)
    return grader.grade(folder / "submission.csv", prepared.private)


def test_the_answers_score_one_and_an_inverted_osd_costs_half(
    prepared: PreparedFolders, grader: ModuleType, tmp_path: Path
) -> None:
    assert grader.grade(prepared.private / "answers.csv", prepared.private) == 1
    right = prepared.answers["categories"].tolist()
    assert score_submission(
        grader,
        prepared,
        tmp_path,
        right,
        [1.0 - is_out_of_sample for is_out_of_sample in prepared.is_out_of_sample],
    ) == pytest.approx(0)
    assert score_submission(grader, prepared, tmp_path, right, [0.3] * 160) == pytest.approx(0.5)


def test_frequent_categories_beat_one_category_and_noise_predicts_osd(
    prepared: PreparedFolders, grader: ModuleType, tmp_path: Path
) -> None:
    counts = pd.Series([each for present in prepared.labels.values() for each in present]).value_counts()
    one, frequent = str(counts.index[0]), " ".join(map(str, counts.index[:20]))
    images = prepared.images("test")[1].astype(float)
    noise = np.abs(np.diff(images, axis=1)).mean(axis=(1, 2, 3)) / images.mean(axis=(1, 2, 3))
    scores = [
        score_submission(grader, prepared, tmp_path, [one] * 160, [0.5] * 160),
        score_submission(grader, prepared, tmp_path, [frequent] * 160, [0.5] * 160),
        score_submission(grader, prepared, tmp_path, [frequent] * 160, (noise / noise.max()).tolist()),
    ]
    assert 0 < 1.1 * scores[0] < scores[1] < scores[2] - 0.03


def write_answers(folder: Path) -> None:
    (folder / "answers.csv").write_text("id,categories,osd\na,1 2,1\nb,3,0\nc,2 3 4,0\nd,4,1\n")
    (folder / "known.csv").write_text("category\n" + "".join(f"{number}\n" for number in range(1, 31)))


def test_the_score_is_what_the_description_says(grader: ModuleType, tmp_path: Path) -> None:
    write_answers(tmp_path)
    (tmp_path / "submission.csv").write_text(
        "id,categories,osd\nd,,0.1\nc,2 9 4,0.1\nb,3,0.0\na,7 1 8 2,0.9\n"
    )
    precision = np.mean([(1 / 2 + 2 / 4) / 2, 1, (1 + 2 / 3) / 3, 0])
    auc = (1 + 1 + 0.5 + 1) / 4
    assert grader.grade(tmp_path / "submission.csv", tmp_path) == pytest.approx((precision + 2 * auc - 1) / 2)


@pytest.mark.parametrize(
    ("row", "message"),
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
def test_malformed_predictions_are_invalid_with_a_message(
    grader: ModuleType, tmp_path: Path, row: str, message: str
) -> None:
    write_answers(tmp_path)
    (tmp_path / "submission.csv").write_text(f"id,categories,osd\na,1,0\nb,{row}\nc,1,0\nd,1,0\n")
    with pytest.raises(InvalidSubmission, match=message):
        grader.grade(tmp_path / "submission.csv", tmp_path)


def encode_png(pixels: np.ndarray, colour: int, filters: int = 5) -> bytes:
    """Encode a PNG file that uses all five filters in turn, or only the first ones."""
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
        )  # ties go to the first, as specified
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
def test_png_files_with_all_filters_are_decoded(prepare: ModuleType, colour: int, samples: int) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (97, 161, samples), dtype=np.uint8)
    read = sys.modules["image_download"].decode_png(encode_png(pixels, colour))
    assert (read == (pixels[:, :, :3] if samples > 2 else pixels[:, :, [0, 0, 0]])).all()


@pytest.mark.parametrize(
    "junk", [b"", b"<html>gone</html>", encode_png(np.zeros((97, 161, 3), np.uint8), 2)[:60]]
)
def test_other_files_are_decoding_errors(prepare: ModuleType, junk: bytes) -> None:
    with pytest.raises((ValueError, struct.error, zlib.error)):
        sys.modules["image_download"].decode_png(junk)


class CountingHandler(SimpleHTTPRequestHandler):
    """Serves a folder and counts its requests."""

    served_count = 0

    def do_GET(self) -> None:
        CountingHandler.served_count += 1
        super().do_GET()

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


@pytest.fixture
def web_server(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """Serve a folder on a loopback web server; yield the folder and its URL."""
    root = tmp_path / "site"
    root.mkdir()
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(CountingHandler, directory=str(root))) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield root, f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def write_competition_files(raw: Path, root: Path, url: str) -> None:
    """Write the competition's files: ten dives of six images, whose grey level encodes dive and category."""
    (raw / "object_detection").mkdir(parents=True)
    names = ["id,name,supercat\n", *(f"{number},Name {number},Fish\n" for number in range(1, 13))]
    (raw / "category_key.csv").write_text("".join(names))
    images, annotations = [], []
    for number in range(60):
        dive, category = number // 6, 1 if number % 2 else 2 + number // 2 % 10
        folder = root / "framegrabs" / "Doc Ricketts" / "images" / f"{dive:04}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{number}.png").write_bytes(
            encode_png(np.full((108, 192, 3), 20 * dive + category, np.uint8), 2, filters=1)
        )
        address = f"{url}/framegrabs/Doc%20Ricketts/images/{dive:04}/{number}.png"
        images.append(
            {"id": number, "width": 192, "height": 108, "file_name": f"{number}.png", "license": 0,
             "flickr_url": address, "coco_url": address, "date_captured": "2009-11-17 01:33:54"}
        )  # fmt: skip
        annotations.append(
            {"id": number, "image_id": number, "category_id": category,
             "bbox": [96.0, 54.0, 48.0, 27.0], "area": 1296.0, "iscrowd": 0, "segmentation": []}
        )  # fmt: skip
    coco = {"info": {}, "licenses": [], "images": images, "annotations": annotations, "categories": []}
    (raw / "object_detection/train.json").write_text(json.dumps(coco))


def test_the_competitions_images_are_downloaded_once_and_split_by_dive(
    prepare: ModuleType, grader: ModuleType, tmp_path: Path, web_server: tuple[Path, str]
) -> None:
    write_competition_files(tmp_path / "raw", *web_server)
    prepared = prepare_edition(prepare, tmp_path / "made", tmp_path / "raw", edition="paper")
    asked = CountingHandler.served_count
    (train_ids, train), (_, test) = prepared.images("train"), prepared.images("test")
    assert train.shape[1:] == test.shape[1:] == (96, 160, 3)
    levels, hidden = train[:, 0, 0, 0].astype(int), test[:, 0, 0, 0].astype(int)
    assert not set(levels // 20) & set(hidden // 20) and len(set(hidden // 20)) == 4
    assert [prepared.labels[name] for name in train_ids] == [{level % 20} for level in levels]
    assert prepared.truth == [{level % 20} for level in hidden]
    seen = set(levels % 20)
    assert (
        prepared.is_out_of_sample == [level % 20 not in seen for level in hidden]
    ).all() and 0.3 < prepared.is_out_of_sample.mean() < 0.5
    assert prepared.coco["annotations"][0]["bbox"] == [80, 48, 40, 24]
    assert grader.grade(prepared.private / "answers.csv", prepared.private) == 1
    again = prepare_edition(prepare, tmp_path / "again", tmp_path / "raw", edition="paper")
    assert again.bytes() == prepared.bytes() and asked == CountingHandler.served_count


def test_missing_images_stop_the_preparation_with_a_message(
    prepare: ModuleType, tmp_path: Path, web_server: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_competition_files(tmp_path / "raw", *web_server)
    for gone in web_server[0].rglob("*.png"):
        gone.unlink()
    monkeypatch.setattr(sys.modules["image_download"], "MAX_ATTEMPTS", 1)
    monkeypatch.setattr(sys.modules["image_download"], "RETRY_PAUSE_S", 0)
    with pytest.raises(SystemExit, match="images could not be downloaded; run again to continue"):
        prepare_edition(prepare, tmp_path / "made", tmp_path / "raw", edition="paper")
