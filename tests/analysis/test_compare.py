import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from run_factory import HASHES, make_run
from scipy import stats

from mlagentbench.analysis.compare import Comparison, compare, select_sides
from mlagentbench.analysis.runs import Run
from mlagentbench.errors import UsageError
from mlagentbench.terminal.comparisons import summarize_comparison

Many = Callable[..., list[Run]]
Cli = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def many(tmp_path: Path) -> Many:
    """Runs of one agent on one task with these improvements."""

    def make_all(agent: str, task: str, *improvements: float | None, **changes: object) -> list[Run]:
        place = tmp_path / "runs" / agent
        count = len(list(place.glob("*")))
        return [
            make_run(place / f"{count + n}", each, task=task, agent=agent, **changes)
            for n, each in enumerate(improvements)
        ]

    return make_all


def test_the_better_one_is_named_with_how_much_how_sure_and_where(many: Many) -> None:
    good = [run for task in ("one", "two", "three") for run in many("good", task, 0.5, 0.4, 0.6, 0.55, 0.45)]
    poor = [run for task in ("one", "two") for run in many("poor", task, 0.0, 0.05, None, -0.1, 0.02)]
    poor += many("poor", "three", 0.41, 0.5, 0.56, 0.46, 0.57)
    found = compare(good, poor)
    success, improved, improvement = found.measures
    assert (
        success.difference == pytest.approx(2 / 3)
        and success.tasks == 3
        and improved.difference == pytest.approx(2 / 3)
    )
    assert (success.a, success.b) == pytest.approx((1, 1 / 3)) and improvement.a == pytest.approx(0.5)
    assert (
        success.low is not None
        and success.low <= success.difference <= (success.high or 0)
        and success.chance > 0.9
    )
    assert {row.task: row.better for row in found.tasks} == {"one": "a", "two": "a", "three": ""}
    by_hand = stats.mannwhitneyu([0.5, 0.4, 0.6, 0.55, 0.45], [0.0, 0.05, -1, -0.1, 0.02]).pvalue
    assert found.tasks[0].p_value == pytest.approx(by_hand) and found.tasks[0].adjusted == pytest.approx(
        3 * by_hand
    )
    assert found.left_out == () and found.warnings == ()
    other = compare(poor, good)
    assert {row.task: row.better for row in other.tasks} == {"one": "b", "two": "b", "three": ""}
    assert other.measures[0].difference == pytest.approx(-2 / 3)
    assert Comparison.model_validate_json(found.model_dump_json()) == found


def test_the_sentence_says_no_more_than_the_interval_does(many: Many) -> None:
    good = many("good", "one", *[0.5] * 8) + many("good", "two", *[0.5] * 8)
    poor = many("poor", "one", *[0.0] * 8) + many("poor", "two", *[0.0] * 8)
    fair = many("fair", "one", *[0.5, 0.0] * 4) + many("fair", "two", *[0.5, 0.0] * 4)
    near = many("near", "one", *[0.5, 0.0] * 4) + many("near", "two", *[0.0, 0.5] * 4)
    assert summarize_comparison(compare(good, poor)).startswith(
        "A, good, is better than B, poor: A minus B is +100.0 points"
    )
    assert summarize_comparison(compare(poor, good)).startswith(
        "B, good, is better than A, poor: A minus B is -100.0 points"
    )
    assert summarize_comparison(compare(fair, near)).startswith(
        "A, fair, and B, near, cannot be told apart: A minus B is +0.0 points"
    )


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"edition": "paper"}, "two: the edition differs"),
        ({"hashes": HASHES.replace(grader="b" * 64)}, "two: the grader differs"),
        ({"hashes": HASHES.replace(data="b" * 64), "baseline": None}, "two: the data and baseline differ"),
        ({"ending": "fault"}, "two: no run of the second can be judged (faults, unfinished, or no baseline)"),
        ({"task": "third"}, "two: only the first has runs of it"),
    ],
)
def test_what_is_not_comparable_is_left_out_and_said(
    many: Many, tmp_path: Path, changes: dict[str, object], words: str
) -> None:
    a = many("a", "one", 0.5, 0.4) + many("a", "two", 0.5, 0.4)
    b = many("b", "one", 0.0, 0.1)
    b += [make_run(tmp_path / "runs" / "b" / "other", 0.3, **{"task": "two", "agent": "b", **changes})]
    found = compare(a, b)
    assert words in found.left_out and [row.task for row in found.tasks] == ["one"]
    assert "one task only: it says nothing of others" in found.warnings


def test_nothing_in_common_is_a_mistake_with_a_reason(many: Many) -> None:
    with pytest.raises(
        UsageError, match="nothing to compare: one: only the first has runs of it; two: only the second"
    ):
        compare(many("a", "one", 0.5), many("b", "two", 0.5))


def test_faults_count_for_nothing_and_are_told_of(many: Many) -> None:
    a, b = many("a", "one", 0.5, 0.4), many("b", "one", 0.0, 0.1)
    found = compare(a + many("a", "one", None, ending="fault"), b)
    assert found.measures == compare(a, b).measures
    assert (
        "a on one: 1 of 3 runs ended as a fault, or were never graded, and count for nothing"
        in found.warnings
    )


def test_two_entrants_of_one_batch_are_named_and_a_folder_of_several_is_a_mistake(
    many: Many, tmp_path: Path
) -> None:
    many("a", "one", 0.5)
    many("b", "one", 0.1)
    first, second, names = select_sides("b", "a", [tmp_path / "runs"])
    assert ({run.agent_label for run in first}, {run.agent_label for run in second}, names) == (
        {"b"},
        {"a"},
        ("b", "a"),
    )
    with pytest.raises(
        UsageError, match=r"has runs of 2 entrants: a, b; name the two .* compare 'a' 'b' --in"
    ):
        select_sides(str(tmp_path / "runs"), str(tmp_path / "runs" / "a"), [])
    with pytest.raises(UsageError, match="no run is of 'c'; there are: a, b"):
        select_sides("a", "c", [tmp_path / "runs"])


def test_one_entrant_in_two_folders_is_told_apart_by_the_folders(many: Many, tmp_path: Path) -> None:
    before, after = tmp_path / "before", tmp_path / "after"
    for place, improvement in ((before, 0.0), (after, 0.5)):
        make_run(place / "run", improvement)
    assert select_sides(str(before), str(after), [])[2] == (f"played in {before}", f"played in {after}")


def test_the_command_prints_for_people_and_for_programs(many: Many, cli: Cli, tmp_path: Path) -> None:
    many("a", "one", 0.5, 0.4)
    many("b", "one", 0.0, 0.1)
    folders = (tmp_path / "runs" / "a", tmp_path / "runs" / "b")
    said = cli("compare", *folders)
    assert (
        said.returncode == 0 and said.stderr == "" and said.stdout.startswith("A, a, is better than B, b: ")
    )
    assert "note: one task only" in said.stdout
    found = Comparison.model_validate(json.loads(cli("compare", *folders, "--json").stdout))
    assert found.measures[0].difference == 1.0
    wrong = cli("compare", tmp_path / "runs" / "a", tmp_path / "nowhere")
    assert wrong.returncode == 2 and wrong.stderr == f"mlagentbench: there is no folder {tmp_path}/nowhere\n"
