"""Draws small graphs with their shortest paths to learn from, and larger ones, which stay hidden, to be graded on."""

import math
import re
import struct
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
from generator import sample, solve  # type: ignore[import-not-found]

TRAIN = {4: 200, 7: 200, 11: 200, 13: 200, 16: 200}  # graphs of each number of nodes, in the open edition
VALIDATION = {16: 100}
TEST = {32: 50, 40: 50}
ARCHIVE = "CLRS30_v1.0.0.tar.gz"
PARTS = {"train": "train", "val": "validation", "test": "test"}  # the archive's names, and ours
MEMBER = re.compile(r"(?:^|/)floyd_warshall_(train|val|test)/[^/]+/[^/]+\.tfrecord[^/]*$")
AGREEMENT = (
    0.99  # share of a graph's published pointers that our algorithm must find, or something was misread
)

Floats = npt.NDArray[np.float32]
Graphs = dict[int, Floats]  # weights of graphs, by their number of nodes


def prepare(edition: str, raw: Path, public: Path, private: Path, seed: int) -> None:
    """Write graphs with all steps of the algorithm to `public`, and graphs with their pointers to `private`."""
    rng = np.random.default_rng(seed)
    if edition == "open":
        sizes = {"train": TRAIN, "validation": VALIDATION, "test": TEST}
        parts = {
            part: {nodes: sample(rng, count, nodes) for nodes, count in some.items()}
            for part, some in sizes.items()
        }
    else:
        parts = {part: renumbered(rng, graphs) for part, graphs in published(raw / ARCHIVE).items()}
    (public / "data").mkdir()
    for part in ("train", "validation"):
        np.savez(public / "data" / f"{part}.npz", **lesson(parts[part]))
    np.savez(private / "test.npz", **lesson(parts["test"], steps=False))


def lesson(graphs: Graphs, steps: bool = True) -> dict[str, Any]:
    """The arrays of one file: weights and pointers of graphs of each size, and what the algorithm held on its way."""
    arrays: dict[str, Any] = {}
    for nodes, weights in graphs.items():
        run = solve(weights)
        arrays |= {f"weights_{nodes}": weights, f"pointers_{nodes}": run.pointers[:, -1]}
        if steps:
            arrays |= {f"distance_steps_{nodes}": run.distances, f"pointer_steps_{nodes}": run.pointers}
    return arrays


def renumbered(rng: np.random.Generator, graphs: Graphs) -> Graphs:
    """The same graphs in another order, each with its nodes in another order."""
    return {
        nodes: np.stack([_shuffled(rng, one) for one in rng.permutation(some)])
        for nodes, some in graphs.items()
    }


def _shuffled(rng: np.random.Generator, weights: Floats) -> Floats:
    order = rng.permutation(len(weights))
    return weights[order][:, order]


def published(archive: Path) -> dict[str, Graphs]:
    """The graphs of CLRS-30's Floyd–Warshall, without their self-loops, on which no shortest path depends."""
    found: dict[str, dict[int, list[Floats]]] = {part: {} for part in PARTS.values()}
    with tarfile.open(archive, "r|gz") as packed:
        for member in packed:
            if (name := MEMBER.search(member.name)) and (file := packed.extractfile(member)):
                for record in records(file):
                    weights = checked(numbers(record, b"input_A"), numbers(record, b"output_Pi"))
                    found[PARTS[name[1]]].setdefault(len(weights), []).append(weights)
    if missing := [part for part, graphs in found.items() if not graphs]:
        raise ValueError(f"{archive.name} has no graphs of Floyd–Warshall for {', '.join(missing)}")
    return {part: {nodes: np.stack(some) for nodes, some in graphs.items()} for part, graphs in found.items()}


def checked(flat: npt.NDArray[Any], pointers: npt.NDArray[Any]) -> Floats:
    """One graph's weights as a matrix, if the published pointers are the ones that they lead to."""
    nodes = math.isqrt(len(flat))
    off_diagonal = ~np.eye(nodes, dtype=bool)
    weights = np.where(off_diagonal, flat.reshape(nodes, nodes), 0).astype(np.float32)
    right = solve(weights[None]).pointers[0, -1] == pointers.reshape(nodes, nodes)
    if right[off_diagonal].mean() < AGREEMENT:
        raise ValueError("the archive's pointers are not those of shortest paths; was it read rightly?")
    return weights


def records(file: IO[bytes]) -> Iterator[bytes]:
    """The records of a TFRecord file: a length, its checksum, the data, its checksum (neither is looked at)."""
    while head := file.read(12):
        (length,) = struct.unpack("<Q", head[:8])
        record = file.read(length + 4)
        if len(record) != length + 4:
            raise ValueError("a TFRecord file ends within a record")
        yield record[:-4]


def numbers(example: bytes, name: bytes) -> npt.NDArray[Any]:
    """One feature of a serialised tf.Example: its packed list of floats, or of whole numbers."""
    for _, features in fields(example):
        for _, entry in fields(features):
            parts = dict(fields(entry))
            if parts[1] == name:
                ((kind, values),) = fields(parts[2])
                packed = b"".join(value for _, value in fields(values))
                return np.frombuffer(packed, "<f4") if kind == 2 else np.array(list(varints(packed)))
    raise ValueError(f"a record has no feature {name.decode()}")


def fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """The numbers and contents of a protocol buffer's fields; those of the two kinds that a tf.Example has."""
    at = 0
    while at < len(message):
        key, at = varint(message, at)
        if key & 7 == 2:  # with its length before it
            size, at = varint(message, at)
        elif key & 7 == 5:  # a single float
            size = 4
        else:
            raise ValueError("a record is not a tf.Example of numbers")
        yield key >> 3, message[at : at + size]
        at += size


def varints(packed: bytes) -> Iterator[int]:
    """Whole numbers, one after another."""
    at = 0
    while at < len(packed):
        number, at = varint(packed, at)
        yield number


def varint(data: bytes, at: int) -> tuple[int, int]:
    """The whole number that begins at a place, seven bits a byte, and where the next thing begins."""
    number = shift = 0
    while True:
        number |= (data[at] & 127) << shift
        shift, at = shift + 7, at + 1
        if data[at - 1] < 128:
            return number, at
