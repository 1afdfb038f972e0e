"""Progress of agents: areas under curves, steps to each level, and the ranking by it."""

import math
from pathlib import Path

import pytest
from run_factory import HASHES, make_run

from mlagentbench.analysis.anytime import StepGrade
from mlagentbench.analysis.compare import compare
from mlagentbench.analysis.leaderboard import build_leaderboard
from mlagentbench.analysis.metrics import summarize_runs
from mlagentbench.analysis.progress import measure_pace
from mlagentbench.analysis.runs import Run
from mlagentbench.records import Baseline, Ceiling, Levels, Limits

LEVELS = Levels(
    starter=Baseline(mean=10.0, sd=0.1, n=8),
    reference=Baseline(mean=4.0, sd=0.1, n=8),
    expert=Baseline(mean=2.0, sd=0.1, n=4),
    ceiling=Ceiling(score=1.0, how="for this test"),
)


def make_graded_run(path: Path, scores: list[float | None], **changes) -> Run:
    """A run whose workspace had these scores after steps 0, 1, 2, …; a step lasts one second."""
    final = None if scores[-1] is None else 1 - scores[-1] / 10
    run = make_run(path, final, ("",) * (len(scores) - 1), levels=LEVELS, **changes)
    for step, score in enumerate(scores):
        grade = StepGrade(step=step, score=score, key=f"{HASHES.grader}:{HASHES.data}:{step}")
        with (path / "grades.jsonl").open("a") as file:
            file.write(grade.model_dump_json() + "\n")
    return run


def test_an_early_solution_has_a_larger_area_than_a_late_one(tmp_path):
    limits = Limits(steps=7)
    early = measure_pace(make_graded_run(tmp_path / "early", [None, 2.0, 2.0, 2.0, 2.0], limits=limits))
    late = measure_pace(make_graded_run(tmp_path / "late", [None, None, None, None, 2.0], limits=limits))
    assert early and late
    assert early.over_steps == pytest.approx(1.0)
    assert late.over_steps == pytest.approx(math.log(8 / 4) / math.log(8))
    assert early.over_time > late.over_time


def test_the_first_step_at_each_level_is_found(tmp_path):
    pace = measure_pace(make_graded_run(tmp_path / "run", [None, 9.0, 4.0, 8.0, 1.9]))
    assert pace and pace.steps_to_level == {"reference": 2, "expert": 4, "ceiling": None}


def test_a_run_without_levels_or_graded_steps_has_no_pace(tmp_path):
    assert measure_pace(make_run(tmp_path / "a", 0.5)) is None
    assert measure_pace(make_run(tmp_path / "b", 0.5, levels=LEVELS)) is None


def test_progress_of_an_agent_counts_an_invalid_submission_as_none_at_all(tmp_path):
    runs = [make_graded_run(tmp_path / str(n), [None, score]) for n, score in enumerate((2.0, 6.0, None))]
    cell = summarize_runs(runs).overall[0]
    assert cell.progress.value == pytest.approx((1.0 + 0.5 + 0.0) / 3) and cell.progress.low is not None
    assert cell.levels_reached["reference"].model_dump() == {"reached": 1, "runs": 3, "median_step": 1.0}


def test_agents_are_ranked_and_compared_by_progress_where_levels_are_known(tmp_path):
    strong, weak = (
        [
            make_graded_run(tmp_path / f"{agent}{n}", [None, score + n / 10], agent=agent, seed=n)
            for n in range(3)
        ]
        for agent, score in (("strong", 2.0), ("weak", 5.0))
    )
    board = build_leaderboard([*weak, *strong])
    assert board.ranked_by == "progress"
    assert [(place.rank, place.agent) for place in board.places] == [(1, "strong"), (2, "weak")]
    assert all(place.overall.success_rate.value == 1.0 for place in board.places)
    first = compare(strong, weak).measures[0]
    assert (first.name, first.better) == ("progress", "a")


def test_without_levels_the_success_rate_decides(tmp_path):
    runs = [make_run(tmp_path / "old", 0.5), make_graded_run(tmp_path / "new", [2.0], agent="other")]
    assert build_leaderboard(runs).ranked_by == "success"
