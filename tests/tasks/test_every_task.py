"""Every task folder, held to the same contract: a new task needs no new test.

What takes minutes (the starter and the reference of every task) is marked slow: `make prove` does it with more seeds.
"""

import contextlib
import json
import runpy
import sys
from pathlib import Path

import pandas as pd
import pytest

from mlagentbench.errors import InvalidSubmission
from mlagentbench.grading.verdict import compute_verdict
from mlagentbench.preparation.prepare import prepare_data
from mlagentbench.runner.setup import prepare_setup
from mlagentbench.runner.start import start_run
from mlagentbench.runtimes.base import read_requirements
from mlagentbench.runtimes.base import runtime_names as runtimes
from mlagentbench.task import REQUIRED_PARTS, Task

TASKS = Task.names()
TABLES = [name for name in TASKS if Task.load(name).config.submission.endswith(".csv")]
TIMED, BESIDE = ("vectorization", "llama-inference"), 0.1  # where another test on the other core can be felt
QUICK = ("house-price", "vectorization")  # one of each kind is run whole every time
SLOW = {
    name: [pytest.mark.xdist_group(name), *([] if name in QUICK else [pytest.mark.slow])] for name in TASKS
}
RUNS = [pytest.param(name, marks=marks) for name, marks in SLOW.items()]


def quiet(line: str) -> None:
    pass


@pytest.fixture
def graded(monkeypatch):
    """The score of a submission, by the task's own grader."""

    def score(task: Task, submission: Path) -> float:
        settings = {"runtime": task.config.runtime, "sandbox": "bwrap"}
        monkeypatch.setenv("MLAGENTBENCH_GRADING", json.dumps(settings))
        return runpy.run_path(str(task.folder / "grade.py"))["grade"](
            submission, prepare_data(task, "open", quiet).private
        )

    return score


@pytest.mark.parametrize("name", TASKS)
def test_the_folder_is_whole_and_both_editions_are_there(name):
    task = Task.load(name)
    assert not [
        part
        for part in (*REQUIRED_PARTS, "README.md", "starter/train.py")
        if not (task.folder / part).exists()
    ]
    assert set(task.config.editions) == {"open", "paper"}


@pytest.mark.parametrize("name", TASKS)
def test_its_own_modules_are_not_called_as_a_package_is(name):
    own = {path.stem for path in Task.load(name).folder.glob("*.py")} - {"prepare", "grade"}
    packages = {
        line.partition("==")[0].replace("-", "_") for each in runtimes() for line in read_requirements(each)
    }
    assert not own & (packages | set(sys.stdlib_module_names)), "another machine may have that package"


@pytest.mark.parametrize("name", TASKS)
def test_what_was_measured_makes_the_task_winnable(name):
    task = Task.load(name)
    edition = task.edition("open")
    assert edition.baseline is not None and edition.baseline.n >= 8 and edition.reference is not None
    gain = (edition.reference - edition.baseline.mean) / edition.baseline.mean
    assert (gain if task.config.better == "higher" else -gain) > 0.10


@pytest.mark.parametrize("name", TASKS)
def test_nothing_private_is_in_what_the_agent_gets(name):
    task = Task.load(name)
    data = prepare_data(task, "open", quiet)
    given = {
        path.read_bytes()
        for root in (data.public, task.starter)
        for path in root.rglob("*")
        if path.is_file()
    }
    assert not [path for path in data.private.rglob("*") if path.is_file() and path.read_bytes() in given]


@pytest.mark.parametrize(
    "name", [each for each in RUNS if each.values != ("vectorization",)]
)  # it is its baseline
def test_the_nothing_agent_does_not_succeed(name, tmp_path):
    assert not start_run(prepare_setup(name, "open", "bwrap", quiet), "nothing", tmp_path / "run").success


@pytest.mark.parametrize("name", RUNS)
def test_the_baseline_agent_is_valid_does_not_succeed_and_scores_what_task_toml_says(name, tmp_path):
    result = start_run(prepare_setup(name, "open", "bwrap", quiet), "baseline", tmp_path / "run")
    assert (result.valid, result.success, result.ending) == (True, False, "submitted"), result.note
    known = Task.load(name).edition("open").baseline
    assert known is not None
    timed = name in TIMED
    assert abs(result.score - known.mean) <= 6 * known.sd + (BESIDE if timed else 1e-6) * abs(known.mean)


