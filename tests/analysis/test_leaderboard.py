"""Leaderboards: ranks, refusals, and runs that were passed twice."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from run_factory import BASELINE, HASHES, make_run

from mlagentbench.analysis.leaderboard import Leaderboard, build_leaderboard, exclude_runs
from mlagentbench.analysis.runs import Run, read_runs
from mlagentbench.errors import UsageError
from mlagentbench.terminal.comparisons import markdown_lines

MakeRun = Callable[..., Run]
Cli = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def make(tmp_path: Path) -> MakeRun:
    """Makes runs in separate folders."""
    count = iter(range(1000))
    return lambda *args, **changes: make_run(tmp_path / "runs" / f"{next(count):03}", *args, **changes)


def test_agents_are_ranked_by_success_over_tasks_and_share_a_rank_on_ties(make: MakeRun) -> None:
    runs = [make(0.5, agent=agent, task=task) for agent in ("best", "also best") for task in ("one", "two")]
    runs += [make(gain, agent="last", task=task) for task, gain in (("one", 0.5), ("two", 0.0))]
    board = build_leaderboard(runs)
    assert [(place.rank, place.agent) for place in board.places] == [
        (1, "also best"),
        (1, "best"),
        (3, "last"),
    ]
    assert board.tasks == ("one", "two") and board.edition == "open"
    assert board.places[0].ranks == (1, 0, 0) and (board.places[0].low, board.places[0].high) == (1, 1)
    # One run per task, so only the drawn tasks matter. In a quarter of resamples both are "one", and all tie.
    assert board.places[2].ranks == pytest.approx((0.25, 0, 0.75), abs=0.02)
    assert (board.places[2].low, board.places[2].high) == (1, 3)


def test_agents_without_overlap_have_a_single_possible_rank(make: MakeRun) -> None:
    runs = [make(gain, agent=agent) for agent, gain in (("good", 0.5), ("poor", 0.0)) for _ in range(4)]
    assert [(place.agent, place.low, place.high) for place in build_leaderboard(runs).places] == [
        ("good", 1, 1),
        ("poor", 2, 2),
    ]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"edition": "paper", "task": "other"},
            "Editions cannot be mixed, .* of open and paper. .* --exclude paper",
        ),
        (
            {"hashes": HASHES.replace(grader="b" * 64)},
            r"Runs of toy differ in grader: grader aaaaaaaa .such as",
        ),
        (
            {"hashes": HASHES.replace(data="b" * 64)},
            "toy differ in data: .* Leave one out with --exclude bbbbbbbb",
        ),
        (
            {"baseline": BASELINE.replace(mean=11.0)},
            "toy differ in baseline: .* Leave one out with --exclude [0-9a-f]{8}",
        ),
    ],
)
def test_runs_that_are_not_comparable_are_refused_with_an_option_that_helps(
    make: MakeRun, changes: dict[str, object], words: str
) -> None:
    runs = [make(0.3), make(0.3, agent="other", **changes)]
    with pytest.raises(UsageError, match=words) as caught:
        build_leaderboard(runs)
    assert "\n" not in str(caught.value)
    remaining = exclude_runs(runs, [str(caught.value).rpartition("--exclude ")[2]])
    assert [place.agent for place in build_leaderboard(remaining).places] == ["played"]


def test_a_baseline_measured_on_another_machine_is_the_same_if_its_values_are(make: MakeRun) -> None:
    build_leaderboard([make(0.3), make(0.3, baseline=BASELINE.replace(hardware="elsewhere"))])


@pytest.mark.parametrize(
    ("name", "words"), [("abc", "too short"), ("feedbeef", "no run has"), ("open", "No runs left")]
)
def test_excluding_unknown_names_or_all_runs_is_an_error(make: MakeRun, name: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        exclude_runs([make(0.3)], [name])


def test_unfinished_runs_are_refused_or_excluded_and_counted(make: MakeRun) -> None:
    runs = [make(0.3), make(ending=None)]
    message = r"1 of 2 runs are unfinished, such as .*001\. Finish them, or pass --skip-unfinished"
    with pytest.raises(UsageError, match=message):
        build_leaderboard(runs)
    (place,) = build_leaderboard(runs, skip_unfinished=True).places
    assert place.overall.success_rate.value == 1.0 and place.notes == (
        "1 of 2 runs are unfinished and are excluded",
    )


def test_unsandboxed_runs_and_faults_are_noted(make: MakeRun) -> None:
    (place,) = build_leaderboard([make(0.3, sandbox="none"), make(0.3), make(ending="fault")]).places
    assert place.notes == (
        "1 of 3 runs ended in a fault or were never graded, and are excluded",
        "1 of 3 runs were not sandboxed",
    )


def test_an_agent_without_judged_runs_on_a_task_has_no_rank(make: MakeRun) -> None:
    runs = [make(0.0, agent="complete", task=task) for task in ("one", "two")]
    runs += [make(0.5, agent="partial", task="one"), make(agent="partial", task="two", ending="fault")]
    complete, partial = build_leaderboard(runs).places
    assert (complete.agent, complete.rank, partial.agent, partial.rank) == ("complete", 1, "partial", None)
    assert partial.notes[0] == "no rank: no judged run on two"


def test_the_command_prints_a_table_markdown_or_json(make: MakeRun, cli: Cli, tmp_path: Path) -> None:
    make(0.5, agent="good", sandbox="none")
    make(0.0, agent="poor")
    completed = cli("leaderboard", tmp_path / "runs")
    assert completed.returncode == 0 and completed.stderr == "" and "good *" in completed.stdout
    assert "* good: 1 of 1 runs were not sandboxed" in completed.stdout
    table = cli("leaderboard", tmp_path / "runs", "--markdown").stdout
    assert "| 1 | 1 | good \\* | - | 100.0% (21 to 100) |" in table and "\n|---|" in table
    board = Leaderboard.model_validate(json.loads(cli("leaderboard", tmp_path / "runs", "--json").stdout))
    assert board == build_leaderboard(read_runs([tmp_path / "runs"]))
    make(0.0, edition="paper")
    refused = cli("leaderboard", tmp_path / "runs")
    assert refused.returncode == 2 and refused.stdout == "" and refused.stderr.count("\n") == 1


def test_a_copy_of_a_run_is_counted_once(
    make: MakeRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = make(0.5, trace="t" * 64)
    for name, changes in (("copy", {"id": first.spec.id}), ("renamed", {"id": "another", "trace": "t" * 64})):
        copy = tmp_path / "copies" / name
        make_run(copy, 0.5, **changes)
        assert [run.folder.path for run in read_runs([tmp_path / "runs", copy])] == [first.folder.path]
        assert capsys.readouterr().err == f"{copy} is a copy of {first.folder.path}; counted once\n"


def test_a_copy_made_while_the_run_was_in_progress_does_not_replace_the_finished_run(make: MakeRun) -> None:
    make(ending=None, id="same")
    done = make(0.5, id="same")
    assert [run.name for run in read_runs([done.folder.path.parent])] == [done.name]


@pytest.mark.parametrize("changes", [{"trace": "t" * 64, "seconds": 0.003}, {"trace": "", "seconds": 60.0}])
def test_short_runs_with_the_same_trace_are_different_runs(make: MakeRun, changes: dict[str, object]) -> None:
    runs = [make(**changes), make(**changes)]
    assert len(read_runs([run.folder.path for run in runs])) == 2


def test_names_are_escaped_in_markdown_tables() -> None:
    assert list(markdown_lines([{"agent": "a|b<img>\n*"}]))[-1] == "| a\\|b\\<img\\> \\* |"


def test_runs_of_different_tasks_are_never_the_same_run(make: MakeRun, tmp_path: Path) -> None:
    for task in ("one", "two"):
        make(0.5, task=task, id="shared", trace="t" * 64)
    assert [run.task for run in read_runs([tmp_path / "runs"])] == ["one", "two"]


@pytest.mark.parametrize("file", ["run.json", "result.json"])
def test_one_damaged_run_does_not_hide_the_others(make: MakeRun, tmp_path: Path, cli: Cli, file: str) -> None:
    runs = [make(0.5, agent=agent, trace=agent * 10) for agent in ("one", "two", "three")]
    damaged = runs[1].folder.path / file
    damaged.write_text("{")
    completed = cli("leaderboard", tmp_path / "runs", "--json")
    assert completed.returncode == 0, completed.stderr
    assert {place["agent"] for place in json.loads(completed.stdout)["places"]} == {"one", "three"}
    assert completed.stderr.startswith(f"Skipped a damaged run: {damaged} is damaged: ")
    refused = cli("leaderboard", runs[1].folder.path)
    assert refused.returncode == 2 and f"{damaged} is damaged" in refused.stderr
