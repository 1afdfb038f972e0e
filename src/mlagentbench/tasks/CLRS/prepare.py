"""Draws small training graphs with their shortest paths, and larger hidden test graphs."""

import math
import re
import struct
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
from generator import run_floyd_warshall, sample_graphs  # type: ignore[import-not-found]

TRAIN_GRAPHS = {4: 200, 7: 200, 11: 200, 13: 200, 16: 200}  # graphs by number of nodes, in the open edition
VALIDATION_GRAPHS = {16: 100}
TEST_GRAPHS = {32: 50, 40: 50}
ARCHIVE = "CLRS30_v1.0.0.tar.gz"
PART_NAMES = {"train": "train", "val": "validation", "test": "test"}  # the archive's names and ours
MEMBER_NAME = re.compile(r"(?:^|/)floyd_warshall_(train|val|test)/[^/]+/[^/]+\.tfrecord[^/]*$")
MIN_AGREEMENT = 0.99  # share of a graph's published pointers that our algorithm must reproduce

Floats = npt.NDArray[np.float32]
Graphs = dict[int, Floats]  # weights by number of nodes


def prepare(edition: str, raw: Path, public: Path, private: Path, seed: int) -> None:
    """Write graphs with the steps of the algorithm to `public`, and test graphs to `private`."""
    rng = np.random.default_rng(seed)
    if edition == "open":
        sizes = {"train": TRAIN_GRAPHS, "validation": VALIDATION_GRAPHS, "test": TEST_GRAPHS}
        parts = {
            part: {nodes: sample_graphs(rng, count, nodes) for nodes, count in counts.items()}
            for part, counts in sizes.items()
        }
    else:
        parts = {part: renumber_graphs(rng, graphs) for part, graphs in read_published(raw / ARCHIVE).items()}
    (public / "data").mkdir()
    for part in ("train", "validation"):
        np.savez(public / "data" / f"{part}.npz", **build_arrays(parts[part]))
    np.savez(private / "test.npz", **build_arrays(parts["test"], steps=False))


def build_arrays(graphs: Graphs, steps: bool = True) -> dict[str, Any]:
    """Build the arrays of one file: weights, pointers and steps of the algorithm, for each graph size."""
    arrays: dict[str, Any] = {}
    for nodes, weights in graphs.items():
        run = run_floyd_warshall(weights)
        arrays |= {f"weights_{nodes}": weights, f"pointers_{nodes}": run.pointers[:, -1]}
        if steps:
            arrays |= {f"distance_steps_{nodes}": run.distances, f"pointer_steps_{nodes}": run.pointers}
    return arrays


def renumber_graphs(rng: np.random.Generator, graphs: Graphs) -> Graphs:
    """Shuffle the graphs, and the nodes of each graph."""
    return {
        nodes: np.stack([_renumber_nodes(rng, weights) for weights in rng.permutation(batch)])
        for nodes, batch in graphs.items()
    }


def _renumber_nodes(rng: np.random.Generator, weights: Floats) -> Floats:
    order = rng.permutation(len(weights))
    return weights[order][:, order]


def read_published(archive: Path) -> dict[str, Graphs]:
    """Read the graphs of CLRS-30's Floyd–Warshall, without self-loops, which affect no shortest path."""
    graphs_by_part: dict[str, dict[int, list[Floats]]] = {part: {} for part in PART_NAMES.values()}
    with tarfile.open(archive, "r|gz") as packed:
        for member in packed:
            if (name := MEMBER_NAME.search(member.name)) and (file := packed.extractfile(member)):
                for record in iter_records(file):
                    weights = check_graph(
                        read_feature(record, b"input_A"), read_feature(record, b"output_Pi")
                    )
                    graphs_by_part[PART_NAMES[name[1]]].setdefault(len(weights), []).append(weights)
    if missing := [part for part, graphs in graphs_by_part.items() if not graphs]:
        raise ValueError(f"{archive.name} has no graphs of Floyd–Warshall for {', '.join(missing)}")
    return {
        part: {nodes: np.stack(weights) for nodes, weights in graphs.items()}
        for part, graphs in graphs_by_part.items()
    }


def check_graph(flat: npt.NDArray[Any], pointers: npt.NDArray[Any]) -> Floats:
    """Return the weights of one graph as a matrix, checked against the published pointers."""
    nodes = math.isqrt(len(flat))
    off_diagonal = ~np.eye(nodes, dtype=bool)
    weights = np.where(off_diagonal, flat.reshape(nodes, nodes), 0).astype(np.float32)
    agrees = run_floyd_warshall(weights[None]).pointers[0, -1] == pointers.reshape(nodes, nodes)
    if agrees[off_diagonal].mean() < MIN_AGREEMENT:
        raise ValueError(
            "the pointers of the archive are not those of shortest paths; it may have been misread"
        )
    return weights


def iter_records(file: IO[bytes]) -> Iterator[bytes]:
    """Yield the records of a TFRecord file (length, checksum, data, checksum); checksums are not verified."""
    while head := file.read(12):
        (length,) = struct.unpack("<Q", head[:8])
        record = file.read(length + 4)
        if len(record) != length + 4:
            raise ValueError("a TFRecord file ends inside a record")
        yield record[:-4]


def read_feature(example: bytes, name: bytes) -> npt.NDArray[Any]:
    """Return one feature of a serialized tf.Example: its packed list of floats or integers."""
    for _, features in iter_fields(example):
        for _, entry in iter_fields(features):
            parts = dict(iter_fields(entry))
            if parts[1] == name:
                ((kind, values),) = iter_fields(parts[2])
                packed = b"".join(value for _, value in iter_fields(values))
                return np.frombuffer(packed, "<f4") if kind == 2 else np.array(list(iter_varints(packed)))
    raise ValueError(f"a record has no feature {name.decode()}")


def iter_fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the fields of a protocol buffer, of the two wire types that a tf.Example has."""
    offset = 0
    while offset < len(message):
        key, offset = read_varint(message, offset)
        if key & 7 == 2:  # length-delimited
            size, offset = read_varint(message, offset)
        elif key & 7 == 5:  # 32-bit
            size = 4
        else:
            raise ValueError("a record is not a tf.Example of numbers")
        yield key >> 3, message[offset : offset + size]
        offset += size


def iter_varints(packed: bytes) -> Iterator[int]:
    """Yield consecutive varints."""
    offset = 0
    while offset < len(packed):
        number, offset = read_varint(packed, offset)
        yield number


def read_varint(data: bytes, offset: int) -> tuple[int, int]:
    """Return the varint at an offset (seven bits per byte), and the offset after it."""
    number = shift = 0
    while True:
        number |= (data[offset] & 127) << shift
        shift, offset = shift + 7, offset + 1
        if data[offset - 1] < 128:
            return number, offset
