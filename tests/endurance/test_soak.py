"""A short soak; the long one is `make soak`."""

import json
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from benchmarks.soak.scripted_runs import BAD_REPLIES, draw_run
from benchmarks.soak.soak_report import SoakReport, read_report, write_report

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_a_short_soak_continues_an_earlier_one_and_passes_all_checks(tmp_path: Path) -> None:
    # The first round, without faults, is done.
    write_report(tmp_path / "soak.json", SoakReport(seed=36, rounds=1, runs={"plain": 7}))
    options = ["--runs", "8", "--size", "3", "--out", str(tmp_path), "--json"]
    command = [sys.executable, "-m", "benchmarks.soak", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, timeout=240)
    assert done.returncode == 0, done.stderr
    report = SoakReport.model_validate(json.loads(done.stdout))
    assert report == read_report(tmp_path / "soak.json", seed=0) and (report.seed, report.rounds) == (36, 2)
    # A batch of three runs and two agents without a model, two single runs, and the cleanup.
    assert report.count == 7 + 3 + 2 + 2 + 1 and report.runs["outside program"] == 1
    assert report.injections["batch"] and report.steps > 15 and not report.failed_checks
    assert sorted(path.name for path in tmp_path.iterdir()) == ["home", "soak.json", "tmp"]


def test_the_same_seed_draws_the_same_runs() -> None:
    assert draw_run(Random(3), "one") == draw_run(Random(3), "one") != draw_run(Random(4), "one")
    drawn = [draw_run(Random(number), "one") for number in range(99)]
    assert {bad for run in drawn for replies in run.replies for bad in replies[:-1]} == set(BAD_REPLIES)


def test_reports_are_added_and_growth_is_a_failed_check() -> None:
    one = SoakReport(
        seed=3,
        rounds=1,
        seconds=2.0,
        runs={"plain": 2},
        injections={"batch": 1},
        memory_growth_mb=(0.1,),
        peak_mb=90.0,
    )
    other = SoakReport(
        rounds=1,
        seconds=1.0,
        runs={"plain": 1, "forks": 1},
        memory_growth_mb=(9.0, 9.0),
        peak_mb=80.0,
        failed_checks=("x",),
    )
    both = one.plus(other)
    assert (both.seed, both.rounds, both.count, both.runs["plain"], both.peak_mb) == (3, 2, 4, 3, 90.0)
    assert one.all_failed_checks == ()
    assert both.all_failed_checks == ("x", "a batch grows by 6.03 MB per hundred runs")
    assert "80 per minute" in both.table()
