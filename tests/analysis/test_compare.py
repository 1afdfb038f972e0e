"""Comparison of two agents."""

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

MakeRuns = Callable[..., list[Run]]
Cli = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def make_runs(tmp_path: Path) -> MakeRuns:
    """Runs of one agent on one task with these improvements."""

    def make_all(agent: str, task: str, *improvements: float | None, **changes: object) -> list[Run]:
        folder = tmp_path / "runs" / agent
        count = len(list(folder.glob("*")))
        return [
            make_run(folder / f"{count + n}", improvement, task=task, agent=agent, **changes)
            for n, improvement in enumerate(improvements)
        ]

    return make_all


def test_a_comparison_gives_the_better_agent_the_difference_the_interval_and_the_tasks(
    make_runs: MakeRuns,
) -> None:
    good = [
        run for task in ("one", "two", "three") for run in make_runs("good", task, 0.5, 0.4, 0.6, 0.55, 0.45)
    ]
    poor = [run for task in ("one", "two") for run in make_runs("poor", task, 0.0, 0.05, None, -0.1, 0.02)]
    poor += make_runs("poor", "three", 0.41, 0.5, 0.56, 0.46, 0.57)
    comparison = compare(good, poor)
    success, improved, improvement = comparison.measures
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
    assert {row.task: row.better for row in comparison.tasks} == {"one": "a", "two": "a", "three": ""}
    by_hand = stats.mannwhitneyu([0.5, 0.4, 0.6, 0.55, 0.45], [0.0, 0.05, -1, -0.1, 0.02]).pvalue
    assert comparison.tasks[0].p_value == pytest.approx(by_hand) and comparison.tasks[
        0
    ].adjusted == pytest.approx(3 * by_hand)
    assert comparison.left_out == () and comparison.warnings == ()
    other = compare(poor, good)
    assert {row.task: row.better for row in other.tasks} == {"one": "b", "two": "b", "three": ""}
    assert other.measures[0].difference == pytest.approx(-2 / 3)
    assert Comparison.model_validate_json(comparison.model_dump_json()) == comparison


def test_the_summary_sentence_names_a_better_agent_only_if_the_interval_excludes_zero(
    make_runs: MakeRuns,
) -> None:
    good = make_runs("good", "one", *[0.5] * 8) + make_runs("good", "two", *[0.5] * 8)
    poor = make_runs("poor", "one", *[0.0] * 8) + make_runs("poor", "two", *[0.0] * 8)
    fair = make_runs("fair", "one", *[0.5, 0.0] * 4) + make_runs("fair", "two", *[0.5, 0.0] * 4)
    near = make_runs("near", "one", *[0.5, 0.0] * 4) + make_runs("near", "two", *[0.0, 0.5] * 4)
    assert summarize_comparison(compare(good, poor)).startswith(
        "A (good) is better than B (poor): the difference in success (A minus B) is +100.0 percentage points"
    )
    assert summarize_comparison(compare(poor, good)).startswith(
        "B (good) is better than A (poor): the difference in success (A minus B) is -100.0 percentage points"
    )
    assert summarize_comparison(compare(fair, near)).startswith(
        "no significant difference between A (fair) and B (near):"
        " the difference in success (A minus B) is +0.0 percentage points"
    )


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"edition": "paper"}, "two: the edition differs"),
        ({"hashes": HASHES.replace(grader="b" * 64)}, "two: the grader differs"),
        ({"hashes": HASHES.replace(data="b" * 64), "baseline": None}, "two: the data and baseline differ"),
        ({"ending": "fault"}, "two: the second has no judged run (faults, unfinished, or no baseline)"),
        ({"task": "third"}, "two: only the first has runs"),
    ],
)
def test_what_is_not_comparable_is_left_out_and_listed(
    make_runs: MakeRuns, tmp_path: Path, changes: dict[str, object], words: str
) -> None:
    a = make_runs("a", "one", 0.5, 0.4) + make_runs("a", "two", 0.5, 0.4)
    b = make_runs("b", "one", 0.0, 0.1)
    b += [make_run(tmp_path / "runs" / "b" / "other", 0.3, **{"task": "two", "agent": "b", **changes})]
    comparison = compare(a, b)
    assert words in comparison.left_out and [row.task for row in comparison.tasks] == ["one"]
    assert "only one task: the result may not hold for other tasks" in comparison.warnings


