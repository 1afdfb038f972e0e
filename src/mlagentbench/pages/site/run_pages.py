"""The pages of all runs: unique file names, rendered in parallel, and only if the run has changed."""

import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path

from pydantic import Field

from mlagentbench.analysis.runs import Run
from mlagentbench.pages.site.run_digest import RunDigest, digest_runs, fingerprint_run
from mlagentbench.records import Record
from mlagentbench.system.progress import ProgressCallback

MANIFEST_NAME = "made.json"
PAGES_PER_JOB = 10  # pages that a process renders before it reports progress
MIN_PAGES_FOR_POOL = 40  # with fewer pages, starting processes costs more than it saves
MAX_FILE_NAME_CHARS = 120


class ReportManifest(Record):
    """made.json: the files of a report and the digest of every run; it also marks a folder as a report.

    `inputs` identifies everything that the tables and figures were computed from.
    """

    pages: dict[str, RunDigest] = Field(default_factory=dict)
    files: tuple[str, ...] = ()
    inputs: str = ""


def page_names(runs: Sequence[Run]) -> list[str]:
    """A unique file name for each run: its folder name, with the parent folder's name if ambiguous."""
    short = [_safe_file_name(run.name) for run in runs]
    occurrences = Counter(short)
    long = [_safe_file_name(f"{run.folder.path.parent.name}-{run.name}") for run in runs]
    names = [name if occurrences[name] == 1 else longer for name, longer in zip(short, long, strict=True)]
    used: dict[str, int] = {}
    for index, name in enumerate(names):
        # Some file systems ignore case.
        used[name.lower()] = number = used.get(name.lower(), 0) + 1
        names[index] = f"{name}-{number}" if number > 1 else name
    return names


def _safe_file_name(name: str) -> str:
    return re.sub(r"[^\w.=-]+", "-", name, flags=re.ASCII).strip(".-")[:MAX_FILE_NAME_CHARS] or "run"


def write_run_pages(runs: Sequence[Run], out: Path, progress: ProgressCallback) -> list[RunDigest]:
    """Write missing and outdated pages, delete those of removed runs, and return the digest of each run."""
    pages = page_names(runs)
    (out / "runs").mkdir(parents=True, exist_ok=True)
    known = read_manifest(out).pages
    jobs = {
        page: run.folder.path
        for page, run in zip(pages, runs, strict=True)
        if not _is_current(out, page, run, known)
    }
    digests = {page: known[page] for page in pages if page not in jobs}
    for page, digest in _digest_all(jobs, out):
        digests[page] = digest
        progress(f"{len(digests):,} of {len(pages):,} runs")
    for page in known.keys() - digests.keys():
        _page_path(out, page).unlink(missing_ok=True)
    return [digests[page] for page in pages]


def _page_path(out: Path, page: str) -> Path:
    return out / "runs" / f"{page}.html"


def _is_current(out: Path, page: str, run: Run, known: dict[str, RunDigest]) -> bool:
    return (
        page in known
        and known[page].fingerprint == fingerprint_run(run.folder.path)
        and _page_path(out, page).is_file()
    )


def read_manifest(out: Path) -> ReportManifest:
    """The manifest of an earlier report in the same folder; empty if there is none or of another version."""
    try:
        return ReportManifest.model_validate_json((out / MANIFEST_NAME).read_bytes())
    except (OSError, ValueError):
        return ReportManifest()


def _digest_all(jobs: dict[str, Path], out: Path) -> Iterator[tuple[str, RunDigest]]:
    """Digest runs and write their pages, in several processes if there are many; yield as they finish."""
    pages = list(jobs)
    arguments = [(path, _page_path(out, page)) for page, path in jobs.items()]
    cores = len(os.sched_getaffinity(0))
    if len(arguments) < MIN_PAGES_FOR_POOL or cores == 1:
        for page, argument in zip(pages, arguments, strict=True):
            yield page, digest_runs([argument])[0]
        return
    # A forked process would copy locks that threads hold.
    with ProcessPoolExecutor(cores, get_context("spawn")) as pool:
        chunks = [slice(start, start + PAGES_PER_JOB) for start in range(0, len(arguments), PAGES_PER_JOB)]
        futures = {pool.submit(digest_runs, arguments[chunk]): chunk for chunk in chunks}
        try:
            for future in as_completed(futures):
                yield from zip(pages[futures[future]], future.result(), strict=True)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