@pytest.mark.parametrize("name", RUNS)
def test_the_reference_succeeds(name, tmp_path):
    result = start_run(prepare_setup(name, "open", "bwrap", quiet), "reference", tmp_path / "run")
    assert result.success and not result.violations, result.note


JUNK = {
    "empty": lambda text: b"",
    "header only": lambda text: text.splitlines(keepends=True)[0],
    "short": lambda text: b"".join(text.splitlines(keepends=True)[:-1]),
    "long": lambda text: text + text.splitlines(keepends=True)[-1],
    "repeated ids": lambda text: b"".join(
        [*text.splitlines(keepends=True)[:-1], text.splitlines(keepends=True)[1]]
    ),
    "wrong columns": lambda text: b"a,b\n" + b"".join(text.splitlines(keepends=True)[1:]),
    "not a number": lambda text: _last_cell(text, b"nan"),
    "infinite": lambda text: _last_cell(text, b"inf"),
    "beyond all measure": lambda text: _last_cell(text, b"1e308"),
    "text": lambda text: _last_cell(text, b"a lot"),
    "prose": lambda text: b"I am sure that this is right.\n",
    "binary": lambda text: bytes(range(256)) * 100,
    "huge": lambda text: text + b"0" * 200_000_000,
}


def _last_cell(text: bytes, value: bytes) -> bytes:
    return text.rstrip().rpartition(b",")[0] + b"," + value + b"\n"


@pytest.mark.parametrize("name", TABLES)
def test_the_answers_themselves_are_a_valid_submission_and_the_best(name, graded):
    task = Task.load(name)
    score = graded(task, prepare_data(task, "open", quiet).private / "answers.csv")
    reference = task.edition("open").reference
    assert (score > reference) if task.config.better == "higher" else (score < reference)


SHARES = [number / 20 for number in range(21)]
ALL_PIXELS = "1 4096"  # of a mask


def _constants(column: pd.Series) -> list[str]:
    """What somebody who learns nothing may write into every cell; that it comes from the answers only helps him."""
    numbers = pd.to_numeric(column, errors="coerce")
    if numbers.isna().any():
        words = column.str.split().explode().value_counts().index[:20]
        return [*column.value_counts().index[:5], " ".join(words), ALL_PIXELS]
    usual, distinct = (each.quantile(SHARES, "nearest") for each in (numbers, numbers.drop_duplicates()))
    return [f"{value:.10g}" for value in (*usual, *distinct, numbers.mean())]


@pytest.mark.parametrize("name", TABLES)
def test_the_same_in_every_row_does_not_succeed(name, graded, tmp_path):
    task = Task.load(name)
    answers = prepare_data(task, "open", quiet).private / "answers.csv"
    table = pd.read_csv(answers, dtype=str, keep_default_na=False)
    known = {column: _constants(table[column]) for column in table.columns[1:]}
    most = max(map(len, known.values()))
    rows = {tuple(values[number % len(values)] for values in known.values()) for number in range(most)}
    scores = {}
    for row in rows:
        table.assign(**dict(zip(known, row, strict=True))).to_csv(tmp_path / "submission.csv", index=False)
        with contextlib.suppress(InvalidSubmission):  # a mean is no class
            scores[row] = graded(task, tmp_path / "submission.csv")
    baseline = task.edition("open").baseline
    won = {
        row: score
        for row, score in scores.items()
        if compute_verdict(score, baseline, task.config.better).success
    }
    assert scores and not won


@pytest.mark.parametrize("junk", JUNK)
@pytest.mark.parametrize("name", TABLES)
def test_junk_is_invalid_with_a_sentence(name, junk, graded, tmp_path):
    honest = (prepare_data(Task.load(name), "open", quiet).private / "answers.csv").read_bytes()
    submission = tmp_path / "submission.csv"
    submission.write_bytes(JUNK[junk](honest))
    with pytest.raises(InvalidSubmission, match=r"submission\.csv"):
        graded(Task.load(name), submission)


@pytest.mark.parametrize("name", sorted(set(TASKS) - set(TABLES)))
def test_an_empty_workspace_is_invalid_with_a_sentence(name, graded, tmp_path):
    with pytest.raises(InvalidSubmission, match="missing"):
        graded(Task.load(name), tmp_path)
