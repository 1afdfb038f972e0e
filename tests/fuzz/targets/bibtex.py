"""BibTeX in answers to bibtex-generation: every text has a score from 0 to 1."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from mutation import mutate_bytes

from mlagentbench.discovery import load_module_from_file
from mlagentbench.task import BUILTIN_TASKS_DIR

EXPECTED_ERRORS = ()
CASES_PER_1000, SHORT_CASES = 60, 300
SEEDS = [
    rb"""@article{a, author = {Smith, J. and {\"O}zg{\"u}r, A. and {The Group}}, title = "On {X}: \alpha",
 journal = {J. Phys.} # { A}, year = 2012, volume = {6}, pages = {175--180}, doi = {10.1000/abc},}""",
    b"@comment{x {y} } @book{b, publisher={P}, title={T}, author={von Neumann, Jr., John}, year={1999}}",
    b"@inproceedings{a,booktitle={In},pages={1},title={x}}\n@misc{b,}",
]
TOKENS = [
    *(b"@", b"{", b"}", b'"', b"\\", b",", b"=", b"#", b" and ", b"--", b"@article{a,", b"{{{{{{{{"),
    *(b"author = {", b"pages = {", b"doi = {", b"\\'", b"\\c{", b"\n", b"\0", "ﬀİ".encode(), b"\xff"),
]
RIGHT = {"type": "article", "author": [["smith", "j"]], "title": "onx", "year": "2012", "pages": ["1", "2"]}

make_case = mutate_bytes(SEEDS, TOKENS)


@contextmanager
def open_fixture(folder: Path) -> Iterator[ModuleType]:
    """Load the grader."""
    yield load_module_from_file(BUILTIN_TASKS_DIR / "bibtex-generation" / "grade.py")


def run_case(case: bytes, grader: ModuleType) -> None:
    text = case.decode("utf-8", "replace")
    assert 0 <= grader.score_answer(text, ["a", "b"], {"a": RIGHT, "b": RIGHT}) <= 1
