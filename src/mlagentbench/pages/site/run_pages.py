"""The pages of all runs: names that no two share, made by as many processes as there are cores, and only if changed."""

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
PAGES_PER_JOB = 10  # pages that a process makes before it is heard of
MIN_PAGES_FOR_POOL = 40  # so many pages are worth a second process


class ReportManifest(Record):
    """made.json: pages that are there, and what was seen when they were made; also the mark of a report's folder."""

    pages: dict[str, RunDigest] = Field(default_factory=dict)
    files: tuple[str, ...] = ()


def page_names(runs: Sequence[Run]) -> list[str]:
    """A file name for each run: its folder's, with the folder above where two are called the same."""
    plain = [_safe_file_name(run.name) for run in runs]
    often = Counter(plain)
    longer = [_safe_file_name(f"{run.folder.path.parent.name}-{run.name}") for run in runs]
    chosen = [name if often[name] == 1 else long for name, long in zip(plain, longer, strict=True)]
    taken: dict[str, int] = {}
    for place, name in enumerate(chosen):
        taken[name.lower()] = number = taken.get(name.lower(), 0) + 1  # not every file system tells a from A
        chosen[place] = f"{name}-{number}" if number > 1 else name
    return chosen


def _safe_file_name(name: str) -> str:
    return re.sub(r"[^\w.=-]+", "-", name, flags=re.ASCII).strip(".-")[:120] or "run"


def write_run_pages(runs: Sequence[Run], out: Path, say: ProgressCallback) -> list[RunDigest]:
    """Write what is missing or old, drop what is no run of this report any more; what was seen in each run."""
    pages = page_names(runs)
    (out / "runs").mkdir(parents=True, exist_ok=True)
    known = read_manifest(out).pages
    old = [page for page, run in zip(pages, runs, strict=True) if not _is_current(out, page, run, known)]
    jobs = {page: run.folder.path for page, run in zip(pages, runs, strict=True) if page in set(old)}
    seen = {page: known[page] for page in pages if page not in jobs}
    for page, found in _digest_all(jobs, out):
        seen[page] = found
        say(f"{len(seen):,} of {len(pages):,} runs")
    for page in known.keys() - seen.keys():
        _page_path(out, page).unlink(missing_ok=True)
    return [seen[page] for page in pages]


def _page_path(out: Path, name: str) -> Path:
    return out / "runs" / f"{name}.html"


def _is_current(out: Path, page: str, run: Run, known: dict[str, RunDigest]) -> bool:
    return (
        page in known
        and known[page].fingerprint == fingerprint_run(run.folder.path)
        and _page_path(out, page).is_file()
    )


def read_manifest(out: Path) -> ReportManifest:
    """What an earlier report left here."""
    try:
        return ReportManifest.model_validate_json((out / MANIFEST_NAME).read_bytes())
    except (OSError, ValueError):  # of another version, or none: everything is made anew
        return ReportManifest()


def _digest_all(jobs: dict[str, Path], out: Path) -> Iterator[tuple[str, RunDigest]]:
    todo = [(path, _page_path(out, page)) for page, path in jobs.items()]
    cores = len(os.sched_getaffinity(0))
    if len(todo) < MIN_PAGES_FOR_POOL or cores == 1:
        for page, job in zip(jobs, todo, strict=True):
            yield page, digest_runs([job])[0]
        return
    with ProcessPoolExecutor(cores, get_context("spawn")) as processes:  # a fork would copy threads' locks
        shares = [slice(start, start + PAGES_PER_JOB) for start in range(0, len(todo), PAGES_PER_JOB)]
        asked = {processes.submit(digest_runs, todo[share]): share for share in shares}
        names_ = list(jobs)
        try:
            for done in as_completed(asked):
                yield from zip(names_[asked[done]], done.result(), strict=True)
        except BaseException:
            processes.shutdown(cancel_futures=True)
            raise
