"""The levels of every task of the suite: measured, in order beyond noise, and documented."""

from itertools import pairwise
from pathlib import Path

import pytest

from mlagentbench.formatting import format_score
from mlagentbench.grading.verdict import compute_verdict
from mlagentbench.levels import SIGNIFICANCE_LEVEL, compute_progress
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
    task = Task.load(name)
    levels = task.edition("open").levels
    cells = [name, *(format_level(levels.solution(start)) for start in STARTS)]
    cells.append(format_score(levels.ceiling.score) if levels.ceiling else "none")
    cells.append(f"{compute_progress(levels.reference.mean, levels, task.config.scale):.0%}")
    ceiling = levels.ceiling and compute_progress(levels.ceiling.score, levels, task.config.scale)
    cells.append(f"{ceiling:.0%}" if ceiling else "-")
    section = GUIDE.partition("## Levels")[2].partition("\n## ")[0]
    row = next((line for line in section.splitlines() if line.startswith(f"| {name} |")), "no row")
    assert row.rpartition(" | ")[0] == "| " + " | ".join(cells)


def format_level(level):
    return f"{format_score(level.mean)} ± {format_score(level.sd)} (n = {level.n})"
