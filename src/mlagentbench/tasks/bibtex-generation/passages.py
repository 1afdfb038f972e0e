"""Finds the passages of a package's documentation that cite papers of its bibliography."""

import re
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

GAP = "[CITATION]"
TEXT_FILES = (".py", ".pyx", ".rst", ".md", ".txt")
MAX_FILE_BYTES = 3_000_000
MIN_WORDS, MAX_WORDS = 8, 200  # of three letters and more
MAX_CITED = 6
CITE = re.compile(r":(?:foot)?cite(?::?[a-z]*)?:`([^`]+)`|\{(?:foot)?cite(?::[a-z]+)?\}`([^`]+)`")
PARAGRAPH_END = re.compile(r"\n\s*(?:#\s*)?\n|\"\"\"|'''|\n#{20,}\n")
RULE = re.compile(r"[-=~]{4,}")  # under a heading, or in a table
NOT_PROSE = re.compile(r">>>|\bdef |\bclass |^\s*import|[-=~]{4,}|\.\. \w+::|^\s*:\w+|\{eval-rst\}")


@dataclass(frozen=True)
class Passage:
    """A passage with gaps, the file that it is from, and the keys that were cited in the gaps."""

    source: str
    text: str
    keys: tuple[str, ...]


def read_package(archive: Path) -> tuple[list[str], dict[str, str]]:
    """Return the BibTeX files of a source archive, and its texts by the name of their file."""
    bibliographies, texts = [], {}
    with tarfile.open(archive) as package:
        for member in package:
            if not member.isfile() or member.size > MAX_FILE_BYTES:
                continue
            if member.name.endswith((".bib", *TEXT_FILES)):
                file = package.extractfile(member)
                assert file
                content = file.read().decode("utf-8", "replace")
                if member.name.endswith(".bib"):
                    bibliographies.append(content)
                else:
                    texts[member.name] = content
    return bibliographies, texts


def find_passages(source: str, text: str, known: set[str]) -> Iterator[Passage]:
    """Yield the paragraphs that cite known keys, each with the paragraph before it if that is prose."""
    paragraphs = PARAGRAPH_END.split(text)
    for number, paragraph in enumerate(paragraphs):
        keys = [key.strip() for groups in CITE.findall(paragraph) for key in "".join(groups).split(",")]
        if not keys or not known.issuperset(keys) or RULE.search(paragraph) or "{eval-rst}" in paragraph:
            continue
        passage = clean(CITE.sub(GAP, paragraph))
        before = paragraphs[number - 1] if number else ""
        if is_prose(before) and not CITE.search(before):
            passage = f"{clean(before)} {passage}"
        words = len(re.findall(r"[A-Za-z]{3,}", passage.replace(GAP, "")))
        distinct = tuple(dict.fromkeys(keys))
        if MIN_WORDS <= words <= MAX_WORDS and len(distinct) <= MAX_CITED:
            yield Passage(source, passage, distinct)


def is_prose(paragraph: str) -> bool:
    """Whether a paragraph is text, not code or a list of parameters."""
    words = len(re.findall(r"[A-Za-z]{2,}", paragraph))
    symbols = paragraph.count("=") + paragraph.count("(")
    return words >= 3 and not NOT_PROSE.search(paragraph) and symbols <= 3 + words / 6


def clean(paragraph: str) -> str:
    """Return a paragraph as plain text on one line."""
    lines = [re.sub(r"^\s*(#+|\*|-|\d+\.)?\s*", "", line) for line in paragraph.split("\n")]
    text = re.sub(r":[\w:+-]+:`([^`<]+?)\s*(?:<[^`]*>)?`", r"\1", "\n".join(lines))
    text = re.sub(r"`+|[*|]{1,3}", "", text)
    return " ".join(text.split())
