"""Objects as models write them, which is rarely valid JSON."""

from pathlib import Path

from mutation import mutate_bytes

from mlagentbench.language.lenient_json import UnreadableObject, parse_object

EXPECTED_ERRORS = (UnreadableObject,)
CASES_PER_1000, SHORT_CASES = 150, 600
SEEDS = [
    b'{"a": "x", "b": 2}',
    b"{'a': 'it\\'s', b: [1, 2.5e3, true, None,], \"c\": {}}",
    b'Sure:\n```json\n{"a": "print("hi", "you")", "b": {"c": [1, {"d": `e`}]}}\n```\nThat is all.',
    b'{"a": """\nprint("x\\n")\n""", // so\n /* and */ "b" = text without quotes # last\n}',
    b'{"a": "\\ud83d\\ude00 \\x41 \\U0001F600 \\d+", "b": 1_000, "c": .5, "d": "cut off',
]
TOKENS = [
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

REGRESSION_CASES = [
    b'{"b": %s, c}' % (b"9" * 5000),
    b'{"a": "' + b'"/*' * 30_000,
    *(prefix + piece * 50_000 for prefix, piece in ((b"```\n", b"\n"), (b"{a", b" "), (b"{", b"a:/*,"))),
]

make_case = mutate_bytes(SEEDS, TOKENS)


def run_case(case: bytes, folder: Path) -> None:
    text = case.decode("utf-8", "replace")
    parsed = parse_object(text, ["a", "b"] if len(text) % 2 else [])
    assert isinstance(parsed, dict)
