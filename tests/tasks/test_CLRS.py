"""The CLRS task: its algorithm against scipy's, its data, CLRS-30's archive, and a grader that asks submitted code."""

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
Made = tuple[Path, Path]
Make = Callable[..., Made]
Grade = Callable[..., float]


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    return load_module_from_file(TASK / "generator.py")


@pytest.fixture(scope="module")
def preparation() -> Iterator[ModuleType]:
    sys.modules.pop("generator", None)
    sys.path.append(str(TASK))
    yield load_module_from_file(TASK / "prepare.py")
    sys.path.remove(str(TASK))
    sys.modules.pop("generator", None)


@pytest.fixture
def make(preparation: ModuleType, tmp_path: Path) -> Make:
    """Prepares an edition; the paper edition from an archive that the test made."""

    def run(seed: int, edition: str = "open", archive: bytes = b"") -> Made:
        root = tmp_path / f"{edition}-{seed}-{len(list(tmp_path.iterdir()))}"
        for name in ("raw", "public", "private"):
            (root / name).mkdir(parents=True)
        (root / "raw" / "CLRS30_v1.0.0.tar.gz").write_bytes(archive)
        preparation.prepare(edition, root / "raw", root / "public", root / "private", seed)
        return root / "public" / "data", root / "private"

    return run


def arrays(path: Path) -> dict[str, np.ndarray]:
    with np.load(path, allow_pickle=False) as file:
        return dict(file)


def contents(made: Made) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for folder in made for path in folder.iterdir()}


@pytest.mark.parametrize("nodes", [2, 7, 40])
def test_the_algorithm_finds_what_scipy_finds(generator: ModuleType, nodes: int) -> None:
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


def test_step_k_knows_the_paths_over_the_first_nodes_only(generator: ModuleType) -> None:
    weights = generator.sample_graphs(np.random.default_rng(1), 5, 9).astype(float)
    run = generator.run_floyd_warshall(weights)
    for k in range(9):
        later = np.arange(9) > k
        for i in range(9):
            open_ways = weights.copy()
            open_ways[:, later & (np.arange(9) != i)] = (
                0  # nobody leaves a later node, but whoever begins there
            )
            for graph, distances in zip(open_ways, run.distances[:, k], strict=True):
                np.testing.assert_allclose(distances[i], shortest_path(graph, indices=i), rtol=1e-6)


def test_graphs_are_undirected_and_as_dense_as_told(generator: ModuleType) -> None:
    weights = generator.sample_graphs(np.random.default_rng(2**62), 500, 16)
    assert (weights == weights.swapaxes(1, 2)).all() and not weights.diagonal(axis1=1, axis2=2).any()
    density = (weights > 0).sum(axis=(1, 2)) / (16 * 15)
    assert density.mean() == pytest.approx(np.mean(generator.DENSITY_RANGE), abs=0.01) and density.std() > 0.08
    assert weights[weights > 0].min() > 0.03 and weights.max() < 1.001


def test_the_same_seed_makes_the_same_files_and_another_seed_makes_others(make: Make) -> None:
    first, again, other = (contents(make(seed)) for seed in (2**62 + 1, 2**62 + 1, 2**62 + 2))
    assert first == again
    assert [name for name in first if first[name] == other[name]] == []


def test_hidden_graphs_are_larger_and_share_no_weight_with_the_known_ones(make: Make) -> None:
    data, private = make(5)
    known = arrays(data / "train.npz") | {
        f"v{name}": array for name, array in arrays(data / "validation.npz").items()
    }
    hidden = arrays(private / "test.npz")
    assert max(array.shape[-1] for array in known.values()) == 16
    assert {name: array.shape for name, array in hidden.items() if name.startswith("weights")} == {
        "weights_32": (50, 32, 32),
        "weights_40": (50, 40, 40),
    }
    mine = np.concatenate([array[array > 0] for name, array in hidden.items() if name.startswith("weights")])
    yours = np.concatenate([array[array > 0] for name, array in known.items() if "weights" in name])
    assert np.isin(mine, yours).mean() < 0.01  # two of them may round to the same number


