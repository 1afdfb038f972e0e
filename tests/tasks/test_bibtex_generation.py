"""The bibtex-generation task: passages without leaks, readable references, and a strict reader of BibTeX."""

import io
import json
import sys
import tarfile
import zipfile
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from mlagentbench.discovery import load_module_from_file
from mlagentbench.task import BUILTIN_TASKS_DIR

TASK = BUILTIN_TASKS_DIR / "bibtex-generation"
FILES = 40
ARTICLE = r"""@article{smith2012,
  author = {Smith, John A. and von Neumann, J. and {The Group}},
  title = "A {N}ew {\"O}sterreich",
  journal = {J. Phys.} # { A},
  year = 2012, volume = {6}, number = {3}, pages = {175--180}, doi = {10.1000/ABC},
}
"""
RIGHT = {
    "type": "article",
    "author": [["smith", "j"], ["vonneumann", "j"], ["thegroup", ""]],
    "title": "anewosterreich",
    "journal": "jphysa",
    "year": "2012",
    "volume": "6",
    "number": "3",
    "pages": ["175", "180"],
    "doi": "10.1000/abc",
}


@pytest.fixture(scope="module")
def grader() -> ModuleType:
    return load_module_from_file(TASK / "grade.py")


@pytest.fixture(scope="module")
def prepare_module() -> ModuleType:
    sys.path.append(str(TASK))
    return load_module_from_file(TASK / "prepare.py")


def prepare(prepare_module: ModuleType, raw: Path, folder: Path, seed: int) -> dict[str, Any]:
    public, private = folder / "public", folder / "private"
    public.mkdir(parents=True)
    private.mkdir()
    prepare_module.prepare("open", raw, public, private, seed)
    return {
        "library": (public / "library.txt").read_text().splitlines(),
        "examples": json.loads((public / "examples.json").read_text()),
        "hidden": json.loads((private / "passages.json").read_text()),
        "entries": json.loads((private / "entries.json").read_text()),
        "public": public,
    }


@pytest.fixture(scope="module")
def archives(prepare_module, tmp_path_factory) -> Path:
    """Make archives with the layout of the packages; the first one has texts that cite its references."""
    raw = tmp_path_factory.mktemp("raw")
    for position, source in enumerate(prepare_module._read_sources("open")):
        if source["file"].endswith(".whl"):
            with zipfile.ZipFile(raw / source["file"], "w") as wheel:
                for name in prepare_module.ENCODER_FILES:
                    wheel.writestr(f"{prepare_module.ENCODER_MEMBER}/{name}", name)
            continue
        files = make_package() if position == 0 else {"other/readme.md": "nothing"}
        with tarfile.open(raw / source["file"], "w:gz") as package:
            for name, text in files.items():
                data = text.encode()
                info = tarfile.TarInfo(name)
                info.size = len(data)
                package.addfile(info, io.BytesIO(data))
    return raw


def make_words(number: int, count: int) -> str:
    """Return words of letters that no other number has."""
    return " ".join(f"word{chr(97 + number // 26)}{chr(97 + number % 26)}{chr(97 + i)}" for i in range(count))


def make_package() -> dict[str, str]:
    entries = [
        f"@{kind}{{key{number}, author={{Family{number}, Given}}, title={{Title word{number}}},"
        f" {name}={{Venue {number}}}, year={{{1980 + number}}}}}"
        for number in range(FILES)
        for kind, name in [
            (("article", "journal"), ("inproceedings", "booktitle"), ("book", "publisher"))[number % 3]
        ]
    ]
    files = {
        f"package/module{number}.py": f'"""Summary {make_words(number, 5)}.\n\n'
        f'As in :footcite:t:`key{number}`, {make_words(number + FILES, 20)}.\n"""\n'
        for number in range(FILES)
    }
    return {"package/references.bib": "\n".join(entries), **files}


