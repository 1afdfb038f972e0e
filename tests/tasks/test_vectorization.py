"""The vectorization task: tricks gain nothing, and wrong or forbidden code is invalid."""

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from mlagentbench.discovery import load_module_from_file
from mlagentbench.errors import InvalidSubmission
from mlagentbench.grading import relative_timing
from mlagentbench.task import BUILTIN_TASKS_DIR

TASK = BUILTIN_TASKS_DIR / "vectorization"
NETWORK = {
    "images": [16, 2, 16, 15],
    "layers": [
        {"filters": 12, "kernel": [3, 3], "stride": 1, "padding": 1},
        {"filters": 8, "kernel": [5, 4], "stride": 2, "padding": 2},
    ],
}
TRICK_THRESHOLD = 0.2  # a short round is noisy; vectorized code scores far below, as a working trick would
Grade = Callable[..., float]


@pytest.fixture
def grader(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setenv("MLAGENTBENCH_GRADING", json.dumps({"runtime": "tabular", "sandbox": "bwrap"}))
    return load_module_from_file(TASK / "grade.py")


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    shutil.copytree(TASK / "starter", folder)
    folder.chmod(0o755)
    return folder


@pytest.fixture
def grade(grader: ModuleType, workspace: Path, tmp_path: Path) -> Grade:
    """Return a function that scores a conv.py on a small network; it can import the starter as `slow`."""

    def score(source: str | None = None, most: int = 1) -> float:
        private = tmp_path / "private"
        private.mkdir()
        (private / "plan.json").write_text(json.dumps({**NETWORK, "rounds": 1, "most": most}))
        if source is not None:
            (workspace / "conv.py").rename(workspace / "slow.py")
            (workspace / "conv.py").write_text(
                "import os, sys, time, threading\nimport numpy as np, slow\n" + source
            )
        return float(grader.grade(workspace, private))

    return score


def test_the_starter_scores_about_one(grade: Grade) -> None:
    assert TRICK_THRESHOLD < grade() < 1 / TRICK_THRESHOLD


@pytest.mark.parametrize("level", ["reference", "expert"])
def test_a_known_solution_is_much_faster_and_violates_no_rule(
    grade: Grade, grader: ModuleType, workspace: Path, level: str
) -> None:
    shutil.copytree(TASK / level, workspace, dirs_exist_ok=True)
    assert grade(most=12) < TRICK_THRESHOLD and grader.violations(workspace) == []


FORWARD = "def forward(images, parameters, layers):\n    "
SLOW = "slow.forward(images, parameters, layers)"
TRICKS = {
    "caches by inputs": f"""
known = {{}}
{FORWARD}key = images.tobytes() + parameters.tobytes()
    if key not in known:
        known[key] = {SLOW}
    return known[key]""",
    "caches by shape if the inputs agree": f"""
known = {{}}
{FORWARD}if images.shape in known and np.allclose(known[images.shape][0], images):
        return known[images.shape][1]
    known[images.shape] = images, {SLOW}
    return known[images.shape][1]""",
    "stores results in files for the next process": f"""
{FORWARD}output = {SLOW}
    for place in ("/workspace", "/tmp", "/dev/shm"):
        try:
            np.save(f"{{place}}/known.npy", output)
        except OSError:
            pass
    return output""",
    "patches its own clock": f"""
for name in ("time", "monotonic", "perf_counter", "process_time", "sleep"):
    setattr(time, name, lambda *_: 0.0)
{FORWARD}return {SLOW}""",
    "patches numpy and the driver": f"""
main = sys.modules["__main__"]
main.np.asarray = main.np.ascontiguousarray = lambda value, *_, **__: value
main.np.allclose = np.array_equal = lambda *_: True
main.REFUSED_AUDIT_EVENTS = ""
{FORWARD}return {SLOW}""",
    "returns an object that computes later": f"""
class Later:
    def __init__(self, *inputs):
        self.inputs = inputs
    def __array__(self, dtype=None, copy=None):
        return slow.forward(*self.inputs)
{FORWARD}return Later(images, parameters, layers)""",
    "burns CPU in background threads": f"""
def burn():
    while True:
        np.ones(10**6).sum()
for _ in range(4):
    threading.Thread(target=burn, daemon=True).start()
{FORWARD}return {SLOW}""",
    "prints its own score": f"""
print("score: 0.001", flush=True)
{FORWARD}print("validation seconds per image: 0.0001", flush=True)
    return {SLOW}""",
}


@pytest.mark.parametrize("trick", TRICKS)
def test_a_trick_gains_nothing(grade: Grade, trick: str) -> None:
    assert grade(TRICKS[trick]) > TRICK_THRESHOLD


@pytest.mark.parametrize(
    "form", ["np.repeat(output, 2, axis=3)[..., ::2].view(Mine)", "np.asfortranarray(output, '>f8')"]
)
def test_correct_values_count_in_any_memory_layout(grade: Grade, form: str) -> None:
    assert (
        grade(f"class Mine(np.ndarray): pass\n{FORWARD}output = {SLOW}\n    return {form}") > TRICK_THRESHOLD
    )


def test_a_module_named_numpy_in_the_workspace_is_not_imported(grade: Grade, workspace: Path) -> None:
    (workspace / "numpy.py").write_text("raise RuntimeError('not numpy')")
    assert grade() > TRICK_THRESHOLD


INVALID_SUBMISSIONS = {
    "slightly wrong": (f"{FORWARD}return {SLOW} + 1e-7", "wrong by up to 1e-07; at most 1e-08 is allowed"),
    "objects": (f"{FORWARD}return {SLOW}.astype(object)", "not an array of numbers"),
    "correct for the timed network only": (
        f"{FORWARD}return {SLOW} if images.shape[1:] == (2, 16, 15) else np.zeros(1)",
        "expected float64",
    ),
    "earlier answers": (
        f"seen = []\n{FORWARD}seen.append({SLOW})\n    return seen[len(seen) > 5 and 4 or -1]",
        "wrong by up to",
    ),
    "too slow": (f"{FORWARD}time.sleep(60)", "took too long"),
    "exits": (f"{FORWARD}os._exit(0)", "exited before it answered"),
    "work in another process": (f"{FORWARD}os.fork(); return {SLOW}", "os.fork is not allowed here"),
    "a library of the system": (
        "import ctypes\nctypes.CDLL('libm.so.6')",
        "ctypes.dlopen is not allowed here",
    ),
    "scipy": ("import scipy.signal", "No module named 'scipy.signal'"),
}


@pytest.mark.parametrize("case", INVALID_SUBMISSIONS)
def test_an_invalid_submission_gets_a_message(
    grade: Grade, case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if case == "too slow":
        monkeypatch.setattr(relative_timing, "GRACE_S", 0.5)
    source, message = INVALID_SUBMISSIONS[case]
    with pytest.raises(InvalidSubmission) as caught:
        grade(source)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        ([np.zeros((2, 3))], "wrong by up to 1; at most 1e-08 is allowed"),
        ([np.full((2, 3), np.nan)], "not finite"),
        ([np.full((2, 3), -np.inf)], "not finite"),
        ([np.full((2, 3), 1e308)], "wrong by up to 1e\\+308"),
        ([np.ones((2, 3), "f4")], "float32"),
        ([np.ones((2, 3), "i8")], "int64"),
        ([np.ones((2, 3), "?")], "bool"),
        ([np.ones((3, 2))], "expected float64"),
        ([np.ones((1, 3))], "expected float64"),
        ([np.ones(())], "expected float64"),
        ([np.ones((2, 3))] * 2, "returned 2 arrays"),
        ([], "returned 0 arrays"),
    ],
)
def test_only_the_expected_array_is_accepted(
    grader: ModuleType, answers: list[np.ndarray], message: str
) -> None:
    with pytest.raises(InvalidSubmission, match=message):
        grader._check_output(answers, np.ones((2, 3)))
    grader._check_output([np.ones((2, 3)) + 1e-9], np.ones((2, 3)))


