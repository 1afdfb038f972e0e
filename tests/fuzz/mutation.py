"""Creates fuzz cases: damaged bytes, and JSON with some parts replaced."""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from random import Random
from typing import Any

MAX_CASE_BYTES = 100_000  # an algorithm of quadratic time takes minutes for so many
NUMBER = re.compile(rb"-?\d+")
ODD_NUMBERS = [b"0", b"-1", b"1e400", b"NaN", b"-Infinity", b"1.5", b"4294967296", b"9" * 30, b"9" * 5000]
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
ODD_VALUES: list[Any] = [
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


def mutate_bytes(seeds: Sequence[bytes], tokens: Sequence[bytes] = ()) -> Callable[[Random], bytes]:
    """Create cases from seeds by a few random mutations; `tokens` are strings that the readers look for."""
    pool = [*tokens, *JUNK]

    def make_case(random: Random) -> bytes:
        data = bytearray(random.choice(seeds))
        for _ in range(random.choice((1, 1, 1, 2, 2, 3, 5, 9))):
            random.choice(MUTATORS)(data, random, pool)
        if random.random() < 0.1:
            _splice(data, random, seeds)
        return bytes(data[:MAX_CASE_BYTES])

    return make_case


def mutate_json(seeds: Sequence[Any]) -> Callable[[Random], Any]:
    """Create JSON cases from seeds with some parts removed or replaced."""
    texts = [json.dumps(seed) for seed in seeds]

    def make_case(random: Random) -> Any:
        root = [json.loads(random.choice(texts))]
        for _ in range(random.choice((1, 1, 1, 2, 3))):
            if locations := [*_locations(root)]:
                _replace_part(random.choice(locations), random)
        return root[0] if root else None

    return make_case


def dump_json(value: Any) -> bytes:
    """Dump JSON as a careless program does, with lone surrogates and NaN."""
    return json.dumps(value).encode()


def _locations(container: Any) -> Iterator[tuple[Any, Any]]:
    """Every part of a value, as its container and its key there."""
    for key in [*container] if isinstance(container, dict) else range(len(container)):
        yield container, key
        if isinstance(container[key], dict | list):
            yield from _locations(container[key])


def _replace_part(location: tuple[Any, Any], random: Random) -> None:
    container, key = location
    match random.randrange(6):
        case 0:
            del container[key]
        case 1 if isinstance(container, dict):
            container[random.choice(("", "\n", "extra", key, f"{key} "))] = container.pop(key)
        case 2:
            container[key] = [container[key]] * random.choice((1, 2, 3, 300))
        case 3:
            container[key] = {random.choice(("text", "type", "a")): container[key]}
        case _:
            container[key] = deepcopy(random.choice(ODD_VALUES))


def _truncate(data: bytearray, random: Random, tokens: Sequence[bytes]) -> None:
    del data[random.randrange(len(data) + 1) :]


def _delete(data: bytearray, random: Random, tokens: Sequence[bytes]) -> None:
    position = random.randrange(len(data) + 1)
    del data[position : position + random.choice((1, 1, 2, 10, 100))]


def _flip(data: bytearray, random: Random, tokens: Sequence[bytes]) -> None:
    if data:
        data[random.randrange(len(data))] ^= 1 << random.randrange(8)


def _insert(data: bytearray, random: Random, tokens: Sequence[bytes]) -> None:
    position = random.randrange(len(data) + 1)
    data[position:position] = random.choice(tokens)


def _repeat(data: bytearray, random: Random, tokens: Sequence[bytes]) -> None:
    """Repeat a piece or a token many times, to find slow algorithms."""
    position = random.randrange(len(data) + 1)
    excerpt = bytes(data[position : position + random.choice((1, 2, 8, 40))])
    piece = random.choice((excerpt, random.choice(tokens)))
    few = random.random() < 0.95
    times = random.choice((2, 2, 3, 10, 50, 50)) if few else MAX_CASE_BYTES // (len(piece) + 1)
    data[position:position] = piece * times


def _replace_number(data: bytearray, random: Random, tokens: Sequence[bytes]) -> None:
    if numbers := [*NUMBER.finditer(data[:5000])]:
        number = random.choice(numbers)
        data[number.start() : number.end()] = random.choice(ODD_NUMBERS)


def _splice(data: bytearray, random: Random, seeds: Sequence[bytes]) -> None:
    other = random.choice(seeds)
    start = random.randrange(len(other) + 1)
    position = random.randrange(len(data) + 1)
    data[position:position] = other[start : start + random.randrange(200)]


MUTATORS: tuple[Mutator, ...] = (
    _truncate,
    _delete,
    _flip,
    _flip,
    _insert,
    _insert,
    _repeat,
    _repeat,
    _replace_number,
)
