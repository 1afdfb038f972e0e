from collections.abc import Callable, Iterator
from pathlib import Path
from time import perf_counter

import pytest
from run_factory import BASELINE, HASHES, MACHINE, make_run

from mlagentbench.analysis import paper
from mlagentbench.analysis.metrics import Cell, Summary, summarize_runs
from mlagentbench.analysis.runs import Run
from mlagentbench.analysis.validation import compute_validation_gap, find_last_validation_score
from mlagentbench.records import Baseline

Made = Callable[..., Run]


@pytest.fixture
def made(tmp_path: Path) -> Made:
    """Runs in folders of their own."""
    count = iter(range(10_000))
    return lambda *args, **changes: make_run(tmp_path / str(next(count)), *args, **changes)


def only(summary: Summary) -> Cell:
    (cell,) = summary.cells
    return cell


def test_the_figures_of_one_cell_are_as_by_hand(made: Made) -> None:
    runs = [made(improvement, tokens=1000, dollars=0.5) for improvement in (0.3, 0.2, 0.05, -0.15, None)]
    cell = only(summarize_runs(runs))
    assert (cell.runs, cell.counted, cell.valid, cell.improved, cell.success) == (5, 5, 4, 2, 2)
    assert cell.improved_rate.value == cell.success_rate.value == pytest.approx(0.4)
    assert (cell.success_rate.low, cell.success_rate.high) == pytest.approx((0.11762, 0.76928), abs=1e-5)
    assert cell.valid_rate.value == pytest.approx(0.8) and cell.valid_rate.n == 5
    assert cell.improvement.value == pytest.approx(0.1) and cell.improvement.n == 4
    assert cell.best == pytest.approx(0.3) and cell.score.value == pytest.approx(9.0)
    assert cell.best_of == pytest.approx(
        {1: 0.1, 2: (0.3 * 3 + 0.2 * 2 + 0.05) / 6, 3: (0.3 * 3 + 0.2) / 4, 4: 0.3}
    )
    assert cell.pass_at_k == pytest.approx({1: 0.4, 2: 0.7, 3: 0.9, 4: 1, 5: 1})
    assert cell.per_run and (cell.per_run.seconds, cell.per_run.tokens, cell.per_run.dollars) == (
        60,
        1000,
        0.5,
    )
    assert cell.per_success and cell.per_success.seconds == 150 and cell.per_success.dollars == 1.25


def test_the_two_rules_of_success_are_told_apart(made: Made) -> None:
    noisy = Baseline(mean=10.0, sd=5.0, n=8)
    runs = [made(0.2, baseline=noisy), made(0.2, baseline=noisy)]
    assert runs[0].result and runs[0].result.p_value == pytest.approx(0.36, abs=0.005)
    cell = only(summarize_runs(runs))
    assert (
        (cell.improved, cell.success) == (2, 0)
        and cell.pass_at_k == {1: 0, 2: 0}
        and cell.per_success is None
    )


def test_faults_and_unfinished_runs_are_in_no_rate_and_always_told_of(made: Made) -> None:
    counted = [made(0.3), made(0.0)]
    apart = [made(ending="fault", tokens=10**6), made(ending="fault"), made(ending=None)]
    cell, bare = only(found := summarize_runs([*counted, *apart])), only(summarize_runs(counted))
    assert (cell.runs, cell.counted, cell.faults, cell.unfinished) == (5, 2, 2, 1)
    told = {"runs": 5, "faults": 2, "unfinished": 1}
    assert cell == bare.replace(**told) and found.overall[0] == summarize_runs(counted).overall[0].replace(
        **told
    )
    assert found.warnings == (
        "played: 2 of 5 runs ended as a fault, or were never graded, and count for nothing",
        "played: 1 of 5 runs are unfinished and count for nothing",
    )


def test_a_cell_of_faults_alone_has_no_figures(made: Made) -> None:
    found = summarize_runs([made(ending="fault")])
    assert only(found).success_rate.value is None and only(found).per_run is None
    assert found.overall[0].success_rate.value is None and found.overall[0].improvement.n == 0


