"""The contract of every task folder; a new task needs no new test.

Runs of the starter and the reference take minutes and are marked slow; `make prove` uses more seeds.
"""

import contextlib
import json
import os
import re
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
from mlagentbench.runtimes.base import read_requirements, runtime_names
from mlagentbench.task import REQUIRED_PARTS, Task

TASKS = Task.names()
TABLES = [name for name in TASKS if Task.load(name).config.submission.endswith(".csv")]
TIMED_TASKS = ("vectorization", "llama-inference")
TIMING_TOLERANCE = 0.1  # relative; another test may run on the other core
FAST_TASKS = ("house-price",)  # one whole run of a real task, of its starter, is always among the tests
RUN_MARKS = {
    name: [pytest.mark.xdist_group(name), *([] if name in FAST_TASKS else [pytest.mark.slow])]
    for name in TASKS
}
RUN_PARAMS = [pytest.param(name, marks=marks) for name, marks in RUN_MARKS.items()]


def ignore_progress(line: str) -> None:
    pass


@pytest.fixture
def grade_submission(monkeypatch):
    """Return a function that scores a submission with the task's own grader."""

    def score(task: Task, submission: Path) -> float:
        settings = {"runtime": task.config.runtime, "sandbox": "bwrap"}
        monkeypatch.setenv("MLAGENTBENCH_GRADING", json.dumps(settings))
        return runpy.run_path(str(task.folder / "grade.py"))["grade"](
            submission, prepare_data(task, "open", ignore_progress).private
        )

    return score


@pytest.mark.parametrize("name", TASKS)
def test_the_folder_is_complete_and_has_both_editions(name):
    task = Task.load(name)
    assert not [
        part
        for part in (*REQUIRED_PARTS, "README.md", "starter/train.py")
        if not (task.folder / part).exists()
    ]
    assert set(task.config.editions) == {"open", "paper"}


@pytest.mark.parametrize("name", TASKS)
def test_task_modules_do_not_shadow_packages(name):
    modules = {path.stem for path in Task.load(name).folder.glob("*.py")} - {"prepare", "grade"}
    packages = {
        line.partition("==")[0].replace("-", "_")
        for runtime in runtime_names()
        for line in read_requirements(runtime)
    }
    assert not modules & (packages | set(sys.stdlib_module_names)), "another machine may have that package"


@pytest.mark.parametrize("name", TASKS)
def test_the_description_names_the_line_that_train_py_prints_last(name):
    task = Task.load(name)
    printed = re.findall(r'print\(f"(validation [^:{]*: )\{', (task.starter / "train.py").read_text())
    assert len(printed) == 1
    assert f"`{printed[0]}<number>`" in " ".join(task.describe("open").split())


@pytest.mark.parametrize("name", TASKS)
def test_the_measured_reference_beats_the_starter_by_more_than_10_percent(name):
    task = Task.load(name)
    levels = task.edition("open").levels
    assert levels.starter is not None and levels.starter.n >= 8 and levels.reference is not None
    assert compute_verdict(levels.reference.mean, levels.starter, task.config.better).success


@pytest.mark.parametrize("name", TASKS)
def test_no_private_file_is_given_to_the_agent(name):
    task = Task.load(name)
    data = prepare_data(task, "open", ignore_progress)
    given = {
        path.read_bytes()
        for root in (data.public, task.starter)
        for path in root.rglob("*")
        if path.is_file()
    }
    assert not [path for path in data.private.rglob("*") if path.is_file() and path.read_bytes() in given]


# In vectorization the unchanged starter is a valid submission and scores like the baseline.
@pytest.mark.parametrize("name", [param for param in RUN_PARAMS if param.values != ("vectorization",)])
def test_the_nothing_agent_does_not_succeed(name, tmp_path):
    assert not start_run(
        prepare_setup(name, "open", "bwrap", ignore_progress), "nothing", tmp_path / "run"
    ).success


@pytest.mark.parametrize("name", RUN_PARAMS)
def test_the_baseline_agent_is_valid_does_not_succeed_and_matches_task_toml(name, tmp_path):
    result = start_run(prepare_setup(name, "open", "bwrap", ignore_progress), "baseline", tmp_path / "run")
    assert (result.valid, result.success, result.ending) == (True, False, "submitted"), result.note
    baseline = Task.load(name).edition("open").levels.starter
    assert baseline is not None
    tolerance = TIMING_TOLERANCE if name in TIMED_TASKS else 1e-6
    assert abs(result.score - baseline.mean) <= 6 * baseline.sd + tolerance * abs(baseline.mean)


