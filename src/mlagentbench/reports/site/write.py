"""Write a report: pages, tables and figures, each whole or not at all, and only what changed."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from mlagentbench.errors import UsageError
from mlagentbench.records import Record
from mlagentbench.reports.look.look import page
from mlagentbench.reports.runs import Run
from mlagentbench.reports.site.content import Content, content
from mlagentbench.reports.site.files import keep
from mlagentbench.reports.site.pages import MADE, Made, made, names, write_pages

Say = Callable[[str], None]
PATIENCE = 2.0  # seconds between two lines of progress


class Written(Record):
    """What a report has become."""

    index: str
    said: str
    runs: int
    faults: int
    unfinished: int
    unsandboxed: int
    tables: tuple[str, ...]
    figures: tuple[str, ...]


def write(runs: Sequence[Run], out: Path, say: Say) -> Written:
    """The whole site below `out`, which must be new, empty, or an earlier report."""
    _claim(out)
    tell = _paced(say)
    seen = write_pages(runs, out, tell)
    tell("tables and figures")
    found = content(runs, names(runs), seen)
    files = _files(found)
    before = made(out).files
    for name, data in files.items():
        keep(out / name, data)
    for name in set(before) - set(files):
        (out / name).unlink(missing_ok=True)
    pages = dict(zip(names(runs), seen, strict=True))
    keep(out / MADE, Made(pages=pages, files=tuple(sorted(files))).model_dump_json().encode())
    return Written(
        index=str((out / "index.html").resolve()),
        said=found.facts.number,
        runs=found.facts.runs,
        faults=found.facts.faults,
        unfinished=found.facts.unfinished,
        unsandboxed=found.facts.unsandboxed,
        tables=tuple(sorted(name for name in files if name.startswith("tables/"))),
        figures=tuple(sorted(name for name in files if name.startswith("figures/"))),
    )


def _claim(out: Path) -> None:
    """A folder that is something else is left alone."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        if not (out / MADE).is_file():
            if any(out.iterdir()):
                raise UsageError(f"{out} is not empty and holds no report; choose another -o")
            keep(out / MADE, Made().model_dump_json().encode())
    except OSError as error:
        raise UsageError(f"cannot write a report to {out}: {error.strerror}") from error


def _files(found: Content) -> dict[str, bytes]:
    about, editions = found.facts.foot, found.editions
    files: dict[str, bytes] = {}
    for grid in found.grids:
        files |= {f"tables/{name}": data for name, data in grid.files(about, editions).items()}
    for table in found.tables:
        files |= {f"tables/{name}": data for name, data in table.files(about).items()}
    for picture in found.pictures:
        files |= {f"figures/{picture.name}.{ending}": data for ending, data in picture.files.items()}
    files["tables/ABOUT.txt"] = f"All tables in this folder: {about}.\n{found.facts.paragraph}\n".encode()
    index = page("site/index.html", styles=["site/site.css"], scripts=["site/site.js"], it=found)
    return {**files, "index.html": index.encode()}  # last, so that whatever it links to is there


def _paced(say: Say) -> Say:
    """Nothing of what is done at once, and then a line every two seconds."""
    last = time.monotonic()

    def tell(line: str) -> None:
        nonlocal last
        if time.monotonic() - last >= PATIENCE:
            last = time.monotonic()
            say(line)

    return tell
