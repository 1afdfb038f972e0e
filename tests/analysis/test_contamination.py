"""Public data held against data drawn by a hidden seed."""

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

Many = Callable[..., list[Run]]


@pytest.fixture
def many(tmp_path: Path) -> Many:
    """Runs of an agent on a kind of data with these improvements."""

    def make_all(agent: str, kind: str | None, *improvements: float | None, **changes: object) -> list[Run]:
        count = len(list((tmp_path / "runs").glob("*")))
        hashes = HASHES.replace(data=f"{kind}".ljust(64, "0"))
        return [
            make_run(
                tmp_path / "runs" / f"{count + n}",
                each,
                agent=agent,
                kind=kind,
                **{"hashes": hashes, **changes},
            )
            for n, each in enumerate(improvements)
        ]

    return make_all


def test_who_does_better_on_public_data_than_on_its_twin_is_shown_with_an_interval(many: Many) -> None:
    runs = many("parrot", "public", 0.9, 0.8, 0.85, 0.95) + many("parrot", "twin", 0.1, 0.2, 0.15, None)
    runs += many("honest", "public", 0.3, 0.5, 0.4, 0.45) + many("honest", "twin", 0.45, 0.4, 0.5, 0.3)
    honest, parrot = compute_contamination_gaps(runs)
    assert (parrot.agent, parrot.task, parrot.kind) == ("parrot", "toy (open)", "twin")
    assert (parrot.public, parrot.other) == pytest.approx(
        (0.875, 0.1125)
    )  # an invalid one has improved nothing
    assert parrot.difference == pytest.approx(0.7625) and (parrot.public_runs, parrot.other_runs) == (4, 4)
    assert (
        parrot.low is not None and parrot.high is not None and 0.6 < parrot.low < 0.7625 < parrot.high < 0.9
    )
    assert parrot.suspicious and not honest.suspicious
    assert (
        honest.difference == pytest.approx(0)
        and honest.low is not None
        and honest.low < 0 < (honest.high or 0)
    )


def test_a_trifle_is_no_suspicion_and_two_runs_make_no_interval(many: Many) -> None:
    runs = many("a", "public", 0.7591, 0.7592, 0.7593) + many("a", "twin", 0.7581, 0.7580, 0.7582)
    runs += many("a", "fresh", 0.1, 0.11)
    fresh, twin = compute_contamination_gaps(runs)
    assert twin.low is not None and 0 < twin.low < 0.01 and not twin.suspicious
    assert fresh.difference > 0.6 and fresh.low is None and not fresh.suspicious
    both = many("b", "public", 0.5) + many("b", "twin", 0.1)
    for task in ("one", "two", "three"):
        both += many("b", "public", 0.5, task=task) + many("b", "twin", 0.11, task=task)
    *each, mean = compute_contamination_gaps(both)
    assert mean.task == "" and mean.suspicious and not any(gap.suspicious for gap in each)


def test_tasks_count_alike_in_the_mean_and_fresh_and_twin_stand_apart(many: Many) -> None:
    runs = many("a", "public", 0.5, 0.5, 0.6) + many("a", "fresh", 0.1, 0.2) + many("a", "twin", 0.4, 0.5)
    runs += many("a", "public", 0.2, 0.3, task="other") + many("a", "fresh", *[0.2, 0.3] * 4, task="other")
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
def test_what_cannot_be_held_against_each_other_is_not(many: Many, changes: dict[str, object]) -> None:
    other = {name: value for name, value in changes.items() if name != "kind"}
    kind = None if "kind" in changes else "twin"
    assert (
        compute_contamination_gaps(many("a", "public", 0.5, 0.6) + many("a", kind, 0.1, 0.2, **other)) == ()
    )


def test_another_grader_is_another_task(many: Many) -> None:
    strict = HASHES.replace(grader="b" * 64)
    runs = many("a", "public", 0.5, 0.6) + many("a", "twin", 0.1, 0.2) + many("a", "twin", 0.3, hashes=strict)
    (gap,) = compute_contamination_gaps(runs)
    assert gap.task == "toy (open, grader aaaaaaaa)" and gap.other_runs == 2


@pytest.fixture
def instances(
    toy: Path, variant: Callable[..., Path], cli: Callable[..., Any]
) -> Iterator[tuple[Path, list[str]]]:
    """The toy as a task that has twins; its public data and a twin, which goes with the test."""
    rules = '[twin]\nids = ["id"]\nunits = [["value"]]\n'
    task = variant({"task.toml": (toy / "task.toml").read_text() + rules})
    made = [
        json.loads(cli("prepare", task, *how, "--json").stdout)[0]["instance"] for how in ((), ("--twin",))
    ]
    yield task, made
    shutil.rmtree(cache_dir() / "data" / "toy" / made[1])
    (cache_dir() / "data" / "toy" / f"{made[1]}.lock").unlink()
    for path in (cache_dir() / "baselines").glob(f"toy-{made[1]}-*"):
        path.unlink()


def test_who_answers_from_memory_is_told_from_who_does_not(
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
    assert (
        memory.other < 1.0 and memory.difference > 0
    )  # it has learned by heart that the answer to each id is the id
    assert (starter.public, starter.other, starter.other_runs) == (
        0.0,
        0.0,
        1,
    )  # the early one was never judged
