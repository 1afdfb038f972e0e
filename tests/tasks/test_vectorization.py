"""The vectorization task: tricks gain nothing, and wrong or forbidden code is invalid."""

import json
import shutil
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
LAYERS = [
    {"images": [1, 3, 16, 16], "filters": [4, 3, 3, 3], "stride": 1, "padding": 1},
    {"images": [2, 2, 15, 12], "filters": [6, 2, 5, 4], "stride": 2, "padding": 2},
]
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
    """Return a function that scores a conv.py on two small layers; it can import the starter as `slow`."""

    def score(source: str | None = None, most: int = 1) -> float:
        private = tmp_path / "private"
        private.mkdir()
        (private / "plan.json").write_text(json.dumps({"layers": LAYERS, "rounds": 1, "most": most}))
        if source is not None:
            (workspace / "conv.py").rename(workspace / "slow.py")
            (workspace / "conv.py").write_text(
                "import os, sys, time, threading\nimport numpy as np, slow\n" + source
            )
        return float(grader.grade(workspace, private))

    return score


def test_the_starter_scores_about_one(grade: Grade) -> None:
    assert TRICK_THRESHOLD < grade() < 1 / TRICK_THRESHOLD


def test_the_reference_is_much_faster_and_violates_no_rule(
    grade: Grade, grader: ModuleType, workspace: Path
) -> None:
    shutil.copytree(TASK / "reference", workspace, dirs_exist_ok=True)
    assert grade(most=12) < TRICK_THRESHOLD and grader.violations(workspace) == []


FORWARD = "def forward(images, weights, bias, stride, padding):\n    "
SLOW = "slow.forward(images, weights, bias, stride, padding)"
TRICKS = {
    "caches by inputs": f"""
known = {{}}
{FORWARD}key = images.tobytes() + weights.tobytes()
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
{FORWARD}return Later(images, weights, bias, stride, padding)""",
    "burns CPU in background threads": f"""
def burn():
    while True:
        np.ones(10**6).sum()
for _ in range(4):
    threading.Thread(target=burn, daemon=True).start()
{FORWARD}return {SLOW}""",
    "prints its own score": f"""
print("score: 0.001", flush=True)
{FORWARD}print("validation seconds per forward pass: 0.0001", flush=True)
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
    "correct for the known layers only": (
        f"{FORWARD}return {SLOW} if images.shape in ((1, 3, 16, 16), (2, 2, 15, 12)) else np.zeros(1)",
        "expected float64",
    ),
    "earlier answers": (
        f"seen = []\n{FORWARD}seen.append({SLOW})\n    return seen[len(seen) > 5 and 4 or -1]",
        "are allowed",
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
def test_layers_json_lists_the_timed_layers(edition: str, tmp_path: Path) -> None:
    load_module_from_file(TASK / "prepare.py").prepare(edition, tmp_path, tmp_path, tmp_path, 0)
    plan = json.loads((tmp_path / "plan.json").read_text())
    assert json.loads((tmp_path / "layers.json").read_text()) == plan["layers"]
