"""The report: it hides no run, loads nothing, and executes nothing that an agent wrote."""

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
from mlagentbench.pages.site.grids import build_grids
from mlagentbench.pages.site.overview import build_overview
from mlagentbench.pages.site.report import WrittenReport, write_report
from mlagentbench.pages.site.run_pages import MIN_PAGES_FOR_POOL
from mlagentbench.pages.site.tables import escape_latex
from mlagentbench.process.judgements import (
    CriterionScore,
    Judgement,
    RunJudgements,
    read_judgements,
    rubric_criteria,
)
from mlagentbench.records import Baseline, Ceiling, Levels, Result
from mlagentbench.system.hashing import hash_file
from mlagentbench.system.progress import ignore_progress

HOSTILE_HTML = "<img src=x onerror=alert(1)>"
COUNTS = "22 runs (1 fault, 1 unfinished, 1 unsandboxed)"
Cli = Callable[..., "subprocess.CompletedProcess[str]"]


def report(*folders: Path, out: Path) -> WrittenReport:
    return write_report(read_runs(folders), out, ignore_progress)


def read_table(out: Path, name: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO((out / "tables" / f"{name}.csv").read_text())))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three agents on three tasks, with all outcomes a run can have."""
    runs = tmp_path_factory.mktemp("runs")
    for task in ("imdb", "cifar10", "aardvark"):
        for seed in range(3):
            good = {"agent": "good", "tokens": 1000, "dollars": 0.5}
            make_run(runs / f"{task}-good-{seed}", 0.4 + seed / 10, task=task, seed=seed, **good)
            weak = {"agent": "weak", "tokens": 50}
            make_run(runs / f"{task}-weak-{seed}", 0.02 * seed, task=task, seed=seed, **weak)
    odd: dict[str, Any] = {"task": "imdb", "agent": "odd", "options": {"hint": HOSTILE_HTML}}
    make_run(runs / "imdb-odd-0", **odd)
    make_run(runs / "imdb-odd-1", seed=1, ending="fault", **odd)
    make_run(runs / "imdb-odd-2", seed=2, ending=None, **odd)
    make_run(runs / "imdb-odd-3", 0.5, seed=3, sandbox="none", violations=["cheated"], **odd)
    return runs


@pytest.fixture(scope="module")
def site(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("report") / "site"
    report(folder, out=out)
    return out


@pytest.fixture(scope="module")
def index(site: Path) -> str:
    return (site / "index.html").read_text()


def test_faults_unfinished_and_unsandboxed_runs_are_shown_at_the_top_and_with_every_figure(
    index: str, site: Path
) -> None:
    notice = index[index.index('class="notice') : index.index('id="success"')]
    for words in (
        "1 run ended with a fault",
        "1 run is unfinished",
        "1 run was not sandboxed",
        "1 run violated a rule",
    ):
        assert words in notice
    assert index.count(COUNTS) > 10
    for figure in (site / "figures").glob("*.svg"):
        assert COUNTS in re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "", figure.read_text()))
    row = next(row for row in read_table(site, "success") if row["task"] == "imdb")
    caveats = next(name for name in row if name.startswith("odd") and name.endswith("caveats"))
    assert row[caveats] == "1 fault, 1 unfinished, 1 unsandboxed"
    # Neither the fault nor the unfinished run is in the rate.
    assert row[caveats.replace("caveats", "counts")] == "1/2"
    verdicts = {row["run"]: row["verdict"] for row in read_table(site, "runs")}
    expected = ["invalid", "fault", "unfinished", "success"]
    assert [verdicts[f"imdb-odd-{number}"] for number in range(4)] == expected


def test_tasks_are_in_the_order_of_the_paper_next_to_its_columns(site: Path) -> None:
    rates = read_table(site, "success")
    assert [row["task"] for row in rates] == ["cifar10", "imdb", "aardvark", "Average"]
    assert rates[0]["paper: Claude v3"] == "0.625" and rates[2]["paper: Claude v3"] == ""
    expected = sum(paper.load_success_rates().cells[task]["Claude v3"] for task in ("cifar10", "imdb")) / 2
    assert float(rates[-1]["paper: Claude v3"]) == pytest.approx(expected)
    assert (rates[-1]["good counts"], rates[-1]["paper counts"]) == ("3 tasks", "2 tasks")
    index = " ".join((site / "index.html").read_text().split())
    assert "<small>2 tasks</small></td>" in index and "all 13 of its tasks" not in index
    assert [float(row["good"]) for row in rates] == [1, 1, 1, 1]
    improvements = read_table(site, "improvement")
    assert float(improvements[0]["good"]) == pytest.approx(0.5)
    assert float(improvements[-1]["weak"]) == pytest.approx(0.02)
    assert all(f"paper: {name}" in improvements[0] for name in paper.load_improvements().agents)


def test_the_tables_in_the_layout_of_the_paper_are_written_as_latex_and_markdown(site: Path) -> None:
    latex = (site / "tables" / "success.tex").read_text()
    assert latex.startswith("% ") and latex.count(r"\toprule") == latex.count(r"\bottomrule") == 1
    columns = latex[latex.index("{tabular}{") :].partition("{")[2].partition("{")[2].partition("}")[0]
    for line in latex.splitlines():
        if line.endswith(r"\\") and "multicolumn" not in line:
            assert line.count(" & ") + 1 == len(columns)
    assert "50.0 (1/2; 1 fault, 1 unfinished, 1 unsandboxed)" in latex
    assert "different data, not comparable" in latex and "open edition" in latex
    lines = (site / "tables" / "improvement.md").read_text().splitlines()
    assert len({line.count(" | ") for line in lines[:6]}) == 1 and "22 runs" in lines[-1]


def test_latex_prints_any_name_literally() -> None:
    assert escape_latex("a_b & 50 % {x} $1 #2 ~ ^ \\") == (
        r"a\_b \& 50 \% \{x\} \$1 \#2 \textasciitilde{} \textasciicircum{} \textbackslash{}"
    )
    assert escape_latex("two\nlines\u202e") == "two lines⟨U+202E⟩"


def test_every_table_is_written_as_csv_and_json_and_says_what_it_is_based_on(site: Path, index: str) -> None:
    names = {path.stem for path in (site / "tables").glob("*.csv")}
    expected = "success improvement cells error-modes efficiency profile ranks pairs runs settings"
    assert set(expected.split()) <= names
    for name in names:
        table = json.loads((site / "tables" / f"{name}.json").read_text())
        assert "open edition" in table["about"] and "a chip" in table["about"]
        assert len(table["rows"]) == len(read_table(site, name))
    for link in re.findall(r'href="((?:tables|figures|runs)/[^"]+)"', index):
        assert (site / link).is_file(), link


def test_a_single_run_makes_a_report(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", 0.3)
    written = report(tmp_path / "run", out=tmp_path / "site")
    text = (tmp_path / "site" / "index.html").read_text()
    heading = re.sub(r"\s+", " ", text[text.index("<h1>") : text.index("</h1>")])
    assert written.runs == 1 and heading == "<h1>1 agent, 1 task, 1 run"
    assert "A ranking needs at least two agents" in text
    assert (tmp_path / "site" / "runs" / f"{run.name}.html").is_file()
    assert 'class="notice' not in text
    # The paper does not have this task.
    assert "paper: Claude v3" not in read_table(tmp_path / "site", "success")[0]


@pytest.mark.usefixtures("unsaved_figures")
def test_scores_by_a_judge_model_are_marked_as_opinions(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", 0.3, observations=("fine",))
    fields = {
        "rubric": "r",
        "trace": hash_file(run.folder.trace.path),
        "judged": "2026-01-01T00:00:00",
        "model": "provider:judge",
    }
    for scores in ((2, 5), (3, 5)):
        marks = tuple(
            CriterionScore(criterion=name, score=score, sentence="So.")
            for name, score in zip(rubric_criteria(), scores, strict=False)
        )
        previous = read_judgements(run)
        judgements = (*(previous.judgements if previous else ()), Judgement(marks=marks, **fields))
        run.folder.write_file("judged.json", RunJudgements(judgements=judgements).model_dump_json())
    report(tmp_path / "run", out=tmp_path / "site")
    assert read_table(tmp_path / "site", "judged")[0] == {
        "agent": "played",
        "criterion": rubric_criteria()[0],
        "mean": "3.0",
        "runs": "1",
    }
    text = re.sub(r"\s+", " ", (tmp_path / "site" / "index.html").read_text())
    assert "Opinions, not measurements: provider:judge" in text
    assert "50% were identical and 100% differed by at most one point" in text


def test_a_task_in_two_settings_has_two_rows_with_the_same_values_of_the_paper(tmp_path: Path) -> None:
    make_run(tmp_path / "runs" / "one", 0.3, task="imdb")
    make_run(tmp_path / "runs" / "two", 0.4, task="imdb", edition="paper")
    runs = read_runs([tmp_path / "runs"])
    grid = build_grids(summarize_runs(runs), ["played"])["success"]
    assert list(grid.tasks) == ["imdb (open)", "imdb (paper)"]
    assert [grid.paper_value(task, "Claude v3") for task in grid.tasks] == [0.25, 0.25]
    assert "cannot be compared" in build_overview(runs).warnings[-1]


@pytest.mark.usefixtures("unsaved_figures")
def test_several_agents_without_a_common_task_are_not_ranked(tmp_path: Path) -> None:
    for number, (agent, task) in enumerate((("one", "a"), ("two", "a"), ("three", "b"))):
        make_run(tmp_path / "runs" / str(number), 0.3, agent=agent, task=task)
    report(tmp_path / "runs", out=tmp_path / "site")
    text = (tmp_path / "site" / "index.html").read_text()
    assert "No task has graded runs of every agent" in text
    assert "A ranking needs at least two agents" not in text


def test_a_run_that_has_just_started_makes_a_report(tmp_path: Path) -> None:
    make_run(tmp_path / "run", ending=None)
    assert report(tmp_path / "run", out=tmp_path / "site").unfinished == 1
    assert "No run has ended yet" in (tmp_path / "site" / "index.html").read_text()


def test_a_task_without_a_baseline_is_listed_without_a_success_rate(tmp_path: Path) -> None:
    make_run(tmp_path / "run", 0.3, baseline=None)
    report(tmp_path / "run", out=tmp_path / "site")
    assert read_table(tmp_path / "site", "runs")[0]["verdict"] == "no baseline"
    assert read_table(tmp_path / "site", "success")[0]["played"] == ""


@pytest.mark.usefixtures("unsaved_figures")
def test_a_damaged_record_is_a_finding_and_does_not_abort_the_report(tmp_path: Path) -> None:
    run = make_run(tmp_path / "runs" / "one", 0.3, observations=("fine",))
    make_run(tmp_path / "runs" / "two", 0.4, seed=1)
    (run.folder.path / "trace.jsonl").write_text('{ "validation error: 3" is no step }\n')
    report(tmp_path / "runs", out=tmp_path / "site")
    assert read_table(tmp_path / "site", "runs")[0]["findings"].startswith("damaged")
    assert "The record of this run is damaged" in (tmp_path / "site" / "runs" / "one.html").read_text()


@pytest.mark.usefixtures("unsaved_figures")
def test_only_changed_files_are_written_again(tmp_path: Path) -> None:
    runs, out = tmp_path / "runs", tmp_path / "site"
    for name in ("kept", "deleted"):
        make_run(runs / name, 0.3)
    report(runs, out=out)
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*") if path.is_file()}
    report(runs, out=out)
    assert before == {path: path.stat().st_mtime_ns for path in out.rglob("*") if path.is_file()}
    (out / "index.html").unlink()
    report(runs, out=out)
    assert {path for path in out.rglob("*") if path.is_file()} == set(before)
    shutil.rmtree(runs / "deleted")
    make_run(runs / "new", 0.2, agent="new")
    report(runs, out=out)
    assert {path.name for path in (out / "runs").iterdir()} == {"kept.html", "new.html"}
    assert (out / "runs" / "kept.html").stat().st_mtime_ns == before[out / "runs" / "kept.html"]


def test_a_folder_with_other_files_is_not_overwritten(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text("mine")
    with pytest.raises(UsageError, match="contains no report"):
        report(folder, out=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["index.html"]


@pytest.mark.usefixtures("unsaved_figures")
def test_two_runs_with_the_same_name_have_separate_pages(tmp_path: Path) -> None:
    for batch in ("first", "second"):
        make_run(tmp_path / batch / "run", 0.3)
    make_run(tmp_path / "third" / "RUN", 0.3)
    make_run(tmp_path / "fourth" / "ru n", 0.3)
    report(*(tmp_path / name for name in ("first", "second", "third", "fourth")), out=tmp_path / "site")
    pages = [path.name for path in (tmp_path / "site" / "runs").glob("*.html")]
    assert len({name.lower() for name in pages}) == 4


@pytest.mark.usefixtures("unsaved_figures")
def test_several_processes_write_all_pages(tmp_path: Path) -> None:
    for seed in range(MIN_PAGES_FOR_POOL + 1):
        make_run(tmp_path / "runs" / f"run-{seed}", seed / 100, seed=seed)
    report(tmp_path / "runs", out=tmp_path / "site")
    assert len(list((tmp_path / "site" / "runs").glob("*.html"))) == MIN_PAGES_FOR_POOL + 1


@pytest.mark.usefixtures("unsaved_figures")
def test_graded_steps_become_curves(play: Callable[..., Result], tmp_path: Path, cli: Cli, do: Any) -> None:
    def guess(env: Any) -> None:
        for value in (40, 4):
            text = "id,value\n" + "".join(f"{number},{value}\n" for number in range(20))
            do(env, "Write File", file_name="submission.csv", content=text)

    result = play(guess)
    process = cli("report", result.folder, "-o", tmp_path / "site", "--grade-steps", "--json")
    assert process.returncode == 0, process.stderr
    assert "figures/anytime-steps.pdf" in json.loads(process.stdout)["figures"]
    points = [row for row in read_table(tmp_path / "site", "anytime") if row["task"]]
    assert [int(row["step"]) for row in points] == [0, 1, 2]
    assert float(points[-1]["improvement"]) == pytest.approx(result.improvement or 0)


@pytest.mark.usefixtures("unsaved_figures")
def test_the_command_prints_the_path_of_the_report(tmp_path: Path, cli: Cli) -> None:
    make_run(tmp_path / "run", ending="fault")
    process = cli("report", tmp_path / "run", "-o", tmp_path / "site")
    assert process.returncode == 0, process.stderr
    assert process.stdout == f"1 run (1 fault): {tmp_path / 'site' / 'index.html'}\n"
    missing = cli("report", tmp_path / "missing", "-o", tmp_path / "other")
    assert missing.returncode == 2 and len(missing.stderr.splitlines()) == 1
    assert not (tmp_path / "other").exists()


def test_the_page_opens_from_disk_loads_nothing_and_runs_no_agent_code(
    site: Path, index: str, visit: Callable[..., Any]
) -> None:
    assert HOSTILE_HTML not in index
    # `visit` fails the test on any error message, refused load or dialog.
    page = visit((site / "index.html").as_uri())
    loaded = page.evaluate("performance.getEntriesByType('resource').map((entry) => entry.name)")
    assert [name for name in loaded if not name.startswith("data:")] == []
    page.locator("#run-list a").first.click()
    assert page.title() and page.url.endswith(".html") and "/runs/" in page.url
    page.locator(".brand").click()
    assert page.url.endswith("/index.html")


def test_tables_can_be_sorted_and_runs_filtered(site: Path, visit: Callable[..., Any]) -> None:
    page = visit((site / "index.html").as_uri())
    page.locator("#run-list th", has_text="improvement").click()
    texts = page.locator("#run-list tbody tr:visible td:nth-child(8)").all_text_contents()
    values = [float(text.rstrip("%")) for text in texts if text not in ("", "-")]
    assert values == sorted(values, reverse=True) and len(values) == 19
    page.locator("#filter").fill("imdb fault")
    assert page.locator("#run-list tbody tr:visible").count() == 1
    assert page.locator("#shown-runs").inner_text() == "1 of 22 runs"
    link = page.locator("[data-filter]").first
    link.click()
    assert page.locator("#run-list tbody tr:visible").count() == int(link.inner_text())


CELL_COLORS = """() => {
    const canvas = new OffscreenCanvas(1, 1).getContext('2d', {willReadFrequently: true});
    const rgb = (color) => {
        canvas.clearRect(0, 0, 1, 1);
        canvas.fillStyle = color;
        canvas.fillRect(0, 0, 1, 1);
        return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3);
    };
    return [...document.querySelectorAll('.cell b, .cell small')].map((text) =>
        [rgb(getComputedStyle(text).color), rgb(getComputedStyle(text.parentElement).backgroundColor)]);
}"""


@pytest.mark.parametrize(("width", "scheme"), [(390, "dark"), (1440, "light")])
def test_the_page_fits_phone_and_desktop_and_is_readable_in_light_and_dark(
    site: Path, visit: Callable[..., Any], width: int, scheme: str
) -> None:
    page = visit((site / "index.html").as_uri(), width=width, color_scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    pairs = page.evaluate(CELL_COLORS)
    assert len(pairs) > 20 and min(contrast(*pair) for pair in pairs) >= 4.5
    ink = page.evaluate("getComputedStyle(document.querySelector('svg.figure text')).fill")
    # Figures follow the theme of the page.
    assert (sum(map(int, re.findall(r"\d+", ink)[:3])) > 384) == (scheme == "dark")


def test_a_value_of_the_paper_and_its_count_are_on_separate_lines(
    site: Path, visit: Callable[..., Any]
) -> None:
    page = visit((site / "index.html").as_uri())
    cell = page.locator("#success tfoot td.paper").first.inner_text()
    assert re.fullmatch(r"[\d.]+\n+\d+ tasks?", cell.strip())


def contrast(first: list[int], second: list[int]) -> float:
    darker, brighter = sorted((luminance(first), luminance(second)))
    return (brighter + 0.05) / (darker + 0.05)


def luminance(color: list[int]) -> float:
    parts = [part / 255 for part in color]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


LEVELS = Levels(
    starter=Baseline(mean=10.0, sd=0.1, n=8),
    reference=Baseline(mean=4.0, sd=0.1, n=8),
    expert=Baseline(mean=2.0, sd=0.1, n=4),
    ceiling=Ceiling(score=1.0, how="known by <construction>"),
)


@pytest.mark.usefixtures("unsaved_figures")
def test_the_summary_answers_the_questions_of_the_paper(tmp_path: Path, visit: Callable[..., Any]) -> None:
    improvements = {("imdb", True): 0.8, ("imdb", False): 0.4, ("CLRS", True): 0.9, ("CLRS", False): 0.2}
    for (task, memory), improvement in improvements.items():
        for seed in range(2):
            make_run(
                tmp_path / "runs" / f"{task}-{memory}-{seed}",
                improvement + seed / 100,
                task=task,
                seed=seed,
                agent="research",
                model="m",
                options={"memory": memory},
                levels=LEVELS,
            )
    write_report(read_runs([tmp_path / "runs"]), tmp_path / "site", lambda line: None)
    page = visit((tmp_path / "site" / "summary.html").as_uri())
    agents = page.locator("#agents tbody tr").all_text_contents()
    assert "memory True" in agents[0] and "107" in agents[0].split()  # progress: (0.805 + 0.905) / 2 / 0.8
    categories = page.locator("#categories tbody tr td:first-child").all_text_contents()
    assert categories == ["canonical"] * 2 + ["recent research"] * 2
    memory = page.locator("#memory tbody tr").first.inner_text()
    assert "progress" in memory and "100%" in memory
    assert "known by <construction>" in (page.locator("#tasks span").first.get_attribute("title") or "")
    page.locator("text=the full report").click()
    assert page.locator("#progress").count() == 1


@pytest.mark.usefixtures("unsaved_figures")
@pytest.mark.parametrize("file", ["run.json", "result.json", "trace.jsonl", "model_calls.jsonl"])
def test_one_damaged_run_is_named_and_does_not_hide_the_others(
    cli: Callable[..., "subprocess.CompletedProcess[str]"], tmp_path: Path, file: str
) -> None:
    for name in ("one", "two", "three"):
        make_run(tmp_path / "runs" / name, 0.5, ("an observation",), agent=name, trace=name * 10)
    damaged = tmp_path / "runs" / "two" / file
    damaged.write_text('{"number": 7}\n')
    completed = cli("report", tmp_path / "runs", "-o", tmp_path / "site", "--json")
    assert completed.returncode == 0, completed.stderr
    assert json.loads(completed.stdout)["runs"] == 2
    assert f"Skipped a damaged run: {damaged}" in completed.stderr
