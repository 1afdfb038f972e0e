"""The contamination section of a report: shown only when there is something to compare."""

import csv
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page
from run_factory import HASHES, make_run

from mlagentbench.analysis.runs import Run
from mlagentbench.pages.site.report import write_report


def make_runs(folder: Path, kind: str, *improvements: float) -> list[Run]:
    """Runs of one agent on data of one kind."""
    hashes = HASHES.replace(data=kind.ljust(64, "0"))
    return [
        make_run(folder / f"{kind}-{number}", improvement, agent="memorizer", kind=kind, hashes=hashes)
        for number, improvement in enumerate(improvements)
    ]


def read_csv(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.usefixtures("unsaved_figures")
def test_a_report_shows_the_section_only_if_there_is_something_to_compare(
    tmp_path: Path, visit: Callable[..., Page]
) -> None:
    site = tmp_path / "site"
    runs = make_runs(tmp_path / "runs", "public", 0.9, 0.8, 0.85, 0.95)
    write_report(runs, site, lambda line: None)
    assert "Contamination" not in (site / "index.html").read_text()
    runs += make_runs(tmp_path / "runs", "twin", 0.1, 0.2, 0.15, 0.12)
    write_report(runs, site, lambda line: None)
    page = visit((site / "index.html").as_uri())
    cells = page.locator("#contamination tbody tr td").all_inner_texts()
    assert cells[:5] == ["memorizer", "toy (open)", "twin", "+87.5%", "+14.2%"]
    assert "better on public data" in cells[5]
    (row,) = read_csv(site / "tables" / "contamination.csv")
    assert row["agent"] == "memorizer" and float(row["difference"]) == pytest.approx(0.7325)
    assert {
        (row["data"], row["task"].partition(" ")[2]) for row in read_csv(site / "tables" / "runs.csv")
    } == {
        ("public", "(public public00)"),
        ("twin", "(twin twin0000)"),
    }
