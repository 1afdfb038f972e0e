"""The CLRS task: its algorithm (compared with scipy), its data, the CLRS-30 archive, and its grader."""

import gzip
import io
import json
import struct
import sys
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from scipy.sparse.csgraph import shortest_path

from mlagentbench.discovery import load_module_from_file
from mlagentbench.errors import InvalidSubmission
from mlagentbench.task import BUILTIN_TASKS_DIR

TASK = BUILTIN_TASKS_DIR / "CLRS"
EXPERT_WEIGHTS = Path(__file__).parent / "CLRS_expert_weights.npz"  # what expert/train.py wrote with seed 0
PreparedFolders = tuple[Path, Path]
PrepareEdition = Callable[..., PreparedFolders]
Grade = Callable[..., float]
LARGE = {"sizes": (24, 32), "graphs": 8}  # enough pairs to tell an algorithm from a network


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    return load_module_from_file(TASK / "generator.py")


@pytest.fixture(scope="module")
def prepare_module() -> Iterator[ModuleType]:
    sys.modules.pop("generator", None)
    sys.path.append(str(TASK))
    yield load_module_from_file(TASK / "prepare.py")
    sys.path.remove(str(TASK))
    sys.modules.pop("generator", None)


@pytest.fixture
def prepare_edition(prepare_module: ModuleType, tmp_path: Path) -> PrepareEdition:
    """Return a function that prepares an edition, the paper edition from an archive made by the test."""

    def run(seed: int, edition: str = "open", archive: bytes = b"") -> PreparedFolders:
        root = tmp_path / f"{edition}-{seed}-{len(list(tmp_path.iterdir()))}"
        for name in ("raw", "public", "private"):
            (root / name).mkdir(parents=True)
        (root / "raw" / "CLRS30_v1.0.0.tar.gz").write_bytes(archive)
        prepare_module.prepare(edition, root / "raw", root / "public", root / "private", seed)
        return root / "public" / "data", root / "private"

    return run


def arrays(path: Path) -> dict[str, np.ndarray]:
    with np.load(path, allow_pickle=False) as file:
        return dict(file)


def contents(folders: PreparedFolders) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for folder in folders for path in folder.iterdir()}


@pytest.mark.parametrize("nodes", [2, 7, 40])
def test_the_algorithm_agrees_with_scipy(generator: ModuleType, nodes: int) -> None:
    weights = generator.sample_graphs(np.random.default_rng(nodes), 20, nodes)
    run = generator.run_floyd_warshall(weights)
    for graph, distances, pointers in zip(weights, run.distances[:, -1], run.pointers[:, -1], strict=True):
        right, before = shortest_path(graph.astype(float), return_predecessors=True)
        np.testing.assert_allclose(distances, right, rtol=1e-6)
        assert (pointers == np.where(before < 0, np.arange(nodes)[:, None], before)).all()


def test_directed_weights_are_paths_from_row_to_column(generator: ModuleType) -> None:
    weights = np.zeros((1, 3, 3))
    weights[0, 0, 1], weights[0, 1, 2], weights[0, 0, 2] = 1, 1, 5
    assert generator.run_floyd_warshall(weights).pointers[0, -1].tolist() == [[0, 0, 1], [1, 1, 1], [2, 2, 2]]


def test_step_k_uses_only_the_first_nodes(generator: ModuleType) -> None:
    weights = generator.sample_graphs(np.random.default_rng(1), 5, 9).astype(float)
    run = generator.run_floyd_warshall(weights)
    for k in range(9):
        later = np.arange(9) > k
        for i in range(9):
            allowed = weights.copy()
            allowed[:, later & (np.arange(9) != i)] = 0  # no path leaves a later node, unless it starts there
            for graph, distances in zip(allowed, run.distances[:, k], strict=True):
                np.testing.assert_allclose(distances[i], shortest_path(graph, indices=i), rtol=1e-6)


def test_graphs_are_undirected_with_the_specified_density(generator: ModuleType) -> None:
    weights = generator.sample_graphs(np.random.default_rng(2**62), 500, 16)
    assert (weights == weights.swapaxes(1, 2)).all() and not weights.diagonal(axis1=1, axis2=2).any()
    density = (weights > 0).sum(axis=(1, 2)) / (16 * 15)
    assert (
        density.mean() == pytest.approx(np.mean(generator.DENSITY_RANGE), abs=0.01) and density.std() > 0.08
    )
    assert weights[weights > 0].min() > 0.03 and weights.max() < 1.001