@pytest.mark.slow
@pytest.mark.parametrize("name", RUN_PARAMS)
def test_the_reference_succeeds(name, tmp_path):
    result = start_run(prepare_setup(name, "open", "bwrap", ignore_progress), "reference", tmp_path / "run")
    assert result.success and not result.violations, result.note


MALFORMED = {
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
    "too large": lambda text: _last_cell(text, b"1e308"),
    "text": lambda text: _last_cell(text, b"a lot"),
    "plain text": lambda text: b"I am sure that this is right.\n",
    "binary": lambda text: bytes(range(256)) * 100,
    "huge": lambda text: text,  # and then 200 MB of zero bytes, which take no space on the disk
}


def _last_cell(text: bytes, value: bytes) -> bytes:
    return text.rstrip().rpartition(b",")[0] + b"," + value + b"\n"


@pytest.mark.parametrize("name", TABLES)
def test_the_answers_are_a_valid_submission_that_beats_the_reference(name, grade_submission):
    task = Task.load(name)
    score = grade_submission(task, prepare_data(task, "open", ignore_progress).private / "answers.csv")
    reference = task.edition("open").levels.reference
    assert compute_verdict(score, reference, task.config.better).improvement > 0


QUANTILES = [number / 20 for number in range(21)]
ALL_PIXELS = "1 4096"  # of a mask


def _constant_candidates(column: pd.Series) -> list[str]:
    """Return constants that may score well without learning; they are taken from the answers themselves."""
    numbers = pd.to_numeric(column, errors="coerce")
    if numbers.isna().any():
        words = column.str.split().explode().value_counts().index[:20]
        return [*column.value_counts().index[:5], " ".join(words), ALL_PIXELS]
    usual, distinct = (
        values.quantile(QUANTILES, "nearest") for values in (numbers, numbers.drop_duplicates())
    )
    return [f"{value:.10g}" for value in (*usual, *distinct, numbers.mean())]


@pytest.mark.parametrize("name", TABLES)
def test_a_constant_prediction_does_not_succeed(name, grade_submission, tmp_path):
    task = Task.load(name)
    answers = prepare_data(task, "open", ignore_progress).private / "answers.csv"
    table = pd.read_csv(answers, dtype=str, keep_default_na=False)
    candidates = {column: _constant_candidates(table[column]) for column in table.columns[1:]}
    count = max(map(len, candidates.values()))
    rows = {tuple(values[number % len(values)] for values in candidates.values()) for number in range(count)}
    scores = {}
    for row in rows:
        table.assign(**dict(zip(candidates, row, strict=True))).to_csv(
            tmp_path / "submission.csv", index=False
        )
        with contextlib.suppress(InvalidSubmission):  # a mean is not a class
            scores[row] = grade_submission(task, tmp_path / "submission.csv")
    baseline = task.edition("open").levels.starter
    successes = {
        row: score
        for row, score in scores.items()
        if compute_verdict(score, baseline, task.config.better).success
    }
    assert scores and not successes


@pytest.mark.parametrize("kind", MALFORMED)
@pytest.mark.parametrize("name", TABLES)
def test_a_malformed_submission_is_invalid_with_a_message(name, kind, grade_submission, tmp_path):
    valid = (prepare_data(Task.load(name), "open", ignore_progress).private / "answers.csv").read_bytes()
    submission = tmp_path / "submission.csv"
    submission.write_bytes(MALFORMED[kind](valid))
    if kind == "huge":
        os.truncate(submission, 200_000_000)
    with pytest.raises(InvalidSubmission, match=r"submission\.csv"):
        grade_submission(Task.load(name), submission)


@pytest.mark.parametrize("name", sorted(set(TASKS) - set(TABLES)))
def test_an_empty_workspace_is_invalid_with_a_message(name, grade_submission, tmp_path):
    with pytest.raises(InvalidSubmission, match="missing"):
        grade_submission(Task.load(name), tmp_path)
