"""Grades a citation tool: asks it about hidden passages, one at a time, and reads the BibTeX it returns."""

import json
import re
import time
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from mlagentbench.grading.checks import InvalidSubmission, Program

START_SECONDS = 60
TOTAL_SECONDS = 180  # of all answers together
MAX_ENTRIES = 20  # in one answer
MAX_ANSWER_BYTES = 65_536
GRADED_FIELDS = (
    *("author", "title", "journal", "booktitle", "publisher"),
    *("year", "volume", "number", "pages", "doi"),
)

MAX_NESTED_BRACES = 50
ENTRY = re.compile(r"@\s*(\w+)\s*\{\s*")
KEY = re.compile(r"[^\s,{}=\"]+")
FIELD_NAME = re.compile(r"\s*([A-Za-z][\w-]*)\s*=\s*")
SKIPPED_TYPES = ("comment", "string", "preamble")
ACCENTS = {"`": "\u0300", "'": "\u0301", "^": "\u0302", "~": "\u0303", "=": "\u0304", "u": "\u0306"}
ACCENTS |= {".": "\u0307", '"': "\u0308", "r": "\u030a", "H": "\u030b", "v": "\u030c", "c": "\u0327"}
ACCENTS |= {"k": "\u0328"}
LETTERS = {"ss": "ß", "o": "ø", "O": "Ø", "l": "ł", "L": "Ł", "ae": "æ", "AE": "Æ", "aa": "å", "AA": "Å"}
LETTERS |= {"i": "i", "j": "j", "oe": "œ", "OE": "Œ"}


class BibtexError(ValueError):
    """The text is not BibTeX."""


@dataclass(frozen=True)
class Entry:
    """One entry; names of fields are in lower case, values are as they were written."""

    type: str
    key: str
    fields: dict[str, str] = field(default_factory=dict)


def grade(submission: Path, private: Path) -> float:
    """Return the mean over the passages of the F1 of the entries times the accuracy of their fields."""
    if (submission / "tool.py").is_symlink() or not (submission / "tool.py").is_file():
        raise InvalidSubmission("tool.py is missing, or is not a regular file")
    passages = json.loads((private / "passages.json").read_text())
    entries = json.loads((private / "entries.json").read_text())
    scores = []
    with Program(submission, "tool", "cite", start_timeout_s=START_SECONDS) as program:
        deadline = time.monotonic() + TOTAL_SECONDS
        for passage in passages:
            if (seconds_left := deadline - time.monotonic()) <= 0:
                raise InvalidSubmission(f"cite took more than {TOTAL_SECONDS} seconds in total")
            question = np.frombuffer(passage["text"].encode(), np.uint8)
            arrays, _ = program.ask(question, timeout_s=seconds_left, max_bytes=MAX_ANSWER_BYTES)
            scores.append(score_answer(read_answer(arrays), passage["keys"], entries))
    return float(np.mean(scores))


def read_answer(arrays: list[Any]) -> str:
    """Return the text of an answer, which must be one array of bytes."""
    if len(arrays) != 1 or arrays[0].dtype != np.uint8 or arrays[0].ndim != 1:
        kinds = ", ".join(f"{array.dtype} {array.shape}" for array in arrays) or "nothing"
        raise InvalidSubmission(f"cite returned {kinds}; it must return one array of bytes (uint8)")
    return bytes(arrays[0]).decode("utf-8", "replace")


def score_answer(text: str, keys: list[str], entries: Mapping[str, dict[str, Any]]) -> float:
    """Score one answer from 0 to 1; an answer that is not BibTeX, or has a key twice, scores 0."""
    try:
        answered = parse_bibtex(text, MAX_ENTRIES)
    except BibtexError:
        return 0.0
    if len({entry.key for entry in answered}) < len(answered):
        return 0.0
    correct = sum(compare_entry(entry, entries[entry.key]) for entry in answered if entry.key in keys)
    return 2 * correct / (len(answered) + len(keys))


