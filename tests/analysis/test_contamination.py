"""Contamination: results on public data compared with results on data from a hidden seed."""

import json
import shutil
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from run_factory import HASHES, make_run

from mlagentbench.analysis.contamination import compute_contamination_gaps
from mlagentbench.analysis.runs import Run, read_runs
from mlagentbench.records import Result
from mlagentbench.runner.setup import prepare_setup
from mlagentbench.runner.start import start_run
from mlagentbench.system.cache import cache_dir

MakeRuns = Callable[..., list[Run]]


@pytest.fixture
def make_runs(tmp_path: Path) -> MakeRuns:
    """Makes runs of an agent on one kind of data with these improvements."""

    def make_all(agent: str, kind: str | None, *improvements: float | None, **changes: object) -> list[Run]:
        count = len(list((tmp_path / "runs").glob("*")))
        hashes = HASHES.replace(data=f"{kind}".ljust(64, "0"))
        return [
            make_run(
                tmp_path / "runs" / f"{count + n}",
                improvement,
                agent=agent,
                kind=kind,
                **{"hashes": hashes, **changes},
            )
            for n, improvement in enumerate(improvements)
        ]

    return make_all


def test_an_agent_that_does_better_on_public_data_than_on_a_twin_is_suspicious(make_runs: MakeRuns) -> None:
    runs = make_runs("memorizer", "public", 0.9, 0.8, 0.85, 0.95) + make_runs(
        "memorizer", "twin", 0.1, 0.2, 0.15, None
    )
    runs += make_runs("honest", "public", 0.3, 0.5, 0.4, 0.45) + make_runs(
        "honest", "twin", 0.45, 0.4, 0.5, 0.3
    )
    honest, memorizer = compute_contamination_gaps(runs)
    assert (memorizer.agent, memorizer.task, memorizer.kind) == ("memorizer", "toy (open)", "twin")
    assert (memorizer.public, memorizer.other) == pytest.approx(
        (0.875, 0.1125)
    )  # an invalid submission counts as 0
    assert memorizer.difference == pytest.approx(0.7625) and (
        memorizer.public_runs,
        memorizer.other_runs,
    ) == (4, 4)
    assert (
        memorizer.low is not None
        and memorizer.high is not None
        and 0.6 < memorizer.low < 0.7625 < memorizer.high < 0.9
    )
    assert memorizer.suspicious and not honest.suspicious
    assert (
        honest.difference == pytest.approx(0)
        and honest.low is not None
        and honest.low < 0 < (honest.high or 0)
    )


def test_a_small_gap_is_not_suspicious_and_two_runs_give_no_interval(make_runs: MakeRuns) -> None:
    runs = make_runs("a", "public", 0.7591, 0.7592, 0.7593) + make_runs("a", "twin", 0.7581, 0.7580, 0.7582)
    runs += make_runs("a", "fresh", 0.1, 0.11)
    fresh, twin = compute_contamination_gaps(runs)
    assert twin.low is not None and 0 < twin.low < 0.01 and not twin.suspicious
    assert fresh.difference > 0.6 and fresh.low is None and not fresh.suspicious
    both = make_runs("b", "public", 0.5) + make_runs("b", "twin", 0.1)
    for task in ("one", "two", "three"):
        both += make_runs("b", "public", 0.5, task=task) + make_runs("b", "twin", 0.11, task=task)
    *per_task, mean = compute_contamination_gaps(both)
    assert mean.task == "" and mean.suspicious and not any(gap.suspicious for gap in per_task)


def test_tasks_have_equal_weight_in_the_mean_and_fresh_and_twin_are_separate(make_runs: MakeRuns) -> None:
    runs = (
        make_runs("a", "public", 0.5, 0.5, 0.6)
        + make_runs("a", "fresh", 0.1, 0.2)
        + make_runs("a", "twin", 0.4, 0.5)
    )
    runs += make_runs("a", "public", 0.2, 0.3, task="other") + make_runs(
        "a", "fresh", *[0.2, 0.3] * 4, task="other"
    )
    found = {(gap.task, gap.kind): gap for gap in compute_contamination_gaps(runs)}
    assert set(found) == {
        ("toy (open)", "fresh"),
        ("other (open)", "fresh"),
        ("", "fresh"),
        ("toy (open)", "twin"),
    }
    assert found["", "fresh"].difference == pytest.approx((1.6 / 3 - 0.15 + 0) / 2)
    assert (found["", "fresh"].public_runs, found["", "fresh"].other_runs) == (5, 10)


@pytest.mark.parametrize(
    "changes",
    [
        {"kind": None},
        {"edition": "paper"},
        {"task": "other"},
        {"ending": "fault"},
        {"ending": None},
        {"baseline": None},
    ],
    ids=str,
)
def test_runs_that_are_not_comparable_give_no_gap(make_runs: MakeRuns, changes: dict[str, object]) -> None:
    other = {name: value for name, value in changes.items() if name != "kind"}
    kind = None if "kind" in changes else "twin"
    assert (
        compute_contamination_gaps(
            make_runs("a", "public", 0.5, 0.6) + make_runs("a", kind, 0.1, 0.2, **other)
        )
        == ()
    )


def test_runs_by_another_grader_count_as_another_task(make_runs: MakeRuns) -> None:
    strict = HASHES.replace(grader="b" * 64)
    runs = (
        make_runs("a", "public", 0.5, 0.6)
        + make_runs("a", "twin", 0.1, 0.2)
        + make_runs("a", "twin", 0.3, hashes=strict)
    )
    (gap,) = compute_contamination_gaps(runs)
    assert gap.task == "toy (open, grader aaaaaaaa)" and gap.other_runs == 2


@pytest.fixture
def instances(
    toy: Path, variant: Callable[..., Path], cli: Callable[..., Any]
) -> Iterator[tuple[Path, list[str]]]:
    """The toy task with twins enabled: its public data and a twin, which is removed after the test."""
    rules = '[twin]\nids = ["id"]\nunits = [["value"]]\n'
    task = variant({"task.toml": (toy / "task.toml").read_text() + rules})
    created = [
        json.loads(cli("prepare", task, *options, "--json").stdout)[0]["instance"]
        for options in ((), ("--twin",))
    ]
    yield task, created
    shutil.rmtree(cache_dir() / "data" / "toy" / created[1])
    (cache_dir() / "data" / "toy" / f"{created[1]}.lock").unlink()
    for path in (cache_dir() / "baselines").glob(f"toy-{created[1]}-*"):
        path.unlink()


@pytest.mark.slow
def test_an_agent_that_memorized_the_answers_has_a_gap_and_the_starter_has_none(
    instances: tuple[Path, list[str]], cli: Callable[..., Any], tmp_path: Path
) -> None:
    task, (public, twin) = instances

    def attempt(agent: str, instance: str, name: str) -> Result:
        setup = prepare_setup(str(task), "open", "bwrap", lambda line: None, instance)
        return start_run(setup, agent, tmp_path / name)

    unjudged = attempt("baseline", twin, "early")
    assert cli(*unjudged.note.partition(" mlagentbench ")[2].split(), "-n", 2).returncode == 0
    for instance, agent in product((public, twin), ("reference", "baseline")):
        attempt(agent, instance, f"{agent}-{instance}")
    starter, memory = compute_contamination_gaps(read_runs([tmp_path]))
    assert (memory.agent, memory.kind, memory.public) == ("reference", "twin", 1.0)
    assert memory.other < 1.0 and memory.difference > 0  # it memorized that the answer to each id is the id
    assert (starter.public, starter.other, starter.other_runs) == (
        0.0,
        0.0,
        1,
    )  # the first run was never judged