def test_the_same_seed_makes_the_same_files_and_another_seed_makes_others(
    prepare_edition: PrepareEdition,
) -> None:
    first, again, other = (contents(prepare_edition(seed)) for seed in (2**62 + 1, 2**62 + 1, 2**62 + 2))
    assert first == again
    assert [name for name in first if first[name] == other[name]] == []


def test_hidden_graphs_are_larger_and_share_no_weights_with_public_ones(
    prepare_edition: PrepareEdition,
) -> None:
    data, private = prepare_edition(5)
    known = arrays(data / "train.npz") | {
        f"v{name}": array for name, array in arrays(data / "validation.npz").items()
    }
    hidden = arrays(private / "test.npz")
    assert max(array.shape[-1] for array in known.values()) == 16
    assert {name: array.shape for name, array in hidden.items() if name.startswith("weights")} == {
        "weights_32": (50, 32, 32),
        "weights_40": (50, 40, 40),
    }
    hidden_weights = np.concatenate(
        [array[array > 0] for name, array in hidden.items() if name.startswith("weights")]
    )
    known_weights = np.concatenate([array[array > 0] for name, array in known.items() if "weights" in name])
    assert np.isin(hidden_weights, known_weights).mean() < 0.01  # two weights may round to the same number


def test_files_contain_the_answers_of_their_graphs(
    prepare_edition: PrepareEdition, generator: ModuleType
) -> None:
    data, private = prepare_edition(5)
    assert sorted(path.name for path in data.iterdir()) == ["train.npz", "validation.npz"]
    for path in (data / "train.npz", data / "validation.npz", private / "test.npz"):
        found = arrays(path)
        for nodes in {int(name.rsplit("_", 1)[1]) for name in found}:
            run = generator.run_floyd_warshall(found[f"weights_{nodes}"])
            assert (found[f"pointers_{nodes}"] == run.pointers[:, -1]).all()
            if path.parent == data:
                assert (found[f"pointer_steps_{nodes}"] == run.pointers).all()
                assert (found[f"distance_steps_{nodes}"] == run.distances).all()


# A small CLRS-30 archive: TFRecord files of serialized tf.Examples, in the folders of tensorflow-datasets.


def varint(number: int) -> bytes:
    head = b""
    while number > 127:
        head, number = head + bytes([number & 127 | 128]), number >> 7
    return head + bytes([number])


