"""The identify-contrails task: its generated scenes, its run-length masks, and the competition's layout."""

import json
import sys
import zipfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from types import ModuleType

import numpy as np
import pandas as pd
import pytest
from scipy.ndimage import uniform_filter

from mlagentbench.discovery import load_module_from_file
from mlagentbench.errors import InvalidSubmission
from mlagentbench.task import BUILTIN_TASKS_DIR

TASK = BUILTIN_TASKS_DIR / "identify-contrails"
SEED = 2**63 - 25
TRAIN_COUNT, TEST_COUNT = 60, 12


class PreparedFolders:
    """The files that prepare.py wrote."""

    def __init__(self, root: Path) -> None:
        self.public, self.private, self.data = root / "public", root / "private", root / "public/data"
        self.public.mkdir(parents=True)
        self.private.mkdir()

    def array(self, name: str) -> np.ndarray:
        return np.load(self.data / f"{name}.npy", allow_pickle=False)

    def ids(self, part: str) -> list[str]:
        return list(pd.read_csv(self.data / f"{part}_records.csv", dtype=str)["record_id"])

    def masks(self, name: str) -> np.ndarray:
        with np.load(self.data / "train_masks.npz", allow_pickle=False) as file:
            return file[name]

    def answers(self) -> pd.Series:
        return pd.read_csv(self.private / "answers.csv", dtype=str).set_index("record_id")["encoded_pixels"]

    def bytes(self) -> dict[str, bytes]:
        rooms = (self.data, self.private)
        return {path.name: path.read_bytes() for room in rooms for path in room.iterdir()}


@pytest.fixture(scope="module")
def prepare() -> Iterator[ModuleType]:
    """Load prepare.py with fewer scenes, and with its own generator.py on the path."""
    sys.path.insert(0, str(TASK))
    other = sys.modules.pop("generator", None)
    module = load_module_from_file(TASK / "prepare.py")
    module.TRAIN_SCENES, module.TEST_SCENES = (
        {"open": TRAIN_COUNT, "paper": 4},
        {"open": TEST_COUNT, "paper": 3},
    )
    yield module
    sys.path.remove(str(TASK))
    sys.modules.pop("generator")
    if other:
        sys.modules["generator"] = other


@pytest.fixture(scope="module")
def grader() -> ModuleType:
    return load_module_from_file(TASK / "grade.py")


