"""Write a report: pages, tables and figures, each whole or not at all, and only what changed."""

import time
from collections.abc import Sequence
from pathlib import Path

from mlagentbench.analysis.runs import Run
from mlagentbench.errors import UsageError
from mlagentbench.pages.layout.render import render_page
from mlagentbench.pages.site.content import ReportContent, build_content
from mlagentbench.pages.site.files import write_if_changed
from mlagentbench.pages.site.run_pages import (
    MANIFEST_NAME,
    ReportManifest,
    page_names,
    read_manifest,
    write_run_pages,
)
from mlagentbench.records import Record
from mlagentbench.system.progress import ProgressCallback

PROGRESS_INTERVAL_S = 2.0  # seconds between two lines of progress


class WrittenReport(Record):
    """What a report has become."""

    index: str
    run_counts: str
    runs: int
    faults: int
    unfinished: int
    unsandboxed: int
    tables: tuple[str, ...]
    figures: tuple[str, ...]


def write_report(runs: Sequence[Run], out: Path, say: ProgressCallback) -> WrittenReport:
    """The whole site below `out`, which must be new, empty, or an earlier report."""
    _prepare_output_dir(out)
    tell = _throttle(say)
    seen = write_run_pages(runs, out, tell)
    tell("tables and figures")
    found = build_content(runs, page_names(runs), seen)
    files = _render_files(found)
    before = read_manifest(out).files
    for name, data in files.items():
        write_if_changed(out / name, data)
    for name in set(before) - set(files):
        (out / name).unlink(missing_ok=True)
    pages = dict(zip(page_names(runs), seen, strict=True))
    write_if_changed(
        out / MANIFEST_NAME,
        ReportManifest(pages=pages, files=tuple(sorted(files))).model_dump_json().encode(),
    )
    return WrittenReport(
        index=str((out / "index.html").resolve()),
        run_counts=found.overview.run_counts,
        runs=found.overview.runs,
        faults=found.overview.faults,
        unfinished=found.overview.unfinished,
        unsandboxed=found.overview.unsandboxed,
        tables=tuple(sorted(name for name in files if name.startswith("tables/"))),
        figures=tuple(sorted(name for name in files if name.startswith("figures/"))),
    )


def _prepare_output_dir(out: Path) -> None:
    """A folder that is something else is left alone."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        if not (out / MANIFEST_NAME).is_file():
            if any(out.iterdir()):
                raise UsageError(f"{out} is not empty and holds no report; choose another -o")
            write_if_changed(out / MANIFEST_NAME, ReportManifest().model_dump_json().encode())
    except OSError as error:
        raise UsageError(f"cannot write a report to {out}: {error.strerror}") from error


def _render_files(found: ReportContent) -> dict[str, bytes]:
    about, editions = found.overview.footer, found.editions_text
    files: dict[str, bytes] = {}
    for grid in found.grids:
        files |= {f"tables/{name}": data for name, data in grid.files(about, editions).items()}
    for table in found.tables:
        files |= {f"tables/{name}": data for name, data in table.files(about).items()}
    for picture in found.figures:
        files |= {f"figures/{picture.name}.{ending}": data for ending, data in picture.files.items()}
    files["tables/ABOUT.txt"] = f"All tables in this folder: {about}.\n{found.overview.paragraph}\n".encode()
    index = render_page("site/index.html", styles=["site/site.css"], scripts=["site/site.js"], it=found)
    return {**files, "index.html": index.encode()}  # last, so that whatever it links to is there


def _throttle(say: ProgressCallback) -> ProgressCallback:
    """Nothing of what is done at once, and then a line every two seconds."""
    last = time.monotonic()

    def tell(line: str) -> None:
        nonlocal last
        if time.monotonic() - last >= PROGRESS_INTERVAL_S:
            last = time.monotonic()
            say(line)

    return tell
