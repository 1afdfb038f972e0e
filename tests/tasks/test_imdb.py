"""The imdb task: a split without leaks, and small files with the layout of the paper edition."""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from types import ModuleType

import numpy as np
import pandas as pd
import pytest

from mlagentbench.discovery import load_module_from_file
from mlagentbench.errors import InvalidSubmission
from mlagentbench.task import BUILTIN_TASKS_DIR

TASK = BUILTIN_TASKS_DIR / "imdb"
FILMS_PER_LABEL, REVIEWS_PER_FILM = 160, 30


@pytest.fixture(scope="module")
def prepare_module() -> ModuleType:
    return load_module_from_file(TASK / "prepare.py")


def make_reviews(films: int = FILMS_PER_LABEL, first: int = 0) -> pd.DataFrame:
    """Make synthetic reviews in the order of the original: by label, and within it by film."""
    rows = [
        (f"{number} times I saw film{label}x{film}.<br /><br />It was {('dull', 'fine')[label]}.", label)
        for label in (0, 1)
        for film in range(films)
        for number in range(first, first + REVIEWS_PER_FILM)
    ]
    return pd.DataFrame(rows, columns=["text", "label"])


def find_films(table: pd.DataFrame) -> set[str]:
    return set(table["text"].str.extract(r"(film\d+x\d+)")[0])


def prepare_edition(
    prepare_module: ModuleType, edition: str, raw: Path, folder: Path, seed: int
) -> dict[str, pd.DataFrame]:
    public, private = folder / "public", folder / "private"
    public.mkdir(parents=True)
    private.mkdir()
    prepare_module.prepare(edition, raw, public, private, seed)
    assert sorted(path.name for path in (public / "encoder").iterdir()) == sorted(
        prepare_module.ENCODER_FILES
    )
    paths = {"train": public / "train.csv", "test": public / "test.csv", "answers": private / "answers.csv"}
    return {name: pd.read_csv(path) for name, path in paths.items()}


@pytest.fixture(scope="module")
def open_archives(prepare_module, tmp_path_factory) -> Path:
    """Make archives with the layout of the two packages of the open edition."""
    raw = tmp_path_factory.mktemp("raw")
    table = make_reviews(films=400).assign(source="imdb")
    other = pd.DataFrame({"text": ["short and rotten"], "label": [0], "source": ["rotten_tomatoes"]})
    with zipfile.ZipFile(raw / prepare_module.REVIEWS, "w") as wheel:
        wheel.writestr(prepare_module.REVIEWS_MEMBER, pd.concat([table, other]).to_csv(index=False))
    with zipfile.ZipFile(raw / prepare_module.ENCODER, "w") as wheel:
        for name in [*prepare_module.ENCODER_FILES, "README.md"]:
            wheel.writestr(f"{prepare_module.ENCODER_MEMBER}/{name}", name)
    return raw


def test_the_same_seed_makes_the_same_data_and_another_makes_other_data(
    prepare_module, open_archives, tmp_path
):
    one, again, other = (
        prepare_edition(prepare_module, "open", open_archives, tmp_path / name, seed)
        for name, seed in (("one", 2**62 + 1), ("again", 2**62 + 1), ("other", 2**62 + 2))
    )
    for name in one:
        pd.testing.assert_frame_equal(one[name], again[name])
        assert not one[name].equals(other[name])


def test_labels_are_balanced_and_ids_and_order_carry_no_information(prepare_module, open_archives, tmp_path):
    tables = prepare_edition(prepare_module, "open", open_archives, tmp_path / "data", 1)
    assert list(tables["test"]) == ["id", "text"] and list(tables["train"]) == [
        "id",
        "text",
        "label",
        "group",
    ]
    assert (tables["test"]["id"] == tables["answers"]["id"]).all()
    assert not pd.concat([tables["train"]["id"], tables["test"]["id"]]).duplicated().any()
    for name in ("train", "answers"):
        labels = tables[name]["label"]
        assert labels.value_counts().to_dict() == {
            0: prepare_module.REVIEWS_PER_LABEL,
            1: prepare_module.REVIEWS_PER_LABEL,
        }
        for column in (tables[name]["id"], np.arange(len(labels)), tables[name]["id"] % 2):
            assert abs(np.corrcoef(column, labels)[0, 1]) < 4 / len(labels) ** 0.5


