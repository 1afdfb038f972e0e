"""The literature-review-tool task: hidden themes and papers, and a score that cannot be gamed."""

import io
import json
import sys
import tarfile
import zipfile
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import pytest

from mlagentbench.discovery import load_module_from_file
from mlagentbench.task import BUILTIN_TASKS_DIR

TASK = BUILTIN_TASKS_DIR / "literature-review-tool"
PAPERS_PER_CATEGORY = 30


@pytest.fixture(scope="module")
def grader() -> ModuleType:
    return load_module_from_file(TASK / "grade.py")


@pytest.fixture(scope="module")
def prepare_module() -> ModuleType:
    sys.path.append(str(TASK))
    return load_module_from_file(TASK / "prepare.py")


@pytest.fixture(scope="module")
def archives(prepare_module, tmp_path_factory) -> Path:
    """Make archives with the layout of the two packages."""
    raw = tmp_path_factory.mktemp("raw")
    rows = [
        {
            "title": f"{category} paper {number}",
            "abstract": f"About\n{category} {number}",
            "arxiv_id": f"24{place:02}.{number:05}v{1 + number % 2}",
            "category": category,
            "categories": f"{category},cs.LG",
        }
        for place, category in enumerate([*prepare_module.THEMES, "cs.LG"])
        for number in range(PAPERS_PER_CATEGORY)
    ]
    table = pd.DataFrame(rows).to_csv(index=False).encode()
    with tarfile.open(raw / prepare_module.PAPERS, "w:gz") as package:
        for name in ("first", "second"):  # every paper is in both
            info = tarfile.TarInfo(f"package/experiments/{name}/papers_full.csv")
            info.size = len(table)
            package.addfile(info, io.BytesIO(table))
    with zipfile.ZipFile(raw / prepare_module.ENCODER, "w") as wheel:
        for name in prepare_module.ENCODER_FILES:
            wheel.writestr(f"{prepare_module.ENCODER_MEMBER}/{name}", name)
    return raw


def prepare(prepare_module: ModuleType, raw: Path, folder: Path, seed: int) -> dict[str, Any]:
    public, private = folder / "public", folder / "private"
    public.mkdir(parents=True)
    private.mkdir()
    prepare_module.prepare("open", raw, public, private, seed)
    return {
        "papers": pd.read_csv(public / "papers.csv", keep_default_na=False),
        "examples": json.loads((public / "examples.json").read_text()),
        "topics": json.loads((private / "topics.json").read_text()),
        "graded": set(json.loads((private / "graded.json").read_text())),
    }


def test_examples_and_hidden_topics_share_no_theme_and_no_paper(prepare_module, archives, tmp_path):
    data = prepare(prepare_module, archives, tmp_path, seed=2**62 + 1)
    papers = data["papers"]
    assert len(papers) == PAPERS_PER_CATEGORY * (len(prepare_module.THEMES) + 1)
    assert data["graded"] == set(papers["id"][papers["judged"] == 0])
    themes, found = [], []
    for part in ("examples", "topics"):
        text = " ".join(topic["text"] for topic in data[part])
        themes.append(
            {name for name, wordings in prepare_module.THEMES.items() if any(w in text for w in wordings)}
        )
        found.append({int(paper) for topic in data[part] for paper in topic["gains"]})
    assert themes[0] and themes[1] and not themes[0] & themes[1]
    assert found[1] <= data["graded"] and not found[0] & data["graded"]


def test_neither_the_id_nor_the_row_tells_the_category(prepare_module, archives, tmp_path):
    papers = prepare(prepare_module, archives, tmp_path, seed=5)["papers"]
    category = papers["title"].str.split().str[0].astype("category").cat.codes
    assert list(papers["id"]) == list(range(len(papers)))  # the order is random, and ids follow it
    assert abs(category.corr(papers["id"], method="spearman")) < 0.1


def test_the_same_seed_makes_the_same_data_and_another_makes_other_data(prepare_module, archives, tmp_path):
    one, again, other = (
        prepare(prepare_module, archives, tmp_path / name, seed)
        for name, seed in (("one", 1), ("again", 1), ("other", 2))
    )
    assert one["topics"] == again["topics"] != other["topics"]
    assert one["papers"].equals(again["papers"]) and not one["papers"].equals(other["papers"])


TOPIC = {"gains": {"1": 2, "2": 2, "3": 2, "4": 2, "5": 1}, "groups": {"1": 0, "2": 0, "3": 1, "4": 1}}
GRADED = set(range(1, 50))


@pytest.mark.parametrize(
    ("papers", "groups", "score"),
    [
        ([1, 2, 3, 4, 5], [7, 7, 8, 8, 8], 1),
        ([900, 1, 2, -5, 3, 4, 5], [0, 7, 7, 0, 8, 8, 9], 1),  # papers that are not graded are ignored
        ([], [], 0),
        ([6, 7, 8], [0, 1, 2], 0),
    ],
)
def test_an_answer_is_scored_by_ranking_and_groups(papers, groups, score, grader):
    assert grader.score_answer(papers, groups, TOPIC, GRADED) == pytest.approx(score)


def test_one_group_or_a_group_for_each_paper_gains_nothing_beyond_the_ranking(grader):
    for groups in ([0] * 5, [0, 1, 2, 3, 4]):
        assert grader.score_answer([1, 2, 3, 4, 5], groups, TOPIC, GRADED) == pytest.approx(0.5)


def test_the_adjusted_rand_index_is_that_of_its_authors_and_zero_for_random_groups(grader):
    # 2 pairs are together in both, of 6 and 3; by chance 6 * 3 / 15 = 1.2: (2 - 1.2) / (4.5 - 1.2).
    assert grader.adjusted_rand_index([0, 0, 0, 1, 1, 1], [0, 0, 1, 1, 2, 2]) == pytest.approx(8 / 33)
    rng = np.random.default_rng(0)
    values = [grader.adjusted_rand_index(*rng.integers(0, 4, (2, 40)).tolist()) for _ in range(400)]
    assert abs(np.mean(values)) < 0.01


def test_only_the_first_hundred_papers_of_a_ranking_count(grader):
    assert grader.discounted_gain([2, 0, 1]) == pytest.approx(2 + 1 / 2)
    assert grader.discounted_gain([0] * 100 + [2] * 50) == 0


@pytest.mark.parametrize(
    "arrays",
    [
        [],
        [np.arange(3)],
        [np.arange(3), np.arange(4)],
        [np.arange(3.0), np.arange(3)],
        [np.array([1, 1]), np.array([0, 0])],
        [np.arange(301), np.arange(301)],
        [np.zeros((2, 2), int), np.zeros((2, 2), int)],
    ],
)
def test_a_malformed_answer_is_invalid(arrays, grader):
    with pytest.raises(grader.InvalidSubmission, match="review returned"):
        grader.check_answer(arrays)