def test_a_workspace_without_a_regular_conv_py_is_invalid(grade: Grade, workspace: Path) -> None:
    (workspace / "conv.py").unlink()
    (workspace / "conv.py").symlink_to(TASK / "reference" / "conv.py")
    with pytest.raises(InvalidSubmission, match=r"conv\.py is missing, or is not a regular file"):
        grade()


def test_a_failing_starter_is_a_fault_of_the_harness(
    grade: Grade, grader: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty").mkdir(mode=0o755)
    monkeypatch.setattr(grader, "STARTER", tmp_path / "empty")
    with pytest.raises(RuntimeError, match="the starter itself failed"):
        grade()


def test_forbidden_imports_are_reported(grader: ModuleType, workspace: Path) -> None:
    (workspace / "helper.py").write_text("import subprocess\n")
    (workspace / "conv.py").write_text(
        "import numpy, helper\nfrom scipy import signal\nimport importlib.util\n"
    )
    assert sorted(grader.violations(workspace)) == [
        "conv.py line 2 imports scipy.signal",
        "conv.py line 3 imports importlib.util",
        "helper.py line 1 imports subprocess",
    ]


@pytest.mark.parametrize("edition", ["open", "paper"])
def test_network_json_describes_the_timed_network(edition: str, tmp_path: Path) -> None:
    load_module_from_file(TASK / "prepare.py").prepare(edition, tmp_path, tmp_path, tmp_path, 0)
    plan = json.loads((tmp_path / "plan.json").read_text())
    network = json.loads((tmp_path / "network.json").read_text())
    assert network.items() <= plan.items()


def timed_network(grader: ModuleType) -> tuple[int, object]:
    """Return the number of images in a timed call of the open edition, and its network."""
    prepare = load_module_from_file(TASK / "prepare.py")
    layers = [grader.Layer(**layer) for layer in prepare.LAYERS]
    return prepare.IMAGES_PER_CALL["open"], grader.Network(tuple(prepare.IMAGE_SHAPE), layers)


def best_seconds(grader: ModuleType, folder: Path, source: str) -> float:
    """Return the shortest of twenty timed calls to a conv.py, without checking its answers."""
    folder.mkdir(mode=0o755)
    (folder / "conv.py").write_text(source)
    (images, network), rng = timed_network(grader), np.random.default_rng(0)
    seconds = []
    with grader.start_program(folder) as program:
        for _ in range(20):
            inputs = grader.draw_inputs(network, images, rng)
            seconds.append(program.ask(*inputs, timeout_s=60, max_bytes=1 << 20)[1])
    return min(seconds)


def test_communication_is_a_small_part_of_the_measured_time(grader: ModuleType, tmp_path: Path) -> None:
    instant = f"import numpy as np\n{FORWARD}return np.zeros((len(images), 10, 1, 1))\n"
    communication = best_seconds(grader, tmp_path / "instant", instant)
    expert = best_seconds(grader, tmp_path / "expert", (TASK / "expert" / "conv.py").read_text())
    assert communication < 0.15 * expert  # 0.016 on busy cores


def test_the_starters_time_is_proportional_to_the_number_of_images(grader: ModuleType) -> None:
    starter, rng = load_module_from_file(TASK / "starter" / "conv.py"), np.random.default_rng(0)
    network = grader.Network((2, 10, 10), [grader.Layer(4, (3, 3), 1, 1), grader.Layer(3, (2, 2), 2, 0)])
    seconds: dict[int, list[float]] = {1: [], 4: []}
    for _ in range(5):
        for images, times in seconds.items():
            inputs = grader.draw_inputs(network, images, rng)
            start = time.process_time()
            starter.forward(*inputs)
            times.append(time.process_time() - start)
    assert 2.8 < min(seconds[4]) / min(seconds[1]) < 5.6


def test_only_a_fast_submission_gets_many_images(grade: Grade, workspace: Path) -> None:
    shutil.copy(TASK / "reference" / "conv.py", workspace / "fast.py")
    guard = f"{FORWARD}assert len(images) < 16, 'many images'\n    return "
    with pytest.raises(InvalidSubmission, match="many images"):
        grade(f"import fast\n{guard}fast.forward(images, parameters, layers)")


def test_a_slow_submission_is_timed_with_one_image(grade: Grade) -> None:
    assert grade(f"{FORWARD}assert len(images) < 16\n    return {SLOW}") > TRICK_THRESHOLD


def test_every_small_network_has_outputs(grader: ModuleType) -> None:
    rng = np.random.default_rng(0)
    for number in range(200):
        network = grader._draw_small_network(rng, number)
        images, parameters, _ = grader.draw_inputs(network, 2, rng)
        assert grader._run_network(images, parameters, network).size
