"""Properties that every task must have, and that no attack checks."""

import json
import os
import runpy
import subprocess

import pytest

from mlagentbench.audit.context import AttackContext, cell_sort_key, to_csv
from mlagentbench.preparation.prepare import prepare_data
from mlagentbench.runner.setup import Setup
from mlagentbench.sandbox.selection import choose_unprivileged_uid
from mlagentbench.task import Task

TABLE_TASKS = [name for name in Task.names() if Task.load(name).config.submission.endswith(".csv")]


def ignore(line):
    """Discard a progress line."""


@pytest.fixture
def context_of(tmp_path):
    """context_of(task) is the attack context of a task, without a run."""

    def build(name):
        task = Task.load(name)
        return AttackContext(
            Setup(task, "open", prepare_data(task, "open", ignore), None, None), tmp_path, ()
        )

    return build


@pytest.mark.parametrize("name", TABLE_TASKS)
def test_grading_a_table_is_deterministic_and_a_constant_table_is_no_success(
    name, context_of, tmp_path, monkeypatch
):
    from mlagentbench.grading.verdict import compute_verdict

    monkeypatch.setenv("MLAGENTBENCH_GRADING", json.dumps({"runtime": "tabular", "sandbox": "bwrap"}))
    context = context_of(name)
    submission = tmp_path / "submission.csv"
    submission.write_text(to_csv(context.constant_table))
    task = context.setup.task
    scores = {
        runpy.run_path(str(task.folder / "grade.py"))["grade"](submission, context.setup.data.private)
        for _ in "ab"
    }
    assert len(scores) == 1
    baseline = task.edition("open").levels.starter
    assert baseline is not None and not compute_verdict(scores.pop(), baseline, task.config.better).success


@pytest.mark.parametrize("name", TABLE_TASKS)
def test_the_answers_are_large_enough_to_distinguish_two_agents(name, context_of):
    assert len(context_of(name).answers) > 500


@pytest.mark.parametrize("name", TABLE_TASKS)
def test_the_position_of_a_row_says_nothing_about_its_answer(name, context_of):
    import numpy as np

    header, *rows = context_of(name).answers
    for column in range(1, len(header)):
        ranks_by_value = {
            value: number
            for number, value in enumerate(sorted({row[column] for row in rows}, key=cell_sort_key))
        }
        units: dict[str, list[int]] = {}  # rows of one patient or family are not independent
        for row in sorted(rows, key=lambda row: (len(row[0]), row[0])):
            units.setdefault(row[0].partition("_")[0], []).append(ranks_by_value[row[column]])
        means = np.array([np.mean(unit) for unit in units.values()])
        ranks = means.argsort().argsort() if len(ranks_by_value) > 30 else means
        normalized = (ranks - ranks.mean()) / ranks.std()
        positions = np.linspace(-1, 1, len(normalized)) * np.sqrt(3)
        trend, autocorrelation = normalized * positions, normalized[1:] * normalized[:-1]
        for products in (trend, autocorrelation):
            assert abs(products.mean()) * np.sqrt(len(products)) < 4.5


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can switch to an unprivileged user")
@pytest.mark.parametrize("name", Task.names())
def test_the_unprivileged_user_cannot_read_the_answers_even_if_the_cache_were_readable(name):
    private = prepare_data(Task.load(name), "open", ignore).private
    assert private.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in private.rglob("*") if path.is_file()} == {0o600}
    user = str(choose_unprivileged_uid("a run"))
    # The folder is passed as a descriptor, so that its parents cannot be what denies access.
    descriptor = os.open(private, os.O_PATH)
    try:
        drop = [
            "setpriv",
            "--reuid",
            user,
            "--regid",
            user,
            "--clear-groups",
            "--",
            "ls",
            f"/proc/self/fd/{descriptor}/",
        ]
        done = subprocess.run(drop, pass_fds=[descriptor], capture_output=True, text=True, check=False)
    finally:
        os.close(descriptor)
    assert done.returncode != 0 and "Permission denied" in done.stderr