def test_files_hold_the_answers_of_their_own_graphs(make: Make, generator: ModuleType) -> None:
    data, private = make(5)
    assert sorted(path.name for path in data.iterdir()) == ["train.npz", "validation.npz"]
    for path in (data / "train.npz", data / "validation.npz", private / "test.npz"):
        found = arrays(path)
        for nodes in {int(name.rsplit("_", 1)[1]) for name in found}:
            run = generator.run_floyd_warshall(found[f"weights_{nodes}"])
            assert (found[f"pointers_{nodes}"] == run.pointers[:, -1]).all()
            if path.parent == data:
                assert (found[f"pointer_steps_{nodes}"] == run.pointers).all()
                assert (found[f"distance_steps_{nodes}"] == run.distances).all()


# The archive of CLRS-30, in small: TFRecord files of serialised tf.Examples, in the folders of tensorflow-datasets.


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


def published(
    generator: ModuleType, kind: str = "f8", damage: str = ""
) -> tuple[bytes, dict[str, np.ndarray]]:
    """An archive with few graphs, self-loops among their edges, and the graphs without them."""
    rng, packed, graphs = np.random.default_rng(3), io.BytesIO(), {}
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for part, count, nodes in (("train", 6, 16), ("val", 2, 16), ("test", 3, 64)):
            graphs[part] = generator.sample_graphs(rng, count, nodes)
            pointers = generator.run_floyd_warshall(graphs[part]).pointers[:, -1].astype(kind)
            looped = graphs[part] + np.eye(nodes) * rng.random((count, nodes, 1)) * (
                rng.random((count, nodes, 1)) < 0.5
            )
            data = b""
            for weights, right in zip(looped, pointers, strict=True):
                hints = {"hint_D": np.zeros((2, nodes, nodes)), "lengths": np.array(float(nodes))}
                right = right.T if damage == "turned" else right
                record = example({**hints, "input_A": weights, "input_pos": weights[0], "output_Pi": right})
                data += struct.pack("<QI", len(record), 0) + record + struct.pack("<I", 0)
            data = data[:-9] if damage == "cut" else data
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
    make: Make, generator: ModuleType, kind: str
) -> None:
    archive, graphs = published(generator, kind)
    data, private = make(7, "paper", archive)
    made = {
        "train": arrays(data / "train.npz")["weights_16"],
        "val": arrays(data / "validation.npz")["weights_16"],
        "test": arrays(private / "test.npz")["weights_64"],
    }
    for part, weights in made.items():
        assert weights.shape == graphs[part].shape and not (weights == graphs[part]).all(axis=(1, 2)).any()
        assert sorted(np.sort(weights.reshape(len(weights), -1)).tolist()) == sorted(
            np.sort(graphs[part].reshape(len(weights), -1)).tolist()
        )
    right = generator.run_floyd_warshall(made["test"]).pointers[:, -1]
    assert (arrays(private / "test.npz")["pointers_64"] == right).all()


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        ("turned", "not those of shortest paths"),
        ("cut", "ends inside a record"),
        ("no test", "no graphs .* for test"),
    ],
)
def test_an_archive_that_is_not_what_it_should_be_is_refused(
    make: Make, generator: ModuleType, damage: str, sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        make(7, "paper", published(generator, damage=damage)[0])


# The grader, and submissions that a few lines of numpy make.

ALGORITHM = """
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
DIRECT = """
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
    """The score of a model.py on a few graphs of two sizes."""

    def score(source: str) -> float:
        (tmp_path / "private").mkdir()
        rng, hidden = np.random.default_rng(4), {}
        for nodes in (6, 12):
            weights = generator.sample_graphs(rng, 30, nodes)
            hidden |= {
                f"weights_{nodes}": weights,
                f"pointers_{nodes}": generator.run_floyd_warshall(weights).pointers[:, -1],
            }
        np.savez(tmp_path / "private" / "test.npz", **hidden)
        (workspace / "model.py").write_text(source)
        return float(grader.grade(workspace, tmp_path / "private"))

    return score


EXACT = {
    "double": "weights = weights.astype(float)",
    "single": "",
    "half": "weights = weights.astype('f2').astype(float)",
    "three decimals": "weights = np.round(weights.astype(float), 3)",
    "not on 24 nodes": "assert weights.shape[1] != 24",
}


def test_right_pointers_score_one(grade: Grade) -> None:
    assert grade(ALGORITHM) == 1.0


@pytest.mark.parametrize("change", EXACT)
def test_an_algorithm_is_too_exact_to_be_learned_though_it_rounds(
    grader: ModuleType, make: Make, workspace: Path, change: str
) -> None:
    (workspace / "model.py").write_text(ALGORITHM.replace("nodes =", f"{EXACT[change]}\n    nodes =", 1))
    with pytest.raises(
        InvalidSubmission, match=r"correct where the second-best path is longer by .* as computed, not learned"
    ):
        grader.grade(workspace, make(5)[1])


def test_an_algorithm_that_errs_now_and_then_is_still_too_exact(
    grader: ModuleType, make: Make, workspace: Path
) -> None:
    erring = ALGORITHM.replace(
        "return p", "return np.where(np.random.default_rng().random(p.shape) < 0.05, 0, p)"
    )
    (workspace / "model.py").write_text(erring)
    with pytest.raises(InvalidSubmission, match="as computed, not learned"):
        grader.grade(workspace, make(5)[1])


def test_one_that_guesses_between_ways_that_are_nearly_as_short_may_have_learned(
    grader: ModuleType, make: Make, workspace: Path
) -> None:
    noise = "weights = weights + np.random.default_rng(0).normal(0, 0.01, weights.shape)\n    nodes ="
    (workspace / "model.py").write_text(ALGORITHM.replace("nodes =", noise, 1))
    assert 0.9 < grader.grade(workspace, make(5)[1]) < 0.97


def test_a_detour_is_what_the_second_best_last_node_costs(grader: ModuleType) -> None:
    weights = np.zeros((1, 4, 4))
    for a, b, weight in ((0, 1, 0.5), (1, 2, 0.5), (0, 2, 1.1)):
        weights[0, a, b] = weights[0, b, a] = weight
    detours = grader._near_tie_gaps(weights)[0]
    assert detours[0, 2] == pytest.approx(0.1) and detours[0, 1] == pytest.approx(1.0)
    assert np.isinf(detours[3, :3]).all() and np.isinf(detours[:3, 3]).all()


def test_the_score_is_the_share_of_right_pairs_of_two_nodes(
    grade: Grade, grader: ModuleType, workspace: Path
) -> None:
    score = grade(DIRECT.format(""))
    with np.load(workspace.parent / "private" / "test.npz") as file:
        hits = [
            (file[f"pointers_{nodes}"] == np.arange(nodes)[:, None])[:, ~np.eye(nodes, dtype=bool)].ravel()
            for nodes in (6, 12)
        ]
    assert score == pytest.approx(np.concatenate(hits).mean()) and 0.1 < score < 0.9
    assert grader.violations(workspace) == []


@pytest.mark.parametrize(
    ("change", "sentence"),
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
def test_an_answer_that_is_none_is_invalid_with_a_sentence(grade: Grade, change: str, sentence: str) -> None:
    with pytest.raises(InvalidSubmission, match=sentence):
        grade(DIRECT.format(change))


def test_a_workspace_without_what_was_learned_is_invalid(grade: Grade, workspace: Path) -> None:
    (workspace / "weights.npz").rename(workspace / "elsewhere.npz")
    (workspace / "weights.npz").symlink_to("elsewhere.npz")
    with pytest.raises(InvalidSubmission, match=r"weights\.npz is missing, or is not a regular file"):
        grade(DIRECT.format(""))


def test_imports_against_the_rules_are_reported_though_the_program_fails(
    grader: ModuleType, workspace: Path
) -> None:
    (workspace / "model.py").write_text("import numpy, helper\nimport networkx\n")
    (workspace / "helper.py").write_text("from scipy.sparse import csgraph\n")
    assert sorted(grader.violations(workspace)) == [
        "helper.py line 1 imports scipy.sparse.csgraph",
        "model.py line 2 imports networkx",
    ]
