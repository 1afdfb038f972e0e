"""The files that pages of the documentation name exist, and tests are not named."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "src" / "mlagentbench"
PAGES = [*ROOT.glob("docs/**/*.md"), *ROOT.glob("*.md")]
# What commands write, such as runs/, is in some checkouts only.
GENERATED = {line.strip("/") for line in (ROOT / ".gitignore").read_text().split()}
FOLDERS = {path.name for parent in (ROOT, SOURCES) for path in parent.iterdir() if path.is_dir()} - GENERATED
PATH = re.compile(r"`([\w.-]+(?:/[\w.-]+)+/?)`")  # such as `runner/run.py` or `docs/extend/`


def is_placeholder(name: str) -> bool:
    """Whether a part of the path stands for something else, such as the N of `formats/N/`."""
    return any(Path(part).stem.isupper() for part in name.split("/") if not part.endswith(".md"))


def test_every_file_that_a_page_names_exists() -> None:
    named = {
        (page.name, name)
        for page in PAGES
        for name in PATH.findall(page.read_text())
        if name.partition("/")[0] in FOLDERS and not is_placeholder(name)
    }
    missing = [
        (page, name) for page, name in named if not (ROOT / name).exists() and not (SOURCES / name).exists()
    ]
    assert not missing and len(named) > 50


def test_no_page_names_a_test() -> None:
    assert not [page for page in PAGES if re.search(r"`test_\w+`", page.read_text())]
