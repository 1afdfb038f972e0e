"""The vectorization task against those who would rather not vectorise."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from mlagentbench.discovery import load_module_from_file
from mlagentbench.errors import InvalidSubmission
from mlagentbench.task import BUILTIN_TASKS_DIR

TASK = BUILTIN_TASKS_DIR / "vectorization"
LAYERS = [
    {"images": [1, 3, 16, 16], "filters": [4, 3, 3, 3], "stride": 1, "padding": 1},
    {"images": [2, 2, 15, 12], "filters": [6, 2, 5, 4], "stride": 2, "padding": 2},
]
NO_GAIN = 0.2  # one short round on a busy machine is not exact; what vectorises is below, and so would be a good trick
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
    """The score of a conv.py on two small layers, once unless in doubt; `slow` is the starter's module in it."""

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


def test_the_starter_is_as_fast_as_itself(grade: Grade) -> None:
    assert NO_GAIN < grade() < 1 / NO_GAIN


def test_the_reference_is_many_times_faster_and_breaks_no_rule(
    grade: Grade, grader: ModuleType, workspace: Path
) -> None:
    shutil.copytree(TASK / "reference", workspace, dirs_exist_ok=True)
    assert grade(most=12) < NO_GAIN and grader.violations(workspace) == []


FORWARD = "def forward(images, weights, bias, stride, padding):\n    "
SLOW = "slow.forward(images, weights, bias, stride, padding)"
FRUITLESS = {
    "remembers what it was asked": f"""
known = {{}}
{FORWARD}key = images.tobytes() + weights.tobytes()
    if key not in known:
        known[key] = {SLOW}
    return known[key]""",
    "remembers by the shape only when that is right": f"""
known = {{}}
{FORWARD}if images.shape in known and np.allclose(known[images.shape][0], images):
        return known[images.shape][1]
    known[images.shape] = images, {SLOW}
    return known[images.shape][1]""",
    "keeps results in files for the next process": f"""
{FORWARD}output = {SLOW}
    for place in ("/workspace", "/tmp", "/dev/shm"):
        try:
            np.save(f"{{place}}/known.npy", output)
        except OSError:
            pass
    return output""",
    "stops its own clock": f"""
for name in ("time", "monotonic", "perf_counter", "process_time", "sleep"):
    setattr(time, name, lambda *_: 0.0)
{FORWARD}return {SLOW}""",
    "patches numpy and the driver": f"""
main = sys.modules["__main__"]
main.np.asarray = main.np.ascontiguousarray = lambda value, *_, **__: value
main.np.allclose = np.array_equal = lambda *_: True
main.REFUSED = ""
{FORWARD}return {SLOW}""",
    "returns at once what will compute later": f"""
class Later:
    def __init__(self, *inputs):
        self.inputs = inputs
    def __array__(self, dtype=None, copy=None):
        return slow.forward(*self.inputs)
{FORWARD}return Later(images, weights, bias, stride, padding)""",
    "slows down whoever runs beside it": f"""
def burn():
    while True:
        np.ones(10**6).sum()
for _ in range(4):
    threading.Thread(target=burn, daemon=True).start()
{FORWARD}return {SLOW}""",
    "writes its own score": f"""
print("score: 0.001", flush=True)
{FORWARD}print("validation seconds per forward pass: 0.0001", flush=True)
    return {SLOW}""",
}


@pytest.mark.parametrize("trick", FRUITLESS)
def test_a_trick_gains_nothing(grade: Grade, trick: str) -> None:
    assert grade(FRUITLESS[trick]) > NO_GAIN


@pytest.mark.parametrize(
    "form", ["np.repeat(output, 2, axis=3)[..., ::2].view(Mine)", "np.asfortranarray(output, '>f8')"]
)
def test_the_right_values_count_in_whatever_form_they_come(grade: Grade, form: str) -> None:
    assert grade(f"class Mine(np.ndarray): pass\n{FORWARD}output = {SLOW}\n    return {form}") > NO_GAIN


def test_a_numpy_of_ones_own_reaches_nobody(grade: Grade, workspace: Path) -> None:
    (workspace / "numpy.py").write_text("raise RuntimeError('not numpy')")
    assert grade() > NO_GAIN


WRONG = {
    "slightly wrong": (f"{FORWARD}return {SLOW} + 1e-7", "wrong by up to 1e-07; at most 1e-08 is allowed"),
    "objects": (f"{FORWARD}return {SLOW}.astype(object)", "not an array of numbers"),
    "right for the known layers only": (
        f"{FORWARD}return {SLOW} if images.shape in ((1, 3, 16, 16), (2, 2, 15, 12)) else np.zeros(1)",
        "expected float64",
    ),
    "answers of before": (
        f"seen = []\n{FORWARD}seen.append({SLOW})\n    return seen[len(seen) > 5 and 4 or -1]",
        "are allowed",
    ),
    "too slow": (f"{FORWARD}time.sleep(60)", "took too long"),
    "the end": (f"{FORWARD}os._exit(0)", "exited before it answered"),
    "work in another process": (f"{FORWARD}os.fork(); return {SLOW}", "os.fork is not allowed here"),
    "a library of the system": (
        "import ctypes\nctypes.CDLL('libm.so.6')",
        "ctypes.dlopen is not allowed here",
    ),
    "scipy": ("import scipy.signal", "No module named 'scipy.signal'"),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_is_invalid_with_a_sentence(grade: Grade, what: str) -> None:
    source, sentence = WRONG[what]
    with pytest.raises(InvalidSubmission) as caught:
        grade(source)
    assert sentence in str(caught.value)


@pytest.mark.parametrize(
    ("answers", "sentence"),
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
def test_only_the_right_array_is_right(grader: ModuleType, answers: list[np.ndarray], sentence: str) -> None:
    with pytest.raises(InvalidSubmission, match=sentence):
        grader._check_output(answers, np.ones((2, 3)))
    grader._check_output([np.ones((2, 3)) + 1e-9], np.ones((2, 3)))


def test_a_workspace_without_a_plain_conv_py_is_invalid(grade: Grade, workspace: Path) -> None:
    (workspace / "conv.py").unlink()
    (workspace / "conv.py").symlink_to(TASK / "reference" / "conv.py")
    with pytest.raises(InvalidSubmission, match=r"conv\.py is missing, or is not a regular file"):
        grade()


def test_a_starter_that_fails_is_our_fault(
    grade: Grade, grader: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty").mkdir(mode=0o755)
    monkeypatch.setattr(grader, "STARTER", tmp_path / "empty")
    with pytest.raises(RuntimeError, match="the starter itself failed"):
        grade()


def test_imports_against_the_rules_are_reported(grader: ModuleType, workspace: Path) -> None:
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
def test_the_agent_is_told_the_layers_that_are_timed(edition: str, tmp_path: Path) -> None:
    load_module_from_file(TASK / "prepare.py").prepare(edition, tmp_path, tmp_path, tmp_path, 0)
    plan = json.loads((tmp_path / "plan.json").read_text())
    assert json.loads((tmp_path / "layers.json").read_text()) == plan["layers"]
