"""A short soak: the long one is `make soak`."""

import json
import subprocess
import sys
from pathlib import Path
from random import Random

from benchmarks.soak.scripted_runs import BAD_REPLIES, draw_run
from benchmarks.soak.soak_report import SoakReport, read_report, write_report

ROOT = Path(__file__).parents[2]


def test_a_short_soak_goes_on_with_an_earlier_one_and_breaks_no_promise(tmp_path: Path) -> None:
    write_report(
        tmp_path / "soak.json", SoakReport(seed=36, rounds=1, runs={"plain": 7})
    )  # the round without blows is done
    command = [
        sys.executable,
        "-m",
        "benchmarks.soak",
        "--runs",
        "8",
        "--size",
        "3",
        "--out",
        str(tmp_path),
        "--json",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, timeout=240)
    assert done.returncode == 0, done.stderr
    tally = SoakReport.model_validate(json.loads(done.stdout))
    assert tally == read_report(tmp_path / "soak.json", seed=0) and (tally.seed, tally.rounds) == (36, 2)
    assert (
        tally.count == 7 + 3 + 2 + 2 + 1 and tally.runs["outside program"] == 1
    )  # a batch, two by themselves, one more
    assert tally.blows["batch"] and tally.steps > 15 and not tally.broken
    assert sorted(path.name for path in tmp_path.iterdir()) == ["home", "soak.json", "tmp"]


def test_the_same_seed_draws_the_same_runs() -> None:
    assert draw_run(Random(3), "one") == draw_run(Random(3), "one") != draw_run(Random(4), "one")
    drawn = [draw_run(Random(number), "one") for number in range(99)]
    assert {bad for part in drawn for replies in part.replies for bad in replies[:-1]} == set(BAD_REPLIES)


def test_accounts_add_up_and_growth_breaks_a_promise() -> None:
    one = SoakReport(
        seed=3, rounds=1, seconds=2.0, runs={"plain": 2}, blows={"batch": 1}, slopes=(0.1,), peak=90.0
    )
    other = SoakReport(
        rounds=1, seconds=1.0, runs={"plain": 1, "forks": 1}, slopes=(9.0, 9.0), peak=80.0, broken=("x",)
    )
    both = one.plus(other)
    assert (both.seed, both.rounds, both.count, both.runs["plain"], both.peak) == (3, 2, 4, 3, 90.0)
    assert one.verdict == () and both.verdict == ("x", "a batch grows by 6.03 MB in a hundred runs")
    assert "80 a minute" in both.table()