def compare_entry(entry: Entry, right: dict[str, Any]) -> float:
    """Return the share of the fields and the type that are right; a field too many is a wrong one."""
    given = normalize_entry(entry)
    names = given.keys() | right.keys()
    correct: int = sum(given.get(name) == right.get(name) for name in names)
    return correct / len(names)


def normalize_entry(entry: Entry) -> dict[str, Any]:
    """Return what is compared of an entry; the form in which it is written does not matter."""
    fields = {name: value for name, value in entry.fields.items() if name in GRADED_FIELDS and value.strip()}
    normalized: dict[str, Any] = {
        name: fold(decode_latex(value)) for name, value in fields.items() if name not in ("author", "pages")
    }
    if "author" in fields:
        normalized["author"] = [
            [fold(family), fold(given)[:1]] for family, given in split_authors(fields["author"])
        ]
    if "pages" in fields:
        normalized["pages"] = [fold(part) for part in re.split(r"[-\u2010-\u2015]+", fields["pages"])]
    if "doi" in fields:
        normalized["doi"] = re.sub(
            r"^(https?://)?(dx\.)?doi\.org/|\s", "", decode_latex(fields["doi"]).lower()
        )
    return {"type": entry.type} | normalized


def parse_bibtex(text: str, max_entries: int = 10_000) -> list[Entry]:
    """Return the entries of a text; what is between entries is a comment, as for BibTeX.

    Raises:
        BibtexError: If an entry is not closed, or has no key, a field twice or a value without braces or
            quotation marks that is not a number or a word; or if there are too many entries.
    """
    entries: list[Entry] = []
    position = 0
    while start := ENTRY.search(text, position):
        if start[1].lower() in SKIPPED_TYPES:
            _, position = _read_braces(text, text.index("{", start.start()))
            continue
        if len(entries) == max_entries:
            raise BibtexError(f"more than {max_entries} entries")
        entry, position = _read_entry(text, start)
        entries.append(entry)
    return entries


def _read_entry(text: str, start: re.Match[str]) -> tuple[Entry, int]:
    key = KEY.match(text, start.end())
    if not key:
        raise BibtexError(f"an entry of type {start[1][:30]!r} has no key")
    fields: dict[str, str] = {}
    position = key.end()
    while True:
        position = _skip_spaces(text, position)
        if text[position : position + 1] == "}":
            return Entry(start[1].lower(), key[0], fields), position + 1
        if text[position : position + 1] != ",":
            raise BibtexError(f"{key[0][:60]!r}: a comma or a closing brace is missing")
        position = _skip_spaces(text, position + 1)
        if text[position : position + 1] == "}":
            continue
        name = FIELD_NAME.match(text, position)
        if not name:
            raise BibtexError(f"{key[0][:60]!r}: the name of a field is missing")
        if name[1].lower() in fields:
            raise BibtexError(f"{key[0][:60]!r} has the field {name[1][:30]!r} twice")
        fields[name[1].lower()], position = _read_value(text, name.end())


def _read_value(text: str, position: int) -> tuple[str, int]:
    """Read a value: in braces, in quotation marks, a number, a word, or several of these joined by #."""
    parts = []
    while True:
        if text[position : position + 1] == "{":
            part, position = _read_braces(text, position)
        elif text[position : position + 1] == '"':
            part, position = _read_quotes(text, position)
        elif word := re.compile(r"\w+").match(text, position):
            part, position = word[0], word.end()
        else:
            raise BibtexError("the value of a field is missing")
        parts.append(part)
        after = _skip_spaces(text, position)
        if text[after : after + 1] != "#":
            return "".join(parts), position
        position = _skip_spaces(text, after + 1)


