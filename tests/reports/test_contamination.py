"""Public data held against data that nobody has seen."""

import csv
import io
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page
from runs_made import HASHES, make

from mlagentbench.reports.contamination import differences
from mlagentbench.reports.runs import Run
from mlagentbench.reports.site.write import write

Many = Callable[..., list[Run]]


@pytest.fixture
def many(tmp_path: Path) -> Many:
    """Runs of an agent on a kind of data with these improvements."""

    def make_all(agent: str, kind: str | None, *improvements: float | None, **changes: object) -> list[Run]:
        count = len(list((tmp_path / "runs").glob("*")))
        hashes = HASHES.but(data=f"{kind}".ljust(64, "0"))
        return [
            make(tmp_path / "runs" / f"{count + n}", each, agent=agent, kind=kind, **{"hashes": hashes, **changes})
            for n, each in enumerate(improvements)
        ]

    return make_all


def test_who_does_better_on_public_data_than_on_its_twin_is_shown_with_an_interval(many: Many) -> None:
    runs = many("parrot", "public", 0.9, 0.8, 0.85, 0.95) + many("parrot", "twin", 0.1, 0.2, 0.15, None)
    runs += many("honest", "public", 0.3, 0.5, 0.4, 0.45) + many("honest", "twin", 0.45, 0.4, 0.5, 0.3)
    honest, parrot = differences(runs)
    assert (parrot.who, parrot.task, parrot.kind) == ("parrot", "toy (open)", "twin")
    assert (parrot.public, parrot.other) == pytest.approx((0.875, 0.1125))  # an invalid one has improved nothing
    assert parrot.difference == pytest.approx(0.7625) and (parrot.public_runs, parrot.other_runs) == (4, 4)
    assert parrot.low is not None and parrot.high is not None and 0.6 < parrot.low < 0.7625 < parrot.high < 0.9
    assert parrot.suspicious and not honest.suspicious
    assert honest.difference == pytest.approx(0) and honest.low is not None and honest.low < 0 < (honest.high or 0)


def test_tasks_count_alike_in_the_mean_and_fresh_and_twin_stand_apart(many: Many) -> None:
    runs = many("a", "public", 0.5, 0.5, 0.6) + many("a", "fresh", 0.1, 0.2) + many("a", "twin", 0.4, 0.5)
    runs += many("a", "public", 0.2, 0.3, task="other") + many("a", "fresh", *[0.2, 0.3] * 4, task="other")
    found = {(gap.task, gap.kind): gap for gap in differences(runs)}
    assert set(found) == {("toy (open)", "fresh"), ("other (open)", "fresh"), ("", "fresh"), ("toy (open)", "twin")}
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
    assert differences(many("a", "public", 0.5, 0.6) + many("a", kind, 0.1, 0.2, **other)) == ()


def test_another_grader_is_another_task(many: Many) -> None:
    strict = HASHES.but(grader="b" * 64)
    runs = many("a", "public", 0.5, 0.6) + many("a", "twin", 0.1, 0.2) + many("a", "twin", 0.3, hashes=strict)
    (gap,) = differences(runs)
    assert gap.task == "toy (open, grader aaaaaaaa)" and gap.other_runs == 2


def test_the_report_has_a_section_where_there_is_something_to_show(
    many: Many, tmp_path: Path, visit: Callable[..., Page]
) -> None:
    runs = many("parrot", "public", 0.9, 0.8, 0.85, 0.95)
    write(runs, tmp_path / "site", lambda line: None)
    assert "Contamination" not in (tmp_path / "site" / "index.html").read_text()
    runs += many("parrot", "twin", 0.1, 0.2, 0.15, 0.12)
    write(runs, tmp_path / "site", lambda line: None)
    page = visit((tmp_path / "site" / "index.html").as_uri())
    cells = page.locator("#contamination tbody tr td").all_inner_texts()
    assert cells[:5] == ["parrot", "toy (open)", "twin", "+87.5%", "+14.2%"] and "public goes better" in cells[5]
    (row,) = csv.DictReader(io.StringIO((tmp_path / "site" / "tables" / "contamination.csv").read_text()))
    assert row["who"] == "parrot" and float(row["difference"]) == pytest.approx(0.7325)
