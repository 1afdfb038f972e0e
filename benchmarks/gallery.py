"""Makes docs/guides/reports.md and its pictures from real runs: a report, looked at in Chromium.

    python benchmarks/prove.py --out runs/prove
    mlagentbench batch benchmarks/gallery.toml --out runs/gallery
    python benchmarks/gallery.py runs/prove runs/gallery [--grade-steps] [--docs docs]

Needs playwright (extra dev) and Chromium. Exits with 1 if the pictures are more than a repository should carry.
"""

import argparse
import io
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

from mlagentbench.analysis.anytime import grade_steps
from mlagentbench.analysis.runs import Run, read_runs
from mlagentbench.pages.site.overview import build_overview
from mlagentbench.pages.site.report import write_report
from mlagentbench.pages.site.run_pages import page_names

MOST = 1_500_000  # bytes
TALL = 4000  # pixels, more than any part of a page
LONG = 4  # steps, from which on a curve has something to show
FIGURES = ("heat-success", "heat-improvement")


@dataclass(frozen=True)
class Shot:
    """A picture of a page: the part of it, how it is looked at, and what is to be seen."""

    name: str
    caption: str
    part: str = ""  # a selector; else what is seen without scrolling
    width: int = 1200
    height: int = 900
    scheme: Literal["light", "dark"] = "light"
    page: str = "index"


SHOTS = (
    Shot(
        "report", "The top of the report: what was run, and what a reader must know before the first figure."
    ),
    Shot(
        "success",
        "Success by the rule of the paper, with counts, intervals, and the paper's own columns.",
        "#success",
    ),
    Shot(
        "improvement",
        "Improvement over the starter among valid submissions, in the dark.",
        "#improvement",
        scheme="dark",
    ),
    Shot("wrong", "What went wrong: each number leads to its runs.", "#wrong"),
    Shot("efficiency", "What runs and successes cost.", "#efficiency"),
    Shot("anytime", "What runs would have been worth had they been stopped earlier.", "#anytime"),
    Shot("profile", "How near everybody comes to the best.", "#profile"),
    Shot("ranks", "Ranks, and how sure they are.", "#ranks", scheme="dark"),
    Shot("run", "One run: its verdict, its timeline, its steps.", page="run"),
    Shot(
        "step",
        "A step in the dark: thought, action, observation, and what it changed.",
        page="step",
        scheme="dark",
    ),
    Shot("phone", "The report on a phone.", width=390, height=800, scheme="dark"),
    Shot("phone-run", "A run on a phone.", width=390, height=800, page="run"),
)


def telling(runs: list[Run]) -> Run:
    """The run that shows most: a success with many steps, of a contestant that had to find it."""

    def weight(run: Run) -> tuple[bool, bool, int]:
        found = run.result
        return bool(found and found.success), run.spec.agent != "reference", found.steps if found else 0

    return max(runs, key=weight)


def pictures(browser: Browser, site: Path, run: str, step: int) -> Iterator[tuple[Shot, bytes]]:
    places = {"index": "index.html", "run": f"runs/{run}.html", "step": f"runs/{run}.html"}
    for shot in SHOTS:
        page = browser.new_page(
            viewport={"width": shot.width, "height": shot.height}, color_scheme=shot.scheme
        )
        anchor = f"#step-{step}" if shot.page == "step" else ""
        page.goto((site / places[shot.page]).as_uri() + anchor)
        yield shot, small(seen(page, shot.part, shot.width))
        page.close()


def seen(page: Page, part: str, width: int) -> bytes:
    if not part:
        return page.screenshot()
    page.set_viewport_size(
        {"width": width, "height": TALL}
    )  # what is scrolled has the head of the page over it
    return page.locator(part).screenshot()


def small(picture: bytes) -> bytes:
    """Pages have few colours."""
    target = io.BytesIO()
    Image.open(io.BytesIO(picture)).convert("RGB").quantize(256, dither=Image.Dither.NONE).save(
        target, "PNG", optimize=True
    )
    return target.getvalue()


def text(runs: list[Run], shots: list[Shot], run: Run) -> str:
    known = build_overview(runs)
    lines = [
        "# Gallery",
        "",
        "<!-- made by benchmarks/gallery.py: change it there -->",
        "",
        f"Pictures of real runs: those of `make prove`, and of a small local model. {known.paragraph}",
        "",
        "```",
        "python benchmarks/prove.py --out runs/prove",
        "mlagentbench batch benchmarks/gallery.toml --out runs/gallery",
        "mlagentbench report runs/prove runs/gallery -o report",
        "python benchmarks/gallery.py runs/prove runs/gallery --grade-steps   # these pictures",
        "```",
        "",
        f"{known.run_counts}: faults, unfinished and unsandboxed runs are in no picture hidden.",
        f"The run that is shown is `{run.name}`.",
    ]
    for shot in shots:
        lines += ["", f"**{shot.caption}**", "", f"![{shot.caption}](gallery/{shot.name}.png)"]
    lines += ["", "## Figures for a paper", "", "As the report writes them, in SVG and PDF:"]
    for name in FIGURES:
        lines += ["", f"![{name}](gallery/{name}.svg)"]
    return "\n".join([*lines, ""])


def chromium() -> str:
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    return found or sys.exit("gallery: Chromium is needed: apt-get install chromium")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--docs", type=Path, default=Path(__file__).parents[1] / "docs")
    parser.add_argument("--grade-steps", action="store_true", help=f"of runs with {LONG} steps or more")
    given = parser.parse_args()
    runs = read_runs(given.folders)

    def say(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    if given.grade_steps:
        grade_steps([run for run in runs if len(run.steps) >= LONG], say)
    chosen = telling(runs)
    step = max((step.number for step in chosen.steps if step.execution), default=1)
    target = given.docs / "gallery"
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    with tempfile.TemporaryDirectory(prefix="mlagentbench-gallery-") as name, sync_playwright() as play:
        site = Path(name) / "site"
        write_report(runs, site, say)
        browser = play.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        page = dict(zip((run.folder.path for run in runs), page_names(runs), strict=True))[chosen.folder.path]
        for shot, picture in pictures(browser, site, page, step):
            (target / f"{shot.name}.png").write_bytes(picture)
        browser.close()
        for figure in FIGURES:
            shutil.copyfile(site / "figures" / f"{figure}.svg", target / f"{figure}.svg")
    (given.docs / "gallery.md").write_text(text(runs, list(SHOTS), chosen))
    size = sum(path.stat().st_size for path in target.iterdir())
    print(f"{len(SHOTS)} pictures and {len(FIGURES)} figures, {size / 1e6:.2f} MB, in {target}")
    return 0 if size <= MOST else 1


if __name__ == "__main__":
    sys.exit(main())
