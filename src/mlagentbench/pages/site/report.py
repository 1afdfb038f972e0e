"""Writing a report: pages, tables and figures. Files are replaced atomically, and only if they changed."""

import hashlib
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from mlagentbench.analysis.runs import Run
from mlagentbench.analysis.settings import task_category
from mlagentbench.errors import UsageError
from mlagentbench.pages.layout.render import render_page
from mlagentbench.pages.site.content import ReportContent, build_content
from mlagentbench.pages.site.files import write_if_changed
from mlagentbench.pages.site.overview import build_overview
from mlagentbench.pages.site.run_digest import RunDigest
from mlagentbench.pages.site.run_pages import (
    MANIFEST_NAME,
    ReportManifest,
    page_names,
    read_manifest,
    write_run_pages,
)
from mlagentbench.records import Record
from mlagentbench.system.progress import ProgressCallback

PROGRESS_INTERVAL_S = 2.0


class WrittenReport(Record):
    """Where a report is, and what it contains."""

    index: str
    run_counts: str
    runs: int
    faults: int
    unfinished: int
    unsandboxed: int
    tables: tuple[str, ...]
    figures: tuple[str, ...]


def write_report(runs: Sequence[Run], out: Path, progress: ProgressCallback) -> WrittenReport:
    """Write the report into `out`, which must be new, empty, or an earlier report."""
    _prepare_output_dir(out)
    progress = _throttle(progress)
    digests = write_run_pages(runs, out, progress)
    pages = dict(zip(page_names(runs), digests, strict=True))
    old, inputs = read_manifest(out), _fingerprint_inputs(runs, pages)
    files = old.files
    if old.inputs != inputs or not all((out / name).is_file() for name in files):
        progress("tables and figures")
        files = _write_files(build_content(runs, list(pages), digests), out, old.files)
        manifest = ReportManifest(pages=pages, files=files, inputs=inputs)
        write_if_changed(out / MANIFEST_NAME, manifest.model_dump_json().encode())
    overview = build_overview(runs)
    return WrittenReport(
        index=str((out / "index.html").resolve()),
        run_counts=overview.run_counts,
        runs=overview.runs,
        faults=overview.faults,
        unfinished=overview.unfinished,
        unsandboxed=overview.unsandboxed,
        tables=tuple(name for name in files if name.startswith("tables/")),
        figures=tuple(name for name in files if name.startswith("figures/")),
    )


def _fingerprint_inputs(runs: Sequence[Run], pages: Mapping[str, RunDigest]) -> str:
    """A hash that changes whenever a table or figure might: the runs, and what is not in their files."""
    parts = [
        (page, digest.fingerprint, run.agent_label, task_category(run.spec.task))
        for run, (page, digest) in zip(runs, pages.items(), strict=True)
    ]
    return hashlib.blake2b(repr(parts).encode(), digest_size=12).hexdigest()


def _write_files(content: ReportContent, out: Path, old_files: Sequence[str]) -> tuple[str, ...]:
    """Write everything but the pages of the runs, and delete what an earlier report had besides."""
    files = _render_files(content)
    for name, data in files.items():
        write_if_changed(out / name, data)
    for name in set(old_files) - set(files):
        (out / name).unlink(missing_ok=True)
    return tuple(sorted(files))


def _prepare_output_dir(out: Path) -> None:
    """Create the folder; refuse one that holds anything but a report."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        if not (out / MANIFEST_NAME).is_file():
            if any(out.iterdir()):
                raise UsageError(f"{out} is not empty and contains no report. Choose another folder with -o.")
            write_if_changed(out / MANIFEST_NAME, ReportManifest().model_dump_json().encode())
    except OSError as error:
        raise UsageError(f"Cannot write a report to {out}: {error.strerror}") from error


def _render_files(content: ReportContent) -> dict[str, bytes]:
    about, editions = content.overview.footer, content.editions_text
    files: dict[str, bytes] = {}
    for grid in content.grids.values():
        files |= {f"tables/{name}": data for name, data in grid.files(about, editions).items()}
    for table in content.tables:
        files |= {f"tables/{name}": data for name, data in table.files(about).items()}
    for figure in content.figures:
        files |= {f"figures/{figure.name}.{extension}": data for extension, data in figure.files.items()}
    description = f"All tables in this folder: {about}.\n{content.overview.paragraph}\n"
    files["tables/ABOUT.txt"] = description.encode()
    # The index comes last, so that everything it links to exists.
    for name, index_link in (("summary.html", "index.html"), ("index.html", "")):
        page = render_page(
            f"site/{name}",
            styles=["site/site.css"],
            scripts=["site/site.js"],
            report=content,
            index_link=index_link,
        )
        files[name] = page.encode()
    return files


def _throttle(progress: ProgressCallback) -> ProgressCallback:
    """Report at most one line every PROGRESS_INTERVAL_S, and nothing in the first interval."""
    last = time.monotonic()

    def report_line(line: str) -> None:
        nonlocal last
        if time.monotonic() - last >= PROGRESS_INTERVAL_S:
            last = time.monotonic()
            progress(line)

    return report_line