def _read_braces(text: str, position: int) -> tuple[str, int]:
    start, depth = position, 0
    for match in re.compile(r"\\.|[{}]", re.DOTALL).finditer(text, position):
        if match[0] == "{":
            depth += 1
            if depth > MAX_NESTED_BRACES:
                raise BibtexError("braces are nested too deeply")
        elif match[0] == "}":
            depth -= 1
            if depth == 0:
                return text[start + 1 : match.start()], match.end()
    raise BibtexError("a brace is not closed")


def _read_quotes(text: str, position: int) -> tuple[str, int]:
    start, depth = position + 1, 0
    for match in re.compile(r'\\[{}\\]|[{}"]', re.DOTALL).finditer(text, start):
        depth += {"{": 1, "}": -1}.get(match[0], 0)
        if match[0] == '"' and depth <= 0:
            return text[start : match.start()], match.end()
    raise BibtexError("a quotation mark is not closed")


def _skip_spaces(text: str, position: int) -> int:
    while text[position : position + 1].isspace():
        position += 1
    return position


def decode_latex(text: str) -> str:
    """Replace LaTeX accents and letters by Unicode, and remove braces and other commands."""
    text = re.sub(r"\\([a-zA-Z]{1,2})(?:\{\}|\s+|(?=[{}\\\W]|$))", _replace_letter, text)
    text = re.sub(r"\\([`'^~=.\"])\s*\{?\\?(\w)\}?", _replace_accent, text)
    text = re.sub(r"\\([urHvck])\s*\{\\?(\w)\}", _replace_accent, text)
    text = re.sub(r"\\([&%$#_])", r"\1", text)
    text = re.sub(r"\\[a-zA-Z]+\s*", "", text).replace("~", " ").replace("\\", "")
    text = re.sub(r"[{}$]", "", text).replace("---", "\u2014").replace("--", "\u2013")
    return " ".join(unicodedata.normalize("NFC", text).split())


def _replace_letter(match: re.Match[str]) -> str:
    return LETTERS.get(match[1], match[0])


def _replace_accent(match: re.Match[str]) -> str:
    return unicodedata.normalize("NFC", match[2] + ACCENTS[match[1]])


def split_authors(value: str) -> list[tuple[str, str]]:
    """Return the family name and the given names of each author of a BibTeX field."""
    names = []
    for name in _split_outside_braces(value):
        if name.strip().startswith("{") and name.strip().endswith("}") and name.count("{") == 1:
            names.append((decode_latex(name), ""))
            continue
        family, comma, given = name.partition(",")
        if comma:
            given = given.rpartition(",")[2]  # a part between two commas is "Jr."
        else:
            words = _split_words(name)
            first = next((i for i, word in enumerate(words[:-1]) if i and word[:1].islower()), len(words) - 1)
            family, given = " ".join(words[first:]), " ".join(words[:first])
        names.append((decode_latex(family), decode_latex(given)))
    return [name for name in names if name[0]]


def _split_outside_braces(value: str) -> list[str]:
    parts, depth, start = [], 0, 0
    for match in re.finditer(r"[{}]|\sand\s", value):
        if match[0] in "{}":
            depth += 1 if match[0] == "{" else -1
        elif depth <= 0:
            parts.append(value[start : match.start()])
            start = match.end()
    return [*parts, value[start:]]


def _split_words(name: str) -> list[str]:
    words: list[str] = []
    depth = 0
    for word in name.split():
        if depth > 0:
            words[-1] += " " + word
        else:
            words.append(word)
        depth += word.count("{") - word.count("}")
    return words


def fold(text: str) -> str:
    """Return the letters and digits of a text in lower case, without accents: what is compared."""
    for letter, plain in (("ß", "ss"), ("ø", "o"), ("ł", "l"), ("æ", "ae"), ("œ", "oe")):
        text = text.replace(letter, plain).replace(letter.upper(), plain)
    decomposed = unicodedata.normalize("NFKD", text.lower())
    return "".join(character for character in decomposed if character.isalnum())