def test_agents_without_common_settings_give_an_error_with_the_reason(make_runs: MakeRuns) -> None:
    with pytest.raises(
        UsageError, match="Nothing to compare: one: only the first has runs; two: only the second"
    ):
        compare(make_runs("a", "one", 0.5), make_runs("b", "two", 0.5))


def test_faults_are_excluded_and_reported(make_runs: MakeRuns) -> None:
    a, b = make_runs("a", "one", 0.5, 0.4), make_runs("b", "one", 0.0, 0.1)
    comparison = compare(a + make_runs("a", "one", None, ending="fault"), b)
    assert comparison.measures == compare(a, b).measures
    assert (
        "a on one: 1 of 3 runs ended in a fault or were never graded, and are excluded" in comparison.warnings
    )


def test_two_agents_of_one_batch_are_selected_by_name_and_a_folder_of_several_is_an_error(
    make_runs: MakeRuns, tmp_path: Path
) -> None:
    make_runs("a", "one", 0.5)
    make_runs("b", "one", 0.1)
    first, second, names = select_sides("b", "a", [tmp_path / "runs"])
    assert ({run.agent_label for run in first}, {run.agent_label for run in second}, names) == (
        {"b"},
        {"a"},
        ("b", "a"),
    )
    with pytest.raises(
        UsageError, match=r"has runs of 2 agents: a, b\. Name the two .* compare 'a' 'b' --in"
    ):
        select_sides(str(tmp_path / "runs"), str(tmp_path / "runs" / "a"), [])
    with pytest.raises(UsageError, match=r"No runs of agent 'c'\. Available: a, b"):
        select_sides("a", "c", [tmp_path / "runs"])


def test_the_name_of_an_agent_is_enough_if_it_is_unique(make_runs: MakeRuns, tmp_path: Path) -> None:
    make_runs("plain", "one", 0.5)
    make_runs("tuned", "one", 0.5, options={"rounds": 3})
    make_runs("asked", "one", 0.5, model="small")
    folder = [tmp_path / "runs"]
    assert [run.agent_label for run in select_sides("tuned", "plain", folder)[0]] == ["tuned (rounds 3)"]
    assert [run.agent_label for run in select_sides("asked", "plain", folder)[0]] == ["asked small"]
    make_runs("asked", "two", 0.5, model="large")
    with pytest.raises(
        UsageError, match=r"several agents 'asked'\. Name one: 'asked large', 'asked small'\."
    ):
        select_sides("asked", "plain", folder)


def test_the_same_agent_in_two_folders_is_labeled_by_folder(make_runs: MakeRuns, tmp_path: Path) -> None:
    before, after = tmp_path / "before", tmp_path / "after"
    for folder, improvement in ((before, 0.0), (after, 0.5)):
        make_run(folder / "run", improvement)
    assert select_sides(str(before), str(after), [])[2] == (f"played in {before}", f"played in {after}")


def test_the_command_prints_text_or_json(make_runs: MakeRuns, cli: Cli, tmp_path: Path) -> None:
    make_runs("a", "one", 0.5, 0.4)
    make_runs("b", "one", 0.0, 0.1)
    folders = (tmp_path / "runs" / "a", tmp_path / "runs" / "b")
    completed = cli("compare", *folders)
    assert (
        completed.returncode == 0
        and completed.stderr == ""
        and completed.stdout.startswith("A (a) is better than B (b): ")
    )
    assert "note: only one task" in completed.stdout
    comparison = Comparison.model_validate(json.loads(cli("compare", *folders, "--json").stdout))
    assert comparison.measures[0].difference == 1.0
    refused = cli("compare", tmp_path / "runs" / "a", tmp_path / "nowhere")
    assert refused.returncode == 2 and refused.stderr == f"mlagentbench: No such folder: {tmp_path}/nowhere\n"