@pytest.fixture(scope="module")
def prepared(prepare: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> PreparedFolders:
    result = PreparedFolders(tmp_path_factory.mktemp("open"))
    prepare.prepare("open", Path("nowhere"), result.public, result.private, SEED)
    return result


def dice(marked: np.ndarray, true: np.ndarray) -> float:
    return 2 * (marked & true).sum() / (marked.sum() + true.sum())


def test_a_seed_determines_the_files(prepare, prepared, tmp_path):
    again, other = PreparedFolders(tmp_path / "again"), PreparedFolders(tmp_path / "other")
    prepare.prepare("open", Path("nowhere"), again.public, again.private, SEED)
    prepare.prepare("open", Path("nowhere"), other.public, other.private, SEED - 1)
    first, second, third = prepared.bytes(), again.bytes(), other.bytes()
    assert first == second
    assert set(first) == set(third)
    assert {name for name in first if first[name] == third[name]} == {"scale.json", "shape.json"}


def test_bands_and_masks_have_the_documented_shapes(prepared):
    for part, count in (("train", TRAIN_COUNT), ("test", TEST_COUNT)):
        assert len(prepared.ids(part)) == count
        assert prepared.array(f"{part}_band_11").shape == (count, 64, 64)
        assert (
            prepared.array(f"{part}_band_14").shape
            == prepared.array(f"{part}_band_15").shape
            == (count, 8, 64, 64)
        )
    assert prepared.masks("individual").shape == (TRAIN_COUNT, 5, 64, 64)
    assert set(np.unique(prepared.masks("individual"))) == {0, 1}


def test_the_majority_is_the_ground_truth_and_some_scenes_are_empty(prepared):
    agreed = prepared.masks("agreed")
    assert np.array_equal(agreed, prepared.masks("individual").sum(axis=1) >= 3)
    assert 0.6 < agreed.any(axis=(1, 2)).mean() < 1
    assert 0.02 < agreed.mean() < 0.1


def test_public_files_reveal_nothing_about_hidden_masks(prepared):
    train, test = prepared.ids("train"), prepared.ids("test")
    assert len({*train, *test}) == TRAIN_COUNT + TEST_COUNT
    assert {path.name.partition("_")[0] for path in prepared.data.iterdir() if "mask" in path.name} == {
        "train"
    }
    scenes = np.concatenate([prepared.array("train_band_14"), prepared.array("test_band_14")])
    assert len(np.unique(scenes.reshape(len(scenes), -1), axis=0)) == len(scenes)
    assert set(prepared.answers().index) == set(test)


def test_local_contrast_finds_contrails_better_than_a_plain_threshold(prepared):
    counts = [prepared.array(f"train_band_{band}")[:, 4].astype(float) for band in (14, 15)]
    difference, true = (counts[0] - counts[1]) / 4, prepared.masks("agreed") > 0
    local = uniform_filter(difference, (0, 3, 3)) - uniform_filter(difference, (0, 11, 11))
    plain = max(dice(difference > level, true) for level in np.arange(1, 5, 0.25))
    assert 0.05 < plain < 0.9 * max(dice(local > level, true) for level in np.arange(0.2, 1, 0.1)) < 0.6


def test_contrails_appear_between_frames(prepared):
    counts = [prepared.array(f"train_band_{band}").astype(float) for band in (14, 15)]
    difference, true = (counts[0] - counts[1]) / 4, prepared.masks("agreed") > 0
    local = difference - uniform_filter(difference, (0, 0, 11, 11))
    contrast = [local[:, frame][true].mean() for frame in range(8)]
    assert max(contrast) == contrast[4] > 0.25
    assert contrast[0] < 0.25 * contrast[4]


def test_no_masks_of_an_oracle_are_perfect_but_they_beat_a_single_annotator(prepare, prepared, tmp_path):
    (tmp_path / "seed.json").write_text(json.dumps(SEED))
    ceiling = load_module_from_file(TASK / "ceiling.py").ceiling(prepared.public, tmp_path)
    individual, agreed = prepared.masks("individual") > 0, prepared.masks("agreed") > 0
    assert np.mean([dice(individual[:, number], agreed) for number in range(5)]) < ceiling < 0.95


def test_the_most_likely_pixels_are_marked_as_long_as_that_raises_the_expected_dice(prepare):
    best_masks = load_module_from_file(TASK / "ceiling.py")._best_masks
    assert best_masks(np.array([1.0, 0.6, 0.3, 0.0])).tolist() == [True, True, False, False]
    assert best_masks(np.array([0.3, 0.2, 0.2, 0.2])).tolist() == [True, True, True, True]


def test_runs_are_counted_from_one_down_the_columns(prepare, grader):
    mask = np.zeros((4, 3), np.uint8)
    mask[1:3, 0] = mask[3, 1] = mask[0, 2] = 1
    assert prepare._encode_runs(mask) == "2 2 8 2"
    assert prepare._encode_runs(np.zeros((4, 3), np.uint8)) == "-"
    assert prepare._encode_runs(np.ones((4, 3), np.uint8)) == "1 12"
    assert np.array_equal(grader.decode_runs("2 2 8 2", 12), mask.flatten(order="F") == 1)


@pytest.fixture
def score_masks(grader: ModuleType, tmp_path: Path):
    """Return a function that scores three masks of 12 pixels; the truth is `2 2 8 2`, `-` and `1 1`."""
    (tmp_path / "shape.json").write_text(json.dumps({"height": 4, "width": 3}))
    (tmp_path / "answers.csv").write_text("record_id,encoded_pixels\na,2 2 8 2\nb,-\nc,1 1\n")

    def score(*masks: str) -> float:
        rows = [f"{name},{mask}\n" for name, mask in zip("abc", masks, strict=True)]
        (tmp_path / "submission.csv").write_text("record_id,encoded_pixels\n" + "".join(reversed(rows)))
        return grader.grade(tmp_path / "submission.csv", tmp_path)

    return score


def test_dice_is_computed_over_all_pixels_of_all_scenes(score_masks):
    assert score_masks("2 2 8 2", "-", "1 1") == 1
    assert score_masks("2 1 3 1  8 2", "-", "1 1") == 1  # runs may touch
    assert score_masks("-", "-", "-") == 0
    assert score_masks("2 2", "-", "-") == pytest.approx(2 * 2 / (2 + 5))
    assert score_masks("1 12", "1 12", "1 12") == pytest.approx(2 * 5 / (36 + 5))


@pytest.mark.parametrize(
    ("mask", "message"),
    [
        ("", "is empty"),
        ("nan", "not a positive integer"),
        ("1.0 2", "not a positive integer"),
        ("-1 2", "not a positive integer"),
        ("- 2", "not a positive integer"),
        ("１ 2", "not a positive integer"),
        ("9" * 5000 + " 1", "not a positive integer"),
        ("1 2 3", "cannot be read as pairs"),
        ("3 0", "has length 0"),
        ("0 2", "leaves the image"),
        ("12 2", "leaves the image"),
        ("999999999 999999999", "leaves the image"),
        ("5 1 2 1", "not in increasing order"),
        ("2 2 2 2", "not in increasing order"),
        ("2 3 4 1", "overlap"),
    ],
)
def test_malformed_masks_are_invalid_with_a_message(score_masks, mask, message):
    with pytest.raises(InvalidSubmission, match=rf"submission\.csv.*\bb\b.*{message}"):
        score_masks("2 2 8 2", mask, "1 1")


SIDE_PIXELS = 16


def to_npy(array: np.ndarray) -> bytes:
    file = BytesIO()
    np.save(file, array)
    return file.getvalue()


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a small archive with the competition's layout: folders of records, bands of H × W × T, masks."""
    raw, random = tmp_path_factory.mktemp("raw"), np.random.default_rng(0)
    name = "google-research-identify-contrails-reduce-global-warming.zip"
    with zipfile.ZipFile(raw / name, "w") as zip_file:
        zip_file.writestr("train_metadata.json", "[]")
        zip_file.writestr("validation_metadata.json", "[]")
        zip_file.writestr("sample_submission.csv", "record_id,encoded_pixels\n1000834164244036115,1 1 5 1\n")
        zip_file.writestr(
            "test/1000834164244036115/band_14.npy",
            to_npy(np.zeros((SIDE_PIXELS, SIDE_PIXELS, 8), np.float32)),
        )
        for part, first, count in (("train", 1000, 6), ("validation", 2000, 5)):
            for number in range(first, first + count):
                folder = f"{part}/{number}"
                for band in range(8, 17):
                    kelvin = (
                        200 + number / 100 + band + random.random((SIDE_PIXELS, SIDE_PIXELS, 8), np.float32)
                    )
                    zip_file.writestr(f"{folder}/band_{band:02d}.npy", to_npy(kelvin.astype(np.float32)))
                masks = random.integers(0, 2, (SIDE_PIXELS, SIDE_PIXELS, 1, 4 + number % 2), np.int32)
                if part == "train":
                    zip_file.writestr(f"{folder}/human_individual_masks.npy", to_npy(masks))
                agreed = (2 * masks.sum(axis=-1) > masks.shape[-1]).astype(np.int32)
                zip_file.writestr(f"{folder}/human_pixel_masks.npy", to_npy(agreed))
    return raw


@pytest.fixture(scope="module")
def paper_edition(
    prepare: ModuleType, archive: Path, tmp_path_factory: pytest.TempPathFactory
) -> PreparedFolders:
    result = PreparedFolders(tmp_path_factory.mktemp("paper"))
    prepare.prepare("paper", archive, result.public, result.private, SEED)
    return result


def test_the_competitions_records_are_sampled_with_new_ids(paper_edition):
    assert (len(paper_edition.ids("train")), len(paper_edition.ids("test"))) == (4, 3)
    assert not [
        name
        for name in (*paper_edition.ids("train"), *paper_edition.ids("test"))
        if name.isdigit() and len(name) < 12
    ]
    assert paper_edition.array("test_band_15").shape == (3, 8, SIDE_PIXELS, SIDE_PIXELS)
    assert paper_edition.array("train_band_11").shape == (4, SIDE_PIXELS, SIDE_PIXELS)


def test_the_competitions_temperatures_can_be_recovered_from_counts(paper_edition, archive):
    scale = json.loads((paper_edition.data / "scale.json").read_text())
    kelvin = scale["kelvin_at_count_0"] + scale["kelvin_per_count"] * paper_edition.array("train_band_14")
    with zipfile.ZipFile(next(archive.glob("*.zip"))) as zip_file:
        packs = [zip_file.read(f"train/{number}/band_14.npy") for number in range(1000, 1006)]
    originals = [np.load(BytesIO(pack)).transpose(2, 0, 1) for pack in packs]
    nearest = [min(np.abs(scene - original).max() for original in originals) for scene in kelvin]
    assert max(nearest) <= 0.0051


def test_missing_annotators_are_marked(paper_edition):
    individual, agreed = paper_edition.masks("individual"), paper_edition.masks("agreed")
    is_present = individual != 255
    assert np.array_equal(agreed, 2 * (individual * is_present).sum(axis=1) > is_present.sum(axis=1))
    assert individual.shape[1] == 5 and not is_present.all()


def test_the_hidden_masks_are_those_of_the_validation_folder(paper_edition, archive, grader):
    with zipfile.ZipFile(next(archive.glob("*.zip"))) as zip_file:
        true = [
            np.load(BytesIO(zip_file.read(f"validation/{number}/human_pixel_masks.npy")))
            for number in range(2000, 2005)
        ]
    known = {mask[:, :, 0].flatten(order="F").astype(bool).tobytes() for mask in true}
    assert {
        grader.decode_runs(runs, SIDE_PIXELS * SIDE_PIXELS).tobytes() for runs in paper_edition.answers()
    } <= known
    assert grader.grade(paper_edition.private / "answers.csv", paper_edition.private) == 1


def test_an_archive_without_validation_records_is_rejected(prepare, tmp_path):
    prepared = PreparedFolders(tmp_path / "made")
    with zipfile.ZipFile(tmp_path / prepare.ARCHIVE, "w") as zip_file:
        zip_file.writestr(
            "train/1/human_pixel_masks.npy", to_npy(np.zeros((SIDE_PIXELS, SIDE_PIXELS, 1), np.int32))
        )
    with pytest.raises(AssertionError, match="no records in validation/"):
        prepare.prepare("paper", tmp_path, prepared.public, prepared.private, SEED)