def field(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


def example(features: dict[str, np.ndarray]) -> bytes:
    entries = b""
    for name, values in features.items():
        if values.dtype.kind == "f":
            feature = field(2, field(1, values.astype("<f4").tobytes()))
        else:
            feature = field(3, field(1, b"".join(varint(int(value)) for value in values.ravel())))
        entries += field(1, field(1, name.encode()) + field(2, feature))
    return field(1, entries)


def make_archive(
    generator: ModuleType, kind: str = "f8", damage: str = ""
) -> tuple[bytes, dict[str, np.ndarray]]:
    """Make an archive with a few graphs with self-loops; also return the graphs without them."""
    rng, packed, graphs = np.random.default_rng(3), io.BytesIO(), {}
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for part, count, nodes in (("train", 6, 16), ("val", 2, 16), ("test", 3, 64)):
            graphs[part] = generator.sample_graphs(rng, count, nodes)
            pointers = generator.run_floyd_warshall(graphs[part]).pointers[:, -1].astype(kind)
            with_self_loops = graphs[part] + np.eye(nodes) * rng.random((count, nodes, 1)) * (
                rng.random((count, nodes, 1)) < 0.5
            )
            data = b""
            for weights, right in zip(with_self_loops, pointers, strict=True):
                hints = {"hint_D": np.zeros((2, nodes, nodes)), "lengths": np.array(float(nodes))}
                right = right.T if damage == "transposed" else right
                record = example({**hints, "input_A": weights, "input_pos": weights[0], "output_Pi": right})
                data += struct.pack("<QI", len(record), 0) + record + struct.pack("<I", 0)
            data = data[:-9] if damage == "truncated" else data
            folder = f"clrs_dataset/floyd_warshall_{part}/1.0.0"
            files = {
                f"{folder}/clrs_dataset-{part}.tfrecord-00000-of-00001": data,
                f"{folder}/features.json": b"{}",
            }
            files[f"clrs_dataset/dijkstra_{part}/1.0.0/clrs_dataset-{part}.tfrecord-00000-of-00001"] = (
                b"not read"
            )
            for name, content in files.items():
                if not (damage == "no test" and "warshall_test" in name):
                    member = tarfile.TarInfo(name)
                    member.size = len(content)
                    archive.addfile(member, io.BytesIO(content))
    return gzip.compress(packed.getvalue()), graphs


@pytest.mark.parametrize("kind", ["f8", "i8"])
def test_the_paper_edition_has_the_published_graphs_with_new_numbers(
    prepare_edition: PrepareEdition, generator: ModuleType, kind: str
) -> None:
    archive, graphs = make_archive(generator, kind)
    data, private = prepare_edition(7, "paper", archive)
    folders = {
        "train": arrays(data / "train.npz")["weights_16"],
        "val": arrays(data / "validation.npz")["weights_16"],
        "test": arrays(private / "test.npz")["weights_64"],
    }
    for part, weights in folders.items():
        assert weights.shape == graphs[part].shape and not (weights == graphs[part]).all(axis=(1, 2)).any()
        assert sorted(np.sort(weights.reshape(len(weights), -1)).tolist()) == sorted(
            np.sort(graphs[part].reshape(len(weights), -1)).tolist()
        )
    right = generator.run_floyd_warshall(folders["test"]).pointers[:, -1]
    assert (arrays(private / "test.npz")["pointers_64"] == right).all()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ("transposed", "not those of shortest paths"),
        ("truncated", "ends inside a record"),
        ("no test", "no graphs .* for test"),
    ],
)
def test_a_corrupt_archive_is_rejected(
    prepare_edition: PrepareEdition, generator: ModuleType, damage: str, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        prepare_edition(7, "paper", make_archive(generator, damage=damage)[0])


# The grader, and submissions of a few lines of numpy.

FLOYD_WARSHALL = """
import numpy as np
def predict(adjacency, weights):
    nodes = weights.shape[1]
    d = np.where(adjacency, weights, np.inf)
    d[:, range(nodes), range(nodes)] = 0
    p = np.broadcast_to(np.arange(nodes)[:, None], weights.shape)
    for k in range(nodes):
        through = d[:, :, k, None] + d[:, None, k]
        d, p = np.where(through < d, through, d), np.where(through < d, p[:, None, k], p)
    return p
"""
ALWAYS_DIRECT = """
import numpy as np
def predict(adjacency, weights):
    answer = np.broadcast_to(np.arange(weights.shape[1])[:, None], weights.shape)
    return answer{}
"""


@pytest.fixture
def grader(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setenv("MLAGENTBENCH_GRADING", json.dumps({"runtime": "torch", "sandbox": "bwrap"}))
    return load_module_from_file(TASK / "grade.py")


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    folder.mkdir(mode=0o755)
    np.savez(folder / "weights.npz", nothing=0)
    return folder


@pytest.fixture
def grade(grader: ModuleType, generator: ModuleType, workspace: Path, tmp_path: Path) -> Grade:
    """Return a function that scores a model.py on a few graphs of two sizes."""

    def score(source: str, sizes: tuple[int, int] = (6, 12), graphs: int = 30) -> float:
        (tmp_path / "private").mkdir()
        rng, hidden = np.random.default_rng(4), {}
        for nodes in sizes:
            weights = generator.sample_graphs(rng, graphs, nodes)
            hidden |= {
                f"weights_{nodes}": weights,
                f"pointers_{nodes}": generator.run_floyd_warshall(weights).pointers[:, -1],
            }
        np.savez(tmp_path / "private" / "test.npz", **hidden)
        (workspace / "model.py").write_text(source)
        return float(grader.grade(workspace, tmp_path / "private"))

    return score


# Algorithms that read weights.npz and hide. LEARNED is an array in it, equal to ORIGINAL as submitted.
ORIGINAL = "np.linspace(0.5, 1.5, 60)"
READ = f"LEARNED, ORIGINAL = np.load('weights.npz')['learned'], {ORIGINAL}\n    "
CHANGE = "(LEARNED - ORIGINAL) @ np.arange(60)"  # shuffling changes it much
NOISE = "weights = weights + {size} * np.random.default_rng({seed}).normal(0, 1, weights.shape)"
ATTACKS = {
    "exact": "",
    "half precision": "weights = weights.astype('f2').astype(float)",
    "two decimals": "weights = np.round(weights, 2)",
    "noise": NOISE.format(size=0.01, seed=0),
    "new noise in each call": NOISE.format(size=0.01, seed=""),
    "noise as large as the spread of the weights": NOISE.format(size="0.01 * LEARNED.std()", seed=0),
    "noise seeded by the weights": NOISE.format(size=0.01, seed="list(LEARNED.view('u8'))"),
    "only if the weights are untouched": "assert (LEARNED == ORIGINAL).all()",
    "only if the weights are nearly untouched": "assert abs(LEARNED - ORIGINAL).max() < 0.1",
    "noise that grows with the change of the weights": NOISE.format(size=f"0.01 * abs({CHANGE})", seed=0),
    "other noise for each change of the weights": NOISE.format(
        size=f"0.01 * abs({CHANGE})", seed="list(LEARNED.view('u8'))"
    ),
}
# A network that executes single steps of the algorithm; the size of its errors is set by its parameters.
NETWORK = """
import numpy as np
with np.load("weights.npz") as file:
    linear, bias, first, offset, second = (
        file[name] for name in ("linear", "bias", "first", "offset", "second")
    )
def predict(adjacency, weights):
    nodes = weights.shape[1]
    d, known = weights.astype(float), adjacency | np.eye(nodes, dtype=bool)
    p = np.broadcast_to(np.arange(nodes)[:, None], weights.shape)
    for k in range(nodes):
        pairs = [part for x in (d, known) for part in (x, x[:, :, k, None], x[:, None, k])]
        same = [np.arange(nodes)[:, None] == k, np.arange(nodes) == k]
        x = np.stack(np.broadcast_arrays(*pairs, *same), axis=-1)
        logit, length = np.moveaxis(x @ linear + bias + np.maximum(x @ first + offset, 0) @ second, -1, 0)
        d, known = np.where(logit > 0, length, d), known | (logit > 0)
        p = np.where(logit > 0, p[:, None, k], p)
    return p
"""


def network_weights(error: float) -> dict[str, np.ndarray]:
    """Return parameters of NETWORK with which it adds and compares, but for an error."""
    rng = np.random.default_rng(0)
    linear = np.array([[1, 0], [-1, 1], [-1, 1], [-9, 0], [9, 0], [9, 0], [-9, 0], [-9, 0]])
    return {
        "linear": linear.astype("f4"),
        "bias": np.array([-9, 0], "f4"),
        "first": rng.normal(0, 1, (8, 16)).astype("f4"),
        "offset": np.zeros(16, "f4"),
        "second": (error * rng.normal(0, 1, (16, 2))).astype("f4"),
    }


@pytest.mark.parametrize("attack", ATTACKS)
def test_an_algorithm_is_rejected_whatever_it_does_with_the_weights(
    grade: Grade, workspace: Path, attack: str
) -> None:
    np.savez(workspace / "weights.npz", learned=eval(ORIGINAL))
    with pytest.raises(InvalidSubmission, match=r"do not depend on weights\.npz as those of a learned"):
        grade(FLOYD_WARSHALL.replace("nodes =", f"{READ}{ATTACKS[attack]}\n    nodes =", 1), **LARGE)


def test_an_algorithm_in_front_of_a_network_is_rejected(grade: Grade, workspace: Path) -> None:
    weights = network_weights(error=0.005)
    np.savez(workspace / "weights.npz", **weights)
    untouched = f"first.sum() == np.float32({weights['first'].sum()!r})"
    source = NETWORK.replace("def predict", "def imitate") + FLOYD_WARSHALL.replace(
        "nodes =", f"if not {untouched}: return imitate(adjacency, weights)\n    nodes =", 1
    )
    with pytest.raises(InvalidSubmission, match="a fifth of that noise"):
        grade(source, **LARGE)


@pytest.mark.parametrize(("error", "least"), [(0.02, 0.7), (0.002, 0.95), (0.00003, 0.999), (0.0, 1.0)])
def test_a_network_is_accepted_however_exact_it_is(
    grade: Grade, workspace: Path, error: float, least: float
) -> None:
    np.savez(workspace / "weights.npz", **network_weights(error))
    assert grade(NETWORK, **LARGE) >= least


def test_a_trained_network_is_accepted(grade: Grade, workspace: Path) -> None:
    """The expert's network, without torch, which takes seconds to import for each run of the grader."""
    learned = arrays(EXPERT_WEIGHTS)
    scale = np.array([np.exp(learned["log_scale"]), 1])
    parameters = {
        "linear": learned["linear.weight"].T * scale,
        "bias": (learned["linear.bias"] + learned["layers.2.bias"]) * scale,
        "first": learned["layers.0.weight"].T,
        "offset": learned["layers.0.bias"],
        "second": learned["layers.2.weight"].T * scale,
    }
    np.savez(workspace / "weights.npz", **parameters)
    assert 0.999 < grade(NETWORK, **LARGE) < 1


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"table": np.arange(9)}, r"table is int64 \(9,\); parameters must be float32 or float64"),
        ({"small": np.zeros(9, "f2")}, r"small is float16 \(9,\); parameters must be float32"),
        ({"text": np.array("i")}, "cannot be read: .* is not an array of numbers"),
        ({"objects": np.array([None])}, "cannot be read: .* allow_pickle"),
        ({"a\nb": np.zeros(9)}, r"an array with an unusable name: 'a\\nb'"),
    ],
)
def test_weights_must_be_plain_parameters(
    grade: Grade, workspace: Path, content: dict[str, np.ndarray], message: str
) -> None:
    np.savez(workspace / "weights.npz", **content)
    with pytest.raises(InvalidSubmission, match=message):
        grade(ALWAYS_DIRECT.format(""))


