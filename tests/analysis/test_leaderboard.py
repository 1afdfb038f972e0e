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

Made = Callable[..., Run]
Cli = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def made(tmp_path: Path) -> Made:
    """Runs in folders of their own."""
    count = iter(range(1000))
    return lambda *args, **changes: make_run(tmp_path / "runs" / f"{next(count):03}", *args, **changes)


def test_entrants_are_ranked_by_success_over_tasks_and_share_a_rank_if_they_must(made: Made) -> None:
    runs = [made(0.5, agent=who, task=task) for who in ("best", "also best") for task in ("one", "two")]
    runs += [made(gain, agent="last", task=task) for task, gain in (("one", 0.5), ("two", 0.0))]
    found = build_leaderboard(runs)
    assert [(place.rank, place.agent) for place in found.places] == [
        (1, "also best"),
        (1, "best"),
        (3, "last"),
    ]
    assert found.tasks == ("one", "two") and found.edition == "open"
    assert found.places[0].ranks == (1, 0, 0) and (found.places[0].low, found.places[0].high) == (1, 1)
    # One run a task: the tasks drawn decide. Both are "one" in a quarter of all resamples, and then all share rank 1.
    assert found.places[2].ranks == pytest.approx((0.25, 0, 0.75), abs=0.02)
    assert (found.places[2].low, found.places[2].high) == (1, 3)


def test_without_doubt_there_is_no_span_of_ranks(made: Made) -> None:
    runs = [made(gain, agent=who) for who, gain in (("good", 0.5), ("poor", 0.0)) for _ in range(4)]
    assert [(place.agent, place.low, place.high) for place in build_leaderboard(runs).places] == [
        ("good", 1, 1),
        ("poor", 2, 2),
    ]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"edition": "paper", "task": "other"},
            "editions cannot be mixed, .* of open and paper: .* --without paper",
        ),
        (
            {"hashes": HASHES.replace(grader="b" * 64)},
            r"toy was graded against a different grader: grader aaaaaaaa .such as",
        ),
        (
            {"hashes": HASHES.replace(data="b" * 64)},
            "toy .* a different data: .* leave one out with --without bbbbbbbb",
        ),
        (
            {"baseline": BASELINE.replace(mean=11.0)},
            "toy .* a different baseline: .* leave one out with --without [0-9a-f]{8}",
        ),
    ],
)
def test_what_differs_by_hash_is_refused_with_a_way_out(
    made: Made, changes: dict[str, object], words: str
) -> None:
    runs = [made(0.3), made(0.3, agent="other", **changes)]
    with pytest.raises(UsageError, match=words) as caught:
        build_leaderboard(runs)
    assert "\n" not in str(caught.value)
    left = exclude_runs(runs, [str(caught.value).rpartition("--without ")[2]])
    assert [place.agent for place in build_leaderboard(left).places] == ["played"]


def test_a_baseline_measured_elsewhere_is_the_same_if_its_figures_are(made: Made) -> None:
    build_leaderboard([made(0.3), made(0.3, baseline=BASELINE.replace(hardware="elsewhere"))])


@pytest.mark.parametrize(
    ("name", "words"), [("abc", "too short"), ("feedbeef", "no run has"), ("open", "nothing is left")]
)
def test_leaving_out_what_is_not_there_or_all_there_is_is_a_mistake(
    made: Made, name: str, words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        exclude_runs([made(0.3)], [name])


def test_unfinished_runs_are_refused_unless_told_and_then_counted(made: Made) -> None:
    runs = [made(0.3), made(ending=None)]
    with pytest.raises(
        UsageError, match=r"1 of 2 runs are unfinished, such as .*001: finish them, or pass --unfinished"
    ):
        build_leaderboard(runs)
    (place,) = build_leaderboard(runs, skip_unfinished=True).places
    assert place.overall.success_rate.value == 1.0 and place.notes == (
        "1 of 2 runs are unfinished and count for nothing",
    )


def test_unsandboxed_runs_and_faults_are_marked(made: Made) -> None:
    (place,) = build_leaderboard([made(0.3, sandbox="none"), made(0.3), made(ending="fault")]).places
    assert place.notes == (
        "1 of 3 runs ended as a fault, or were never graded, and count for nothing",
        "1 of 3 runs were not sandboxed",
    )


def test_who_lacks_a_task_is_shown_without_a_rank(made: Made) -> None:
    runs = [made(0.0, agent="whole", task=task) for task in ("one", "two")]
    runs += [made(0.5, agent="half", task="one"), made(agent="half", task="two", ending="fault")]
    whole, half = build_leaderboard(runs).places
    assert (whole.agent, whole.rank, half.agent, half.rank) == ("whole", 1, "half", None)
    assert half.notes[0] == "no rank: nothing to judge on two"


def test_the_command_prints_for_people_for_papers_and_for_programs(
    made: Made, cli: Cli, tmp_path: Path
) -> None:
    made(0.5, agent="good", sandbox="none")
    made(0.0, agent="poor")
    said = cli("leaderboard", tmp_path / "runs")
    assert said.returncode == 0 and said.stderr == "" and "good *" in said.stdout
    assert "* good: 1 of 1 runs were not sandboxed" in said.stdout
    table = cli("leaderboard", tmp_path / "runs", "--markdown").stdout
    assert "| 1 | 1 | good \\* | 100.0 % (21 to 100) |" in table and "\n|---|" in table
    found = Leaderboard.model_validate(json.loads(cli("leaderboard", tmp_path / "runs", "--json").stdout))
    assert found == build_leaderboard(read_runs([tmp_path / "runs"]))
    made(0.0, edition="paper")
    wrong = cli("leaderboard", tmp_path / "runs")
    assert wrong.returncode == 2 and wrong.stdout == "" and wrong.stderr.count("\n") == 1


def test_a_run_that_is_handed_in_again_counts_once(
    made: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = made(0.5, trace="t" * 64)
    for again, told in (("copy", {"id": first.spec.id}), ("renamed", {"id": "another", "trace": "t" * 64})):
        place = tmp_path / "again" / again
        make_run(place, 0.5, **told)
        assert [run.folder.path for run in read_runs([tmp_path / "runs", place])] == [first.folder.path]
        assert capsys.readouterr().err == f"{place} is {first.folder.path} again: counted once\n"


def test_a_copy_that_was_made_while_the_run_went_on_does_not_hide_its_end(made: Made) -> None:
    made(ending=None, id="same")
    done = made(0.5, id="same")
    assert [run.name for run in read_runs([done.folder.path.parent])] == [done.name]


@pytest.mark.parametrize("told", [{"trace": "t" * 64, "seconds": 0.003}, {"trace": "", "seconds": 60.0}])
def test_short_runs_that_look_alike_are_two(made: Made, told: dict[str, object]) -> None:
    runs = [made(**told), made(**told)]
    assert len(read_runs([run.folder.path for run in runs])) == 2


def test_a_name_can_neither_end_a_cell_nor_be_markup() -> None:
    assert list(markdown_lines([{"entrant": "a|b<img>\n*"}]))[-1] == "| a\\|b\\<img\\> \\* |"
