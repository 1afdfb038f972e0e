"""The ogbn-arxiv task: graphs from archives with the real layouts, renumbered and split without leaks."""

import gzip
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pandas as pd
import pytest

from mlagentbench.discovery import load_module_from_file
from mlagentbench.errors import InvalidSubmission
from mlagentbench.preparation.prepare import prepare_data
from mlagentbench.task import BUILTIN_TASKS_DIR, Task

TASK = BUILTIN_TASKS_DIR / "ogbn-arxiv"
PAPERS, COLUMNS = 60, 5
PreparedFolders = tuple[Path, Path]
PrepareEdition = Callable[..., PreparedFolders]


@pytest.fixture(scope="module")
def prepare_module() -> ModuleType:
    return load_module_from_file(TASK / "prepare.py")


def make_arxiv_tables() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    edges = rng.permutation([(a, b) for a in range(PAPERS) for b in range(a)])[:200]
    return {
        "raw/edge": edges,
        "raw/node-feat": rng.normal(size=(PAPERS, COLUMNS)).round(6),
        "raw/node-label": np.arange(PAPERS)[:, None] % 7,
        "raw/node_year": 1990 + np.arange(PAPERS)[:, None],
        "raw/num-node-list": np.array([[PAPERS]]),
        "raw/num-edge-list": np.array([[len(edges)]]),
        "split/time/train": np.arange(30)[:, None],
        "split/time/valid": np.arange(30, 45)[:, None],
        "split/time/test": np.arange(45, PAPERS)[:, None],
    }


def write_arxiv_archive(path: Path, tables: dict[str, np.ndarray]) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for name, table in tables.items():
            text = pd.DataFrame(table).to_csv(index=False, header=False)
            archive.writestr(f"arxiv/{name}.csv.gz", gzip.compress(text.encode()))


@pytest.fixture
def prepare_paper_edition(prepare_module: ModuleType, tmp_path: Path) -> PrepareEdition:
    """Return a function that prepares the paper edition from an archive with OGB's layout."""

    def run(seed: int, tables: dict[str, np.ndarray] | None = None) -> PreparedFolders:
        root = tmp_path / f"{seed}-{len(list(tmp_path.iterdir()))}"
        for name in ("raw", "public", "private"):
            (root / name).mkdir(parents=True)
        write_arxiv_archive(root / "raw" / "arxiv.zip", tables or make_arxiv_tables())
        prepare_module.prepare("paper", root / "raw", root / "public", root / "private", seed)
        return root / "public" / "data", root / "private"

    return run


def read_files(folders: PreparedFolders) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for folder in folders for path in folder.iterdir()}


def original_numbers(data: Path) -> np.ndarray:
    """Return the old number of each paper, which is encoded in the year of the synthetic archive."""
    return pd.read_csv(data / "years.csv")["year"].to_numpy() - 1990


def test_the_same_seed_makes_the_same_files_and_another_seed_makes_others(
    prepare_paper_edition: PrepareEdition,
) -> None:
    first, again, other = (
        read_files(prepare_paper_edition(seed)) for seed in (2**62 + 1, 2**62 + 1, 2**62 + 2)
    )
    assert first == again
    assert [name for name in first if first[name] == other[name]] == []


def test_the_graph_of_the_paper_edition_is_ogbs_with_new_numbers(
    prepare_paper_edition: PrepareEdition,
) -> None:
    data, _ = prepare_paper_edition(5)
    tables, old = make_arxiv_tables(), original_numbers(data)
    assert sorted(old) == list(range(PAPERS)) and list(old) != list(range(PAPERS))
    with np.load(data / "features.npz", allow_pickle=False) as file:
        features = file["features"]
    np.testing.assert_allclose(
        np.sort(features, axis=1), np.sort(tables["raw/node-feat"][old], axis=1), rtol=1e-6
    )
    edges = old[pd.read_csv(data / "edges.csv")[["source", "target"]].to_numpy()]
    assert {tuple(edge) for edge in edges} == {tuple(edge) for edge in tables["raw/edge"]}
    assert edges.tolist() != tables["raw/edge"].tolist()


def test_the_parts_of_the_paper_edition_are_the_official_ones_and_test_labels_are_hidden(
    prepare_paper_edition: PrepareEdition,
) -> None:
    data, private = prepare_paper_edition(5)
    old, tables = original_numbers(data), make_arxiv_tables()
    files = {
        "train": data / "train_labels.csv",
        "valid": data / "valid_labels.csv",
        "test": private / "answers.csv",
    }
    for part, path in files.items():
        table = pd.read_csv(path)
        assert sorted(old[table["node"]]) == tables[f"split/time/{part}"][:, 0].tolist()
        assert (tables["raw/node-label"][old[table["node"]], 0] == table["label"]).all()
    hidden = pd.read_csv(data / "test_nodes.csv")
    assert list(hidden.columns) == ["node"]
    assert hidden["node"].tolist() == pd.read_csv(private / "answers.csv")["node"].tolist()