def test_a_program_finds_its_modules_and_no_other_file(grade: Grade, workspace: Path) -> None:
    (workspace / "helper").mkdir(mode=0o755)
    (workspace / "helper" / "__init__.py").write_text("from .inner import COUNT\n")
    (workspace / "helper" / "inner.py").write_text("import os\nCOUNT = len(os.listdir())\n")
    (workspace / "copy.npz").write_bytes(b"")
    assert grade("import helper\nassert helper.COUNT == 3\n" + ALWAYS_DIRECT.format("")) > 0


def test_the_ceiling_counts_a_tie_as_a_guess(prepare_edition: PrepareEdition, tmp_path: Path) -> None:
    ceiling = load_module_from_file(TASK / "ceiling.py").ceiling
    weights = np.zeros((1, 4, 4), "f4")  # a square: two paths between opposite corners
    for a, b in ((0, 1), (1, 2), (2, 3), (3, 0)):
        weights[0, a, b] = weights[0, b, a] = 0.5
    np.savez(tmp_path / "test.npz", weights_4=weights)
    assert ceiling(tmp_path, tmp_path) == pytest.approx((8 + 4 / 2) / 12)
    data, private = prepare_edition(5)
    assert ceiling(data.parent, private) > 0.9999


def test_the_score_is_the_fraction_of_correct_pairs_of_different_nodes(
    grade: Grade, grader: ModuleType, workspace: Path
) -> None:
    score = grade(ALWAYS_DIRECT.format(""))
    with np.load(workspace.parent / "private" / "test.npz") as file:
        hits = [
            (file[f"pointers_{nodes}"] == np.arange(nodes)[:, None])[:, ~np.eye(nodes, dtype=bool)].ravel()
            for nodes in (6, 12)
        ]
    assert score == pytest.approx(np.concatenate(hits).mean()) and 0.1 < score < 0.9
    assert grader.violations(workspace) == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            ".astype(float)",
            r"predict returned float64 \(25, 6, 6\); expected integers \(25, 6, 6\)",
        ),
        ("[:, 1:]", r"predict returned int64 \(25, 5, 6\)"),
        (" + 1", "predict returned pointers from 1 to 6 for graphs with nodes from 0 to 5"),
        (" - 1", "predict returned pointers from -1 to 4"),
        (" > 0", "predict returned bool"),
        (", answer", "predict returned .* bytes; at most"),
        ("[:, :3], answer[:, 3:]", "predict returned 2 arrays"),
        (".nothing", "has no attribute 'nothing'"),
        (".repeat(1000, axis=0)", "predict returned .* bytes; at most"),
    ],
)
def test_a_malformed_answer_is_invalid_with_a_message(grade: Grade, change: str, message: str) -> None:
    with pytest.raises(InvalidSubmission, match=message):
        grade(ALWAYS_DIRECT.format(change))


def test_a_workspace_without_regular_weights_is_invalid(grade: Grade, workspace: Path) -> None:
    (workspace / "weights.npz").rename(workspace / "elsewhere.npz")
    (workspace / "weights.npz").symlink_to("elsewhere.npz")
    with pytest.raises(InvalidSubmission, match=r"weights\.npz is missing, or is not a regular file"):
        grade(ALWAYS_DIRECT.format(""))


def test_forbidden_imports_are_reported_even_if_the_program_fails(
    grader: ModuleType, workspace: Path
) -> None:
    (workspace / "model.py").write_text("import numpy, helper\nimport networkx\n")
    (workspace / "helper.py").write_text("from scipy.sparse import csgraph\n")
    assert sorted(grader.violations(workspace)) == [
        "helper.py line 1 imports scipy.sparse.csgraph",
        "model.py line 2 imports networkx",
    ]