def test_unsandboxed_runs_and_broken_rules_are_marked(made: Made) -> None:
    found = summarize_runs([made(0.3, sandbox="none"), made(0.3, violations=("more epochs than allowed",))])
    assert (only(found).unsandboxed, only(found).violations) == (1, 1)
    assert found.warnings == (
        "played: 1 of 2 runs were not sandboxed",
        "played: 1 of 2 runs broke a rule of their task",
    )


def test_without_a_baseline_scores_are_shown_and_nothing_is_judged(made: Made) -> None:
    found = summarize_runs(
        [made(0.3, baseline=None, kind="public"), made(None, baseline=None, kind="public")]
    )
    cell = only(found)
    assert (cell.counted, cell.judged, cell.valid) == (2, 0, 1) and cell.success_rate.value is None
    assert cell.valid_rate.value == 0.5 and cell.score.n == 1 and found.overall[0].improvement.value is None
    assert found.warnings == ("toy: no baseline is known, so nothing is judged: mlagentbench baseline toy",)


@pytest.mark.parametrize("kind", ["fresh", "twin", None])
def test_what_is_measured_is_the_starter_on_the_very_data_of_the_runs(made: Made, kind: str | None) -> None:
    (warning,) = summarize_runs([made(0.3, baseline=None, kind=kind, edition="paper")]).warnings
    assert warning.endswith(f": mlagentbench baseline toy --edition paper --instance {HASHES.data}")


def test_overall_every_task_has_the_same_weight(made: Made) -> None:
    runs = [made(0.3, task="often") for _ in range(6)] + [made(0.0, task="once"), made(None, task="never")]
    overall = summarize_runs(runs).overall[0]
    assert (overall.task, overall.tasks, overall.runs, overall.success) == ("", 3, 8, 6)
    assert overall.success_rate.value == pytest.approx(1 / 3) and overall.success_rate.n == 3
    assert overall.improvement.value == pytest.approx(
        (0.3 + 0 + 0) / 3
    )  # no valid submission: nothing improved
    assert overall.valid_rate.value == pytest.approx(2 / 3) and overall.score.value is None
    assert overall.per_run and overall.per_success and overall.per_success.seconds == pytest.approx(180)
    assert overall.pass_at_k == pytest.approx({1: 1 / 3})


def test_an_entrant_that_lacks_tasks_is_named(made: Made) -> None:
    found = summarize_runs(
        [made(0.3, task="one"), made(0.3, task="two"), made(0.3, task="one", agent="lazy")]
    )
    assert found.agents == ("lazy", "played") and found.tasks == ("one", "two")
    assert found.warnings == ("lazy has runs on 1 of 2 tasks: its mean over tasks is over those only",)
    assert found.cell("two", "lazy") is None


@pytest.mark.parametrize(
    ("changes", "label"),
    [
        ({"edition": "paper"}, "toy (paper)"),
        ({"hashes": HASHES.replace(grader="b" * 64)}, "toy (grader bbbbbbbb)"),
        ({"hashes": HASHES.replace(data="b" * 64)}, "toy (data bbbbbbbb)"),
        (
            {
                "hashes": HASHES.replace(data="b" * 64),
                "kind": "twin",
                "baseline": BASELINE.replace(mean=11.0),
            },
            "toy (twin bbbbbbbb)",
        ),
        ({"baseline": None}, "toy (baseline none)"),
    ],
)
def test_runs_in_different_settings_are_never_mixed(
    made: Made, changes: dict[str, object], label: str
) -> None:
    found = summarize_runs([made(0.3), made(0.0, **changes)])
    assert len(found.cells) == len(found.settings) == 2 and label in found.tasks
    assert "toy was run in 2 settings" in found.warnings[0]


def test_what_only_a_reader_can_judge_is_said_and_not_split(made: Made) -> None:
    runs = [
        made(0.3),
        made(0.3, baseline=BASELINE.replace(hardware="elsewhere"), hardware=MACHINE.replace(cores=64)),
    ]
    runs += [made(0.3, hashes=HASHES.replace(task="u" * 64))]
    found = summarize_runs(runs)
    assert only(found).runs == 3 and found.warnings == (
        "toy was run on different machines: a chip, 2 cores, 8 GB; a chip, 64 cores, 8 GB",
        "toy: its description or starter changed between runs",
    )
    assert found.settings[0].hardware == ("a chip, 2 cores, 8 GB", "a chip, 64 cores, 8 GB")


