"""The report of run folders: nothing hidden, nothing loaded, nothing that an agent wrote run."""

import csv
import io
import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from run_factory import make_run

from mlagentbench.analysis import paper
from mlagentbench.analysis.metrics import summarize_runs
from mlagentbench.analysis.runs import read_runs
from mlagentbench.errors import UsageError
from mlagentbench.pages.site import run_pages
from mlagentbench.pages.site.grids import build_grids
from mlagentbench.pages.site.overview import build_overview
from mlagentbench.pages.site.report import WrittenReport, write_report
from mlagentbench.pages.site.tables import escape_latex
from mlagentbench.process.judgements import (
    CriterionScore,
    Judgement,
    RunJudgements,
    read_judgements,
    rubric_criteria,
)
from mlagentbench.records import Result
from mlagentbench.system.hashing import hash_file

EVIL = "<img src=x onerror=alert(1)>"
Cli = Callable[..., "subprocess.CompletedProcess[str]"]


def quiet(line: str) -> None:
    """Nobody listens."""


def report(*folders: Path, out: Path) -> WrittenReport:
    return write_report(read_runs(folders), out, quiet)


def rows(out: Path, name: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO((out / "tables" / f"{name}.csv").read_text())))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three contestants on three tasks, with everything that can happen to a run."""
    place = tmp_path_factory.mktemp("runs")
    for task in ("imdb", "cifar10", "aardvark"):
        for seed in range(3):
            make_run(
                place / f"{task}-good-{seed}",
                0.4 + seed / 10,
                task=task,
                seed=seed,
                agent="good",
                tokens=1000,
                dollars=0.5,
            )
            make_run(
                place / f"{task}-weak-{seed}", 0.02 * seed, task=task, seed=seed, agent="weak", tokens=50
            )
    make_run(place / "imdb-odd-0", task="imdb", agent="odd", options={"hint": EVIL})
    make_run(place / "imdb-odd-1", task="imdb", agent="odd", options={"hint": EVIL}, seed=1, ending="fault")
    make_run(place / "imdb-odd-2", task="imdb", agent="odd", options={"hint": EVIL}, seed=2, ending=None)
    make_run(
        place / "imdb-odd-3",
        0.5,
        task="imdb",
        agent="odd",
        options={"hint": EVIL},
        seed=3,
        sandbox="none",
        violations=["cheated"],
    )
    return place


@pytest.fixture(scope="module")
def site(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("report") / "site"
    report(folder, out=out)
    return out


@pytest.fixture(scope="module")
def index(site: Path) -> str:
    return (site / "index.html").read_text()


def test_faults_unfinished_and_unsandboxed_runs_stand_on_top_and_beside_every_figure(
    index: str, site: Path
) -> None:
    notice = index[index.index('class="notice') : index.index('id="success"')]
    for words in (
        "1 run ended as a fault",
        "1 run is not finished",
        "1 run worked outside the sandbox",
        "1 run broke a rule",
    ):
        assert words in notice
    assert index.count("22 runs (1 fault, 1 unfinished, 1 unsandboxed)") > 10
    for figure in (site / "figures").glob("*.svg"):
        assert "22 runs (1 fault, 1 unfinished, 1 unsandboxed)" in re.sub(
            r"\s+", " ", re.sub(r"<[^>]+>", "", figure.read_text())
        )
    cell = next(row for row in rows(site, "success") if row["task"] == "imdb")
    odd = next(name for name in cell if name.startswith("odd") and name.endswith("apart"))
    assert cell[odd] == "1 fault, 1 unfinished, 1 unsandboxed"
    assert (
        cell[odd.replace("apart", "of")] == "1/2"
    )  # neither the fault nor the unfinished one is in the rate
    verdicts = {row["run"]: row["verdict"] for row in rows(site, "runs")}
    assert [verdicts[f"imdb-odd-{number}"] for number in range(4)] == [
        "invalid",
        "fault",
        "unfinished",
        "success",
    ]


def test_tasks_come_in_the_order_of_the_paper_and_its_columns_stand_beside(site: Path) -> None:
    found = rows(site, "success")
    assert [row["task"] for row in found] == ["cifar10", "imdb", "aardvark", "Average"]
    assert found[0]["paper: Claude v3"] == "0.625" and found[2]["paper: Claude v3"] == ""
    assert float(found[-1]["paper: Claude v3"]) == pytest.approx(0.375, abs=5e-4)
    assert [float(row["good"]) for row in found] == [1, 1, 1, 1]
    gains = rows(site, "improvement")
    assert float(gains[0]["good"]) == pytest.approx(0.5) and float(gains[-1]["weak"]) == pytest.approx(0.02)
    assert all(f"paper: {name}" in gains[0] for name in paper.load_improvements().agents)


def test_the_tables_of_the_paper_come_as_latex_and_markdown(site: Path) -> None:
    latex = (site / "tables" / "success.tex").read_text()
    assert latex.startswith("% ") and latex.count(r"\toprule") == latex.count(r"\bottomrule") == 1
    columns = latex[latex.index("{tabular}{") :].partition("{")[2].partition("{")[2].partition("}")[0]
    for line in latex.splitlines():
        if line.endswith(r"\\") and "multicolumn" not in line:
            assert line.count(" & ") + 1 == len(columns)
    assert "50.0 (1/2; 1 fault, 1 unfinished, 1 unsandboxed)" in latex
    assert "its own data: not comparable" in latex and "open edition" in latex
    lines = (site / "tables" / "improvement.md").read_text().splitlines()
    assert len({line.count(" | ") for line in lines[:6]}) == 1 and "22 runs" in lines[-1]


def test_latex_prints_any_name_as_it_is() -> None:
    assert escape_latex("a_b & 50 % {x} $1 #2 ~ ^ \\") == (
        r"a\_b \& 50 \% \{x\} \$1 \#2 \textasciitilde{} \textasciicircum{} \textbackslash{}"
    )
    assert escape_latex("two\nlines\u202e") == "two lines⟨U+202E⟩"


def test_every_table_is_there_for_programs_and_says_what_it_rests_on(site: Path, index: str) -> None:
    names = {path.stem for path in (site / "tables").glob("*.csv")}
    assert {
        "success",
        "improvement",
        "cells",
        "error-modes",
        "efficiency",
        "profile",
        "ranks",
        "pairs",
        "runs",
        "settings",
    } <= names
    for name in names:
        told = json.loads((site / "tables" / f"{name}.json").read_text())
        assert (
            "open edition" in told["about"]
            and "a chip" in told["about"]
            and len(told["rows"]) == len(rows(site, name))
        )
    for link in re.findall(r'href="((?:tables|figures|runs)/[^"]+)"', index):
        assert (site / link).is_file(), link


def test_one_run_alone_makes_a_report(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", 0.3)
    done = report(tmp_path / "run", out=tmp_path / "site")
    text = (tmp_path / "site" / "index.html").read_text()
    assert done.runs == 1 and "1 contestant, 1 task, 1 run<" in text and "It takes two contestants" in text
    assert (tmp_path / "site" / "runs" / f"{run.name}.html").is_file()
    assert 'class="notice' not in text
    assert "paper: Claude v3" not in rows(tmp_path / "site", "success")[0]  # the paper has no such task


def test_what_a_model_judged_is_marked_as_an_opinion(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", 0.3, observations=("fine",))
    told = {
        "rubric": "r",
        "trace": hash_file(run.folder.trace.path),
        "judged": "2026-01-01T00:00:00",
        "model": "provider:judge",
    }
    for scores in ((2, 5), (3, 5)):
        marks = [
            CriterionScore(criterion=name, score=score, sentence="So.")
            for name, score in zip(rubric_criteria(), scores, strict=False)
        ]
        old = read_judgements(run)
        both = (*(old.judgements if old else ()), Judgement(marks=tuple(marks), **told))
        run.folder.write_file("judged.json", RunJudgements(judgements=both).model_dump_json())
    report(tmp_path / "run", out=tmp_path / "site")
    assert rows(tmp_path / "site", "judged")[0] == {
        "who": "played",
        "criterion": rubric_criteria()[0],
        "mean": "3.0",
        "runs": "1",
    }
    text = (tmp_path / "site" / "index.html").read_text()
    assert (
        "Opinions, not measurements: provider:judge" in text
        and "50% were the same and 100% at most one apart" in text
    )


def test_a_task_in_two_settings_stands_twice_beside_the_paper_s_row(tmp_path: Path) -> None:
    make_run(tmp_path / "runs" / "one", 0.3, task="imdb")
    make_run(tmp_path / "runs" / "two", 0.4, task="imdb", edition="paper")
    runs = read_runs([tmp_path / "runs"])
    board = build_grids(summarize_runs(runs), ["played"])[0]
    assert list(board.tasks) == ["imdb (open)", "imdb (paper)"]
    assert [board.paper_value(task, "Claude v3") for task in board.tasks] == [0.25, 0.25]
    assert "cannot be compared" in build_overview(runs).warnings[-1]


def test_without_a_task_that_all_have_run_nobody_is_said_to_be_alone(tmp_path: Path) -> None:
    for number, (agent, task) in enumerate((("one", "a"), ("two", "a"), ("three", "b"))):
        make_run(tmp_path / "runs" / str(number), 0.3, agent=agent, task=task)
    report(tmp_path / "runs", out=tmp_path / "site")
    text = (tmp_path / "site" / "index.html").read_text()
    assert (
        "No task was run and judged for every contestant." in text and "It takes two contestants" not in text
    )


def test_a_run_that_has_just_begun_makes_a_report(tmp_path: Path) -> None:
    make_run(tmp_path / "run", ending=None)
    assert report(tmp_path / "run", out=tmp_path / "site").unfinished == 1
    assert "None has ended" in (tmp_path / "site" / "index.html").read_text()


def test_a_task_without_a_baseline_is_listed_but_not_judged(tmp_path: Path) -> None:
    make_run(tmp_path / "run", 0.3, baseline=None)
    report(tmp_path / "run", out=tmp_path / "site")
    assert rows(tmp_path / "site", "runs")[0]["verdict"] == "not judged"
    assert rows(tmp_path / "site", "success")[0]["played"] == ""


def test_a_damaged_record_is_a_finding_and_not_the_end_of_the_report(tmp_path: Path) -> None:
    run = make_run(tmp_path / "runs" / "one", 0.3, observations=("fine",))
    make_run(tmp_path / "runs" / "two", 0.4, seed=1)
    (run.folder.path / "trace.jsonl").write_text('{ "validation error: 3" is no step }\n')
    report(tmp_path / "runs", out=tmp_path / "site")
    assert rows(tmp_path / "site", "runs")[0]["findings"].startswith("damaged")


def test_only_what_changed_is_written_again(tmp_path: Path) -> None:
    runs, out = tmp_path / "runs", tmp_path / "site"
    for name in ("kept", "gone"):
        make_run(runs / name, 0.3)
    report(runs, out=out)
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*") if path.is_file()}
    report(runs, out=out)
    assert before == {path: path.stat().st_mtime_ns for path in out.rglob("*") if path.is_file()}
    shutil.rmtree(runs / "gone")
    make_run(runs / "new", 0.2, agent="new")
    report(runs, out=out)
    assert {path.name for path in (out / "runs").iterdir()} == {"kept.html", "new.html"}
    assert (out / "runs" / "kept.html").stat().st_mtime_ns == before[out / "runs" / "kept.html"]


def test_a_folder_that_holds_something_else_is_left_alone(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text("mine")
    with pytest.raises(UsageError, match="holds no report"):
        report(folder, out=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["index.html"]


def test_two_runs_of_one_name_have_a_page_each(tmp_path: Path) -> None:
    for batch in ("first", "second"):
        make_run(tmp_path / batch / "run", 0.3)
    make_run(tmp_path / "third" / "RUN", 0.3)
    make_run(tmp_path / "fourth" / "ru n", 0.3)
    report(*(tmp_path / name for name in ("first", "second", "third", "fourth")), out=tmp_path / "site")
    found = [path.name for path in (tmp_path / "site" / "runs").glob("*.html")]
    assert len({name.lower() for name in found}) == 4


def test_many_pages_are_made_by_several_processes_and_none_is_lost(tmp_path: Path) -> None:
    for seed in range(run_pages.MIN_PAGES_FOR_POOL + 1):
        make_run(tmp_path / "runs" / f"run-{seed}", seed / 100, seed=seed)
    heard: list[str] = []
    write_report(read_runs([tmp_path / "runs"]), tmp_path / "site", heard.append)
    assert len(list((tmp_path / "site" / "runs").glob("*.html"))) == run_pages.MIN_PAGES_FOR_POOL + 1


def test_graded_steps_become_curves(play: Callable[..., Result], tmp_path: Path, cli: Cli, do: Any) -> None:
    def guess(env: Any) -> None:
        for value in (40, 4):
            text = "id,value\n" + "".join(f"{number},{value}\n" for number in range(20))
            do(env, "Write File", file_name="submission.csv", content=text)

    played = play(guess)
    done = cli("report", played.folder, "-o", tmp_path / "site", "--grade-steps", "--json", timeout=120)
    assert done.returncode == 0, done.stderr
    assert "figures/anytime-steps.pdf" in json.loads(done.stdout)["figures"]
    found = [row for row in rows(tmp_path / "site", "anytime") if row["task"]]
    assert [int(row["step"]) for row in found] == [0, 1, 2]
    assert float(found[-1]["improvement"]) == pytest.approx(played.improvement or 0)


def test_the_command_says_where_the_report_lies(tmp_path: Path, cli: Cli) -> None:
    make_run(tmp_path / "run", ending="fault")
    done = cli("report", tmp_path / "run", "-o", tmp_path / "site")
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"1 run (1 fault): {tmp_path / 'site' / 'index.html'}\n"
    nowhere = cli("report", tmp_path / "nowhere", "-o", tmp_path / "other")
    assert (
        nowhere.returncode == 2
        and len(nowhere.stderr.splitlines()) == 1
        and not (tmp_path / "other").exists()
    )


def test_the_page_opens_from_disk_loads_nothing_and_runs_nothing_of_an_agent_s(
    site: Path, index: str, visit: Callable[..., Any]
) -> None:
    assert EVIL not in index
    page = visit(
        (site / "index.html").as_uri()
    )  # which fails the test for any complaint, refused load or dialog
    loaded = page.evaluate("performance.getEntriesByType('resource').map((entry) => entry.name)")
    assert [name for name in loaded if not name.startswith("data:")] == []
    page.locator("#list a").first.click()
    assert page.title() and page.url.endswith(".html") and "/runs/" in page.url
    page.locator(".brand").click()
    assert page.url.endswith("/index.html")


def test_tables_sort_and_runs_filter(site: Path, visit: Callable[..., Any]) -> None:
    page = visit((site / "index.html").as_uri())
    page.locator("#list th", has_text="improvement").click()
    shown = page.locator("#list tbody tr:visible td:nth-child(7)").all_text_contents()
    known = [float(text.rstrip("%")) for text in shown if text not in ("", "-")]
    assert known == sorted(known, reverse=True) and len(known) == 19
    page.locator("#filter").fill("imdb fault")
    assert page.locator("#list tbody tr:visible").count() == 1
    assert page.locator("#shown").inner_text() == "1 of 22 runs"
    link = page.locator("[data-filter]").first
    link.click()
    assert page.locator("#list tbody tr:visible").count() == int(link.inner_text())


@pytest.mark.parametrize(("width", "scheme"), [(390, "dark"), (1440, "light")])
def test_the_page_fits_a_phone_and_a_desk_and_can_be_read_in_light_and_dark(
    site: Path, visit: Callable[..., Any], width: int, scheme: str
) -> None:
    page = visit((site / "index.html").as_uri(), width=width, color_scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    cells = page.evaluate(
        """() => { const canvas = new OffscreenCanvas(1, 1).getContext('2d', {willReadFrequently: true});
        const rgb = (colour) => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
          return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3); };
        return [...document.querySelectorAll('.cell b, .cell small')].map((text) => [rgb(getComputedStyle(text).color),
          rgb(getComputedStyle(text.parentElement).backgroundColor)]); }"""
    )
    assert len(cells) > 20 and min(contrast(*pair) for pair in cells) >= 4.5
    ink = page.evaluate("getComputedStyle(document.querySelector('svg.figure text')).fill")
    assert (sum(map(int, re.findall(r"\d+", ink)[:3])) > 384) == (scheme == "dark")  # figures follow the page


def contrast(one: list[int], other: list[int]) -> float:
    def light(colour: list[int]) -> float:
        parts = [part / 255 for part in colour]
        red, green, blue = (
            part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
        )
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    brighter, darker = sorted((light(one), light(other)), reverse=True)
    return (brighter + 0.05) / (darker + 0.05)
