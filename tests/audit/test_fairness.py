"""Properties of every task that no cheater breaks, but that a careless task would."""

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

TABLES = [name for name in Task.names() if Task.load(name).config.submission.endswith(".csv")]


def quiet(line):
    """Nobody listens."""


@pytest.fixture
def scene(tmp_path):
    """What is known of a task, without a run."""

    def of(name):
        task = Task.load(name)
        return AttackContext(Setup(task, "open", prepare_data(task, "open", quiet), None, None), tmp_path, ())

    return of


@pytest.mark.parametrize("name", TABLES)
def test_a_table_is_graded_the_same_every_time_and_knowing_nothing_is_no_success(
    name, scene, tmp_path, monkeypatch
):
    from mlagentbench.grading.verdict import compute_verdict

    monkeypatch.setenv("MLAGENTBENCH_GRADING", json.dumps({"runtime": "tabular", "sandbox": "bwrap"}))
    here = scene(name)
    submission = tmp_path / "submission.csv"
    submission.write_text(to_csv(here.clueless))
    task = here.setup.task
    scores = {
        runpy.run_path(str(task.folder / "grade.py"))["grade"](submission, here.setup.data.private)
        for _ in "ab"
    }
    assert len(scores) == 1
    baseline = task.edition("open").baseline
    assert baseline is not None and not compute_verdict(scores.pop(), baseline, task.config.better).success


@pytest.mark.parametrize("name", TABLES)
def test_a_hidden_table_is_large_enough_to_tell_two_agents_apart(name, scene):
    assert len(scene(name).answers) > 500


@pytest.mark.parametrize("name", TABLES)
def test_the_place_of_a_row_tells_nothing_of_its_answer(name, scene):
    import numpy as np

    header, *rows = scene(name).answers
    for column in range(1, len(header)):
        kinds = {
            value: number
            for number, value in enumerate(sorted({row[column] for row in rows}, key=cell_sort_key))
        }
        units: dict[str, list[int]] = {}  # rows of one patient or one family belong together
        for row in sorted(rows, key=lambda row: (len(row[0]), row[0])):
            units.setdefault(row[0].partition("_")[0], []).append(kinds[row[column]])
        means = np.array([np.mean(unit) for unit in units.values()])
        ranks = means.argsort().argsort() if len(kinds) > 30 else means
        apart = (ranks - ranks.mean()) / ranks.std()
        places = np.linspace(-1, 1, len(apart)) * np.sqrt(3)
        for what in (apart * places, apart[1:] * apart[:-1]):  # a trend, and likeness of neighbours
            assert abs(what.mean()) * np.sqrt(len(what)) < 4.5


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has a user to drop to")
@pytest.mark.parametrize("name", Task.names())
def test_the_user_that_commands_run_as_cannot_read_the_answers_even_if_the_cache_were_open(name):
    private = prepare_data(Task.load(name), "open", quiet).private
    assert private.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in private.rglob("*") if path.is_file()} == {0o600}
    user = str(choose_unprivileged_uid("a run"))
    # The folder itself is handed over, so that no closed folder above it is what refuses.
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