def test_no_film_is_both_in_train_and_in_test(prepare_module):
    for seed in range(3):
        train, test = prepare_module.split_by_film(make_reviews(), seed, reviews_per_label=1000)
        assert len(train) == len(test) == 2000
        assert not find_films(train) & find_films(test)


def test_all_reviews_of_a_film_in_train_are_in_one_group(prepare_module, open_archives, tmp_path):
    train = prepare_edition(prepare_module, "open", open_archives, tmp_path / "data", 1)["train"]
    films = train["text"].str.extract(r"(film\d+x\d+)")[0]
    assert (train.groupby(films)["group"].nunique() == 1).all()
    assert (train.groupby("group")["label"].nunique() == 1).all()
    assert 20 < train["group"].nunique() < 0.5 * films.nunique()
    labels = train.groupby("group")["label"].first()
    assert abs(np.corrcoef(labels.index, labels)[0, 1]) < 4 / len(labels) ** 0.5


def test_duplicates_of_a_review_are_dropped_despite_other_spelling(prepare_module):
    table = make_reviews()
    copy = table.assign(text=table["text"].str.upper().str.replace("<BR /><BR />", "  \n"))
    copied = table.index % 7 == 0
    both = pd.concat([table, copy[copied]]).sort_values("label", kind="stable", ignore_index=True)
    train, test = prepare_module.split_by_film(both, 0, reviews_per_label=500)
    assert not set(pd.concat([train, test])["text"]) & set(pd.concat([table[copied], copy[copied]])["text"])


@pytest.mark.parametrize("label", ["0.5", "2", "-1"])
def test_a_label_that_is_neither_0_nor_1_is_invalid(label, tmp_path):
    (tmp_path / "answers.csv").write_text("id,label\n7,1\n8,0\n")
    submission = tmp_path / "submission.csv"
    grade = load_module_from_file(TASK / "grade.py").grade
    submission.write_text("id,label\n8,1\n7,1.0\n")
    assert grade(submission, tmp_path) == 0.5
    submission.write_text(f"id,label\n8,1\n7,{label}\n")
    with pytest.raises(InvalidSubmission, match=f"1 labels are neither 0 nor 1, for example {label}"):
        grade(submission, tmp_path)


@pytest.fixture
def paper_files(prepare_module, tmp_path) -> Path:
    """Make files with the layout of the paper edition: two tables of the hub's data set, and a model."""
    raw = tmp_path / "raw"
    (raw / "plain_text").mkdir(parents=True)
    train, test = make_reviews(films=4), make_reviews(films=6, first=REVIEWS_PER_FILM - 1)
    for part, table in (("train", train), ("test", test)):
        table.to_parquet(raw / prepare_module.OFFICIAL_FILES[part], index=False)
    for name in prepare_module.ENCODER_FILES:
        (raw / name).write_text(name)
    return raw


def test_the_paper_edition_hides_the_official_test_and_trains_on_none_of_it(
    prepare_module, paper_files, tmp_path
):
    tables = prepare_edition(prepare_module, "paper", paper_files, tmp_path / "data", 0)
    train, test = (
        pd.read_parquet(paper_files / prepare_module.OFFICIAL_FILES[part]) for part in ("train", "test")
    )
    given = tables["test"].merge(tables["answers"], on="id")
    assert sorted(zip(given["text"], given["label"], strict=True)) == sorted(
        zip(test["text"], test["label"], strict=True)
    )
    assert set(tables["train"]["text"]) == set(train["text"]) - set(test["text"]) and len(
        tables["train"]
    ) < len(train)


def test_the_paper_edition_says_in_one_line_that_it_needs_pyarrow(paper_files, tmp_path):
    request = {"task": TASK, "edition": "paper", "seed": 0, "raw": paper_files}
    for name in ("public", "private"):
        request[name] = tmp_path / name
        request[name].mkdir()
    (tmp_path / "without" / "pyarrow").mkdir(parents=True)
    (tmp_path / "without" / "pyarrow" / "__init__.py").write_text("raise ImportError('hidden by a test')")
    child = [sys.executable, "-m", "mlagentbench.preparation.prepare_process"]
    env = {**os.environ, "PYTHONPATH": str(tmp_path / "without")}
    with subprocess.Popen(
        child, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env
    ) as preparation:
        preparation.stdin.write(json.dumps(request, default=str) + "\n")
        preparation.stdin.flush()
        message = preparation.stderr.read()
    assert message == "the paper edition of imdb needs pyarrow to read parquet files: pip install pyarrow\n"