@pytest.mark.parametrize("damage", ["raw/node-label", "raw/node_year", "split/time/test"])
def test_an_archive_that_lacks_rows_is_rejected(prepare_paper_edition: PrepareEdition, damage: str) -> None:
    tables = make_arxiv_tables()
    tables[damage] = tables[damage][:-1]
    with pytest.raises(AssertionError, match=r"the tables of the archive|the split does not"):
        prepare_paper_edition(5, tables)


@pytest.mark.parametrize("attack", [print, pickle.loads, np.load, Path, eval])
def test_a_pickle_with_any_other_name_is_rejected(
    prepare_module: ModuleType, attack: object, tmp_path: Path
) -> None:
    path = tmp_path / "evil"
    path.write_bytes(pickle.dumps(attack))
    with (
        path.open("rb") as file,
        pytest.raises(pickle.UnpicklingError, match="is not allowed in the archive's pickles"),
    ):
        prepare_module.Unpickler(file, encoding="latin1").load()


@pytest.fixture(scope="module")
def pubmed() -> PreparedFolders:
    data = prepare_data(Task(TASK), "open", lambda line: None)
    return data.public / "data", data.private


def test_the_open_edition_is_all_of_pubmed(pubmed: PreparedFolders) -> None:
    data, private = pubmed
    with np.load(data / "features.npz", allow_pickle=False) as file:
        features = file["features"]
    edges = pd.read_csv(data / "edges.csv").to_numpy()
    tables = [pd.read_csv(path) for path in (*sorted(data.glob("*_labels.csv")), private / "answers.csv")]
    everyone = pd.concat(tables)
    assert (
        features.shape == (19717, 500) and np.isfinite(features).all() and (features != 0).any(axis=1).all()
    )
    assert len({frozenset(edge) for edge in edges.tolist()}) == len(edges) == 44324
    assert [len(table) for table in tables] == [400, 600, 18717]
    assert sorted(everyone["node"]) == list(range(19717))
    assert np.bincount(everyone["label"]).tolist() == [4103, 7739, 7875]
    label = everyone.set_index("node")["label"].sort_index().to_numpy()
    assert (label[edges[:, 0]] == label[edges[:, 1]]).mean() == pytest.approx(0.802, abs=0.001)


def test_numbers_and_order_carry_no_information_about_labels(pubmed: PreparedFolders) -> None:
    data, private = pubmed
    answers = pd.read_csv(private / "answers.csv").set_index("node")["label"]
    assert abs(np.corrcoef(answers.index, answers)[0, 1]) < 0.03
    assert abs(np.corrcoef(answers[:-1], answers[1:])[0, 1]) < 0.03
    edges = pd.read_csv(data / "edges.csv")
    assert (edges["source"] < edges["target"]).mean() == pytest.approx(0.5, abs=0.01)
    first = edges[edges["source"].isin(answers.index)].assign(label=lambda rows: rows["source"].map(answers))
    assert abs(np.corrcoef(first.index, first["label"])[0, 1]) < 0.03


def grade_labels(tmp_path: Path, answers: list[object], predicted: list[object]) -> float:
    for name, labels in (("answers.csv", answers), ("submission.csv", predicted)):
        pd.DataFrame({"node": range(len(labels)), "label": labels}).to_csv(tmp_path / name, index=False)
    return float(load_module_from_file(TASK / "grade.py").grade(tmp_path / "submission.csv", tmp_path))


def test_the_score_is_the_fraction_of_correct_labels(tmp_path: Path) -> None:
    assert grade_labels(tmp_path, [0, 1, 2, 2], [0, 1, 2, 0]) == 0.75
    assert grade_labels(tmp_path, [0, 1, 2, 2], [0, 1, 2, 2]) == 1.0


@pytest.mark.parametrize("label", [0.5, -1, 1.0000001])
def test_a_label_that_is_not_an_integer_is_invalid(tmp_path: Path, label: float) -> None:
    with pytest.raises(InvalidSubmission, match=r"submission\.csv: 1 labels are not integers from 0"):
        grade_labels(tmp_path, [0, 1, 2], [0, 1, label])
