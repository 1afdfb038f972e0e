"""Makes cases: bytes that were damaged, and JSON of which some parts were exchanged."""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from random import Random
from typing import Any

LONGEST = 100_000  # bytes: what takes time by the square of its length takes minutes for so many
NUMBER = re.compile(rb"-?\d+")
NUMBERS = [b"0", b"-1", b"1e400", b"NaN", b"-Infinity", b"1.5", b"4294967296", b"9" * 30, b"9" * 5000]
JUNK = [
    b"\0",
    b"\xff\xfe",
    b"\xed\xa0\x80",
    b"\r",
    b"\n\n",
    b" " * 50,
    b"\x1b[2J",
    "\u2028é😀".encode(),
    b"{",
    b'"',
    b"\\",
]
ODD: list[Any] = [
    *(None, True, False, 0, -1, 1.5, 1e308, 5e-324, float("inf"), float("nan"), 2**31, 2**64, 10**400),
    *(
        "",
        " ",
        "a\0b",
        "\ud800",
        "\x1b[2J",
        "two\nlines",
        "../..",
        "/",
        "x" * 300,
        "é" * 300,
        "9" * 5000,
        "NaN",
    ),
    *([], {}, [[]], [None], {"": None}, {"\n": 1}, [1, "a", {}], "[" * 50_000),
]

Mutator = Callable[[bytearray, Random, Sequence[bytes]], None]


def mutated(seeds: Sequence[bytes], words: Sequence[bytes] = ()) -> Callable[[Random], bytes]:
    """Cases that were one of the seeds, until a few things happened to them; `words` are what readers look for."""
    pool = [*words, *JUNK]

    def make(random: Random) -> bytes:
        data = bytearray(random.choice(seeds))
        for _ in range(random.choice((1, 1, 1, 2, 2, 3, 5, 9))):
            random.choice(MUTATORS)(data, random, pool)
        if random.random() < 0.1:
            _splice(data, random, seeds)
        return bytes(data[:LONGEST])

    return make


def grafted(seeds: Sequence[Any]) -> Callable[[Random], Any]:
    """Cases that are JSON as the seeds, but for some parts that are missing, or something else."""
    texts = [json.dumps(seed) for seed in seeds]

    def make(random: Random) -> Any:
        root = [json.loads(random.choice(texts))]
        for _ in range(random.choice((1, 1, 1, 2, 3))):
            if places := [*_places(root)]:
                _graft(random.choice(places), random)
        return root[0] if root else None

    return make


def dumped(value: Any) -> bytes:
    """JSON as a careless program writes it: with lone surrogates, and numbers that are none."""
    return json.dumps(value).encode()


def _places(within: Any) -> Iterator[tuple[Any, Any]]:
    """Every part of a value, as the collection that holds it and its place there."""
    for key in [*within] if isinstance(within, dict) else range(len(within)):
        yield within, key
        if isinstance(within[key], dict | list):
            yield from _places(within[key])


def _graft(place: tuple[Any, Any], random: Random) -> None:
    within, key = place
    match random.randrange(6):
        case 0:
            del within[key]
        case 1 if isinstance(within, dict):
            within[random.choice(("", "\n", "extra", key, f"{key} "))] = within.pop(key)
        case 2:
            within[key] = [within[key]] * random.choice((1, 2, 3, 300))
        case 3:
            within[key] = {random.choice(("text", "type", "a")): within[key]}
        case _:
            within[key] = deepcopy(random.choice(ODD))


def _cut(data: bytearray, random: Random, words: Sequence[bytes]) -> None:
    del data[random.randrange(len(data) + 1) :]


def _drop(data: bytearray, random: Random, words: Sequence[bytes]) -> None:
    at = random.randrange(len(data) + 1)
    del data[at : at + random.choice((1, 1, 2, 10, 100))]


def _flip(data: bytearray, random: Random, words: Sequence[bytes]) -> None:
    if data:
        data[random.randrange(len(data))] ^= 1 << random.randrange(8)


def _insert(data: bytearray, random: Random, words: Sequence[bytes]) -> None:
    at = random.randrange(len(data) + 1)
    data[at:at] = random.choice(words)


def _repeat(data: bytearray, random: Random, words: Sequence[bytes]) -> None:
    """A piece, or a word, many times over: what makes slow readers slow."""
    at = random.randrange(len(data) + 1)
    piece = random.choice((bytes(data[at : at + random.choice((1, 2, 8, 40))]), random.choice(words)))
    times = random.choice((2, 2, 3, 10, 50, 50)) if random.random() < 0.95 else LONGEST // (len(piece) + 1)
    data[at:at] = piece * times


def _renumber(data: bytearray, random: Random, words: Sequence[bytes]) -> None:
    if numbers := [*NUMBER.finditer(data[:5000])]:
        found = random.choice(numbers)
        data[found.start() : found.end()] = random.choice(NUMBERS)


def _splice(data: bytearray, random: Random, seeds: Sequence[bytes]) -> None:
    other = random.choice(seeds)
    begin = random.randrange(len(other) + 1)
    at = random.randrange(len(data) + 1)
    data[at:at] = other[begin : begin + random.randrange(200)]


MUTATORS: tuple[Mutator, ...] = (_cut, _drop, _flip, _flip, _insert, _insert, _repeat, _repeat, _renumber)
