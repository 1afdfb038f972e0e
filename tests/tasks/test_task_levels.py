"""The levels of every task of the suite: measured, in order beyond noise, and documented."""

import re
from itertools import pairwise
from pathlib import Path

import pytest

from mlagentbench.formatting import format_score
from mlagentbench.grading.verdict import compute_verdict
from mlagentbench.levels import SIGNIFICANCE_LEVEL
from mlagentbench.records import STARTS
from mlagentbench.task import Task

TASKS = Task.builtin_names()
GUIDE = (Path(__file__).parents[2] / "docs" / "guides" / "tasks.md").read_text()


@pytest.mark.parametrize("name", TASKS)
def test_every_level_is_better_than_the_one_below_beyond_noise(name):
    task = Task.load(name)
    levels = task.edition("open").levels
    for lower, higher in pairwise(STARTS):
        below, above = levels.solution(lower), levels.solution(higher)
        assert below is not None and above is not None and below.n >= 2, (lower, higher)
        verdict = compute_verdict(above.mean, below, task.config.better)
        assert verdict.improvement > 0 and verdict.p_value < SIGNIFICANCE_LEVEL, (lower, higher)


@pytest.mark.parametrize("name", TASKS)
def test_no_level_is_better_than_the_ceiling_and_only_speed_has_none(name):
    task = Task.load(name)
    levels = task.edition("open").levels
    assert (levels.ceiling is None) == (task.config.scale == "log")
    if levels.ceiling:
        assert compute_verdict(levels.ceiling.score, levels.expert, task.config.better).improvement >= 0


@pytest.mark.parametrize("name", TASKS)
def test_the_expert_has_the_form_of_the_reference(name):
    task = Task.load(name)
    files = {path.name for path in (task.starter, task.solution("expert")) for path in path.iterdir()}
    assert "train.py" in files


@pytest.mark.parametrize("name", TASKS)
def test_the_guide_shows_the_levels_of_task_toml(name):
    levels = Task.load(name).edition("open").levels
    row = re.search(rf"^\| {re.escape(name)} \| (.*) \|$", GUIDE.partition("## Levels")[2], re.MULTILINE)
    assert row, "no row in the section Levels"
    expected = [format_score(levels.solution(start).mean) for start in STARTS]
    expected.append(format_score(levels.ceiling.score) if levels.ceiling else "none")
    assert [cell.split(" ± ")[0].split(":")[0].strip() for cell in row[1].split(" | ")][:4] == expected