def test_the_gap_is_between_the_last_figure_before_submission_and_the_score(made: Made) -> None:
    said = (
        "validation error: 9\nvalidation error: 3.5",
        "more words",
        "Validation error: 7.5",
        "validation error: nan",
    )
    run = made(0.2, observations=said)
    assert find_last_validation_score(run) == 7.5 and compute_validation_gap(run) == pytest.approx(
        0.05
    )  # hoped for 7.5 and got 8, of a baseline of 10
    higher = made(0.2, observations=said, better="higher")
    assert compute_validation_gap(higher) == pytest.approx(-0.45)  # 12 is more than it saw
    assert only(summarize_runs([run])).validation_gap.value == pytest.approx(0.05)


def test_where_nothing_can_be_said_of_the_gap_nothing_is(made: Made) -> None:
    said = ("validation error: 7.5",)
    assert (
        compute_validation_gap(made(None, observations=said)) is None
        and compute_validation_gap(made(0.2, observations=("the validation went well",))) is None
    )
    assert compute_validation_gap(made(0.2, observations=said, metric="time relative to the starter")) is None
    assert compute_validation_gap(made(0.2, observations=said, baseline=None)) is None


def test_a_summary_survives_its_json_and_the_order_of_the_runs(made: Made) -> None:
    runs = [made(0.01 * n, task=task) for task in ("one", "two") for n in range(20)]
    found = summarize_runs(runs)
    assert Summary.model_validate_json(found.model_dump_json()) == found == summarize_runs(runs[::-1])


def test_a_thousand_runs_are_summed_up_within_seconds(made: Made) -> None:
    runs = [made(0.001 * n, task=f"task {n % 2}") for n in range(1000)]
    started = perf_counter()
    summarize_runs(runs)
    assert perf_counter() - started < 10


def cell_of_the_paper(rate: float, mean: float) -> Iterator[float | None]:
    """Improvements of runs, as many as the cell needs, that have this rate of success and this mean when valid."""
    count = {0.4: 5, 0.429: 7}.get(round(rate, 3), paper.RUNS_PER_CELL)
    hits = round(rate * count)
    assert round(hits / count, 3) == round(rate, 3)
    if hits and mean > 0.1:
        yield from [mean] * hits + [None] * (count - hits)
    else:
        rest = (count * mean - 0.5 * hits) / (count - hits)
        assert rest <= 0.1
        yield from [0.5] * hits + [rest] * (count - hits)


def test_fed_with_the_paper_s_runs_the_averages_come_out_as_printed(made: Made) -> None:
    rates, means = paper.load_success_rates(), paper.load_improvements()
    runs = [
        made(improvement, task=task, agent=who)
        for task in rates.tasks
        for who in rates.agents
        for improvement in cell_of_the_paper(rates.cells[task][who], means.cells[task][who])
    ]
    found = summarize_runs(runs)
    for cell in found.cells:
        assert cell.improved_rate.value == pytest.approx(rates.cells[cell.task][cell.agent], abs=0.0005)
        assert cell.improvement.value == pytest.approx(means.cells[cell.task][cell.agent], abs=1e-9)
    overall = {cell.agent: cell for cell in found.overall}
    printed = {
        "GPT-4": (19.2, 41.3),
        "GPT-4-turbo": (26.0, 32.8),
        "Claude v1.0": (16.3, 8.9),
        "Claude v2.1": (26.0, 15.0),
        "Claude v3": (37.5, 26.1),
        "Gemini Pro": (18.3, -3.6),
        "Mixtral": (3.8, 8.0),
    }
    for who, (success, improvement) in printed.items():
        assert 100 * (overall[who].improved_rate.value or 0) == pytest.approx(success, abs=0.0501)
        assert 100 * (overall[who].improvement.value or 0) == pytest.approx(improvement, abs=0.0501)
    # The paper prints 10.4 below its baseline: its two rates, 40.0 and 42.9, over eight tasks. Over thirteen it is 6.4.
    assert 100 * (overall["Baseline"].improved_rate.value or 0) == pytest.approx(6.4, abs=0.05)
    assert 100 * sum(row["Baseline"] for row in rates.cells.values()) / 8 == pytest.approx(10.4, abs=0.05)
