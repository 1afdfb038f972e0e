"""Objects as models write them, which is seldom JSON."""

from pathlib import Path

from mutation import mutated

from mlagentbench.language.lenient_json import UnreadableObject, parse_object

RAISES = (UnreadableObject,)
WEIGHT, SHORT = 180, 600
SEEDS = [
    b'{"a": "x", "b": 2}',
    b"{'a': 'it\\'s', b: [1, 2.5e3, true, None,], \"c\": {}}",
    b'Sure:\n```json\n{"a": "print("hi", "you")", "b": {"c": [1, {"d": `e`}]}}\n```\nThat is all.',
    b'{"a": """\nprint("x\\n")\n""", // so\n /* and */ "b" = text without quotes # last\n}',
    b'{"a": "\\ud83d\\ude00 \\x41 \\U0001F600 \\d+", "b": 1_000, "c": .5, "d": "cut off',
]
WORDS = [
    *(
        b"{",
        b"}",
        b"[",
        b"]",
        b":",
        b",",
        b"=",
        b'"',
        b"'",
        b"`",
        b'"""',
        b"```",
        b"~~~\n",
        b"//",
        b"#",
        b"/*",
        b"*/",
    ),
    *(
        b"\\",
        b"\\u",
        b"\\ud800",
        b"\n",
        b" ",
        b"a",
        b"a ",
        b'"a": ',
        b'"a": "',
        b"1",
        b"1e9",
        b"-",
        b'"}',
        b'",\n',
    ),
]

FOUND = [
    b'{"b": %s, c}' % (b"9" * 5000),
    b'{"a": "' + b'"/*' * 30_000,
    *(begin + piece * 50_000 for begin, piece in ((b"```\n", b"\n"), (b"{a", b" "), (b"{", b"a:/*,"))),
]

make = mutated(SEEDS, WORDS)


def attempt(case: bytes, room: Path) -> None:
    text = case.decode("utf-8", "replace")
    found = parse_object(text, ["a", "b"] if len(text) % 2 else [])
    assert isinstance(found, dict)