def test_passages_are_split_by_file_and_only_hidden_ones_have_no_public_answer(
    prepare_module, archives, tmp_path
):
    data = prepare(prepare_module, archives, tmp_path, seed=2**62 + 1)
    texts = [{passage["text"] for passage in data[part]} for part in ("examples", "hidden")]
    assert len(data["library"]) == len(data["entries"]) == FILES
    assert texts[0] and texts[1] and not texts[0] & texts[1]
    assert len(texts[0] | texts[1]) == FILES and all("[CITATION]" in text for text in texts[0] | texts[1])
    assert all("key" not in text for text in texts[0] | texts[1])
    hidden_keys = {key for passage in data["hidden"] for key in passage["keys"]}
    assert not [key for key in hidden_keys if key in (data["public"] / "examples.bib").read_text().split("{")]


def test_the_same_seed_makes_the_same_data_and_another_makes_other_data(prepare_module, archives, tmp_path):
    one, again, other = (
        prepare(prepare_module, archives, tmp_path / name, seed)
        for name, seed in (("one", 1), ("again", 1), ("other", 2))
    )
    for part in ("library", "examples", "hidden"):
        assert one[part] == again[part] != other[part]


def test_every_field_is_in_the_reference_and_the_expert_can_read_it(
    prepare_module, archives, tmp_path, grader
):
    data = prepare(prepare_module, archives, tmp_path, seed=3)
    expert = load_module_from_file(TASK / "expert" / "library.py")
    _, entries = expert.read_library(data["public"] / "library.txt")
    accuracy = [
        grader.compare_entry(grader.parse_bibtex(expert.write_bibtex(key, entry))[0], data["entries"][key])
        for key, entry in entries.items()
    ]
    assert sum(accuracy) / len(accuracy) > 0.8  # "Venue 3" does not look like a publisher
    (example,) = grader.parse_bibtex((data["public"] / "examples.bib").read_text())[:1]
    assert grader.compare_entry(example, data["entries"][example.key]) == 1


def test_an_example_that_is_much_like_a_hidden_passage_is_left_out(prepare_module):
    passages = [
        prepare_module.Passage(
            f"file{number}", f"{make_words(number % 5, 20)} {make_words(number, 5)}", ("a",)
        )
        for number in range(40)
    ]
    examples, hidden = prepare_module.split_passages(passages, seed=1)
    assert hidden and not examples


def test_an_entry_is_compared_by_content_and_not_by_form(grader):
    (entry,) = grader.parse_bibtex(ARTICLE)
    assert grader.normalize_entry(entry) == RIGHT
    assert grader.score_answer(ARTICLE, ["smith2012"], {"smith2012": RIGHT}) == 1


@pytest.mark.parametrize(
    ("answer", "score"),
    [
        ("", 0),
        ("no entries here", 0),
        (ARTICLE + ARTICLE, 0),  # a key twice
        (ARTICLE.replace("smith2012", "other"), 0),
        (ARTICLE + ARTICLE.replace("smith2012", "other"), 2 / 3),  # one entry too many
        (ARTICLE.replace("year = 2012", "year = 2013"), 8 / 9),
        (ARTICLE.replace("year = 2012,", ""), 8 / 9),
        (ARTICLE.replace("year =", "booktitle = {x}, year ="), 9 / 10),
        (ARTICLE.replace("year =", "note = {x}, year ="), 1),  # a field that is not graded
        (ARTICLE[:-3], 0),
        (ARTICLE.replace("journal", "year"), 0),  # a field twice
        ("".join(ARTICLE.replace("smith2012", f"key{number}") for number in range(21)), 0),
        ("@article{smith2012, title = {" + "{" * 60, 0),
    ],
)
def test_wrong_missing_and_additional_parts_cost(answer, score, grader):
    assert grader.score_answer(answer, ["smith2012"], {"smith2012": RIGHT}) == pytest.approx(score)


def test_only_an_array_of_bytes_is_an_answer(grader):
    import numpy as np

    assert grader.read_answer([np.frombuffer(b"caf\xc3\xa9", np.uint8)]) == "café"
    for arrays in ([], [np.zeros(3)], [np.zeros((2, 2), np.uint8)], [np.zeros(2, np.uint8)] * 2):
        with pytest.raises(grader.InvalidSubmission, match="array of bytes"):
            grader.read_answer(arrays)
