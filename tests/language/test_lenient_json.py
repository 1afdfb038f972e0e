import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlagentbench.language.lenient_json import UnreadableObject, parse_object

MALFORMED = {
    "plain": '{"a": "x", "b": 2}',
    "a trailing comma": '{"a": "x", "b": 2,}',
    "single quotes": "{'a': 'x', 'b': 2}",
    "keys without quotes": '{a: "x", b: 2}',
    "text without quotes": "{a: x, b: 2}",
    "equals signs": '{a = "x", b = 2}',
    "comments": '{"a": "x", // first\n /* and */ "b": 2 # last\n}',
    "a fence": '```json\n{"a": "x", "b": 2}\n```',
    "a fence without a language": '```\n{"a": "x", "b": 2}\n```\nThat is all.',
    "an open fence": '```json\n{"a": "x", "b": 2}',
    "prose around it": 'Sure: {"a": "x", "b": 2} Let me know!',
    "triple quotes": '{"a": """x""", "b": 2}',
    "backticks": '{"a": `x`, "b": 2}',
    "truncated after a value": '{"a": "x", "b": 2',
    "no comma": '{"a": "x"\n"b": 2}',
}


@pytest.mark.parametrize("text", MALFORMED.values(), ids=MALFORMED.keys())
def test_malformed_json_is_parsed_by_its_meaning(text: str) -> None:
    assert parse_object(text, ["a", "b"]) == {"a": "x", "b": 2}


MEANT_VALUES = {
    "raw newlines": ('{"a": "one\ntwo\tthree"}', "one\ntwo\tthree"),
    "python literals": ('{"a": True, "b": None}', True),
    "an escape that is not in JSON": (r'{"a": "\d+ \x41 \u00e9"}', r"\d+ A é"),
    "a surrogate pair": (r'{"a": "\ud83d\ude00",}', "😀"),
    "a script in triple quotes": ('{"a": """\nprint("x\\n")\n"""}', 'print("x\\n")\n'),
    "unescaped quotes": ('{"a": "print("hi", "you")"}', 'print("hi", "you")'),
    "a dictionary in unescaped quotes": (
        '{"a": "d = {"x": "y", "z": 1}\nprint(d["x"])"}',
        'd = {"x": "y", "z": 1}\nprint(d["x"])',
    ),
    "truncated in the middle": ('{"a": "so far', "so far"),
    "numbers": ('{"a": 1_000}', 1000),
    "a list": ("{'a': ['x', 'y',]}", ["x", "y"]),
    "a number that is too long": ('{"a": ' + "9" * 5000 + ", b: 2}", "9" * 5000),
    "a long comment": ('{"a": /* ' + "so " * 2000 + '*/ "x", b: 2}', "x"),
    "two fences": ('```json\n{a: "x"}\n\n\n  ```\n{a: "y"}', "x"),
    "nested": ("{'a': {'b': [1, {'c': 'd'}]}}", {"b": [1, {"c": "d"}]}),
}


@pytest.mark.parametrize(("text", "meant"), MEANT_VALUES.values(), ids=MEANT_VALUES.keys())
def test_text_of_models_is_parsed_as_it_was_meant(text: str, meant: Any) -> None:
    assert parse_object(text, ["a", "b"])["a"] == meant


@pytest.mark.parametrize(
    "text", ["", "no object", "[1, 2]", "{", "{:}", '{"a"}', "{" * 1000, '{"a":}', '{"a": [' * 100]
)
def test_text_without_an_object_is_rejected_or_empty_and_never_crashes(text: str) -> None:
    try:
        assert isinstance(parse_object(text), dict)
    except UnreadableObject as error:
        assert str(error)


STYLES: dict[str, Callable[[dict[str, str]], str]] = {
    "json": json.dumps,
    "indented json with non-ascii characters": lambda args: json.dumps(args, ensure_ascii=False, indent=2),
    "python": repr,
    "an extra comma": lambda args: json.dumps(args)[:-1] + ",}",
    "raw newlines": lambda args: (
        json.dumps(args).replace("\\\\n", "\0").replace("\\n", "\n").replace("\0", "\\\\n")
    ),
    "fenced": lambda args: f"Here it is.\n```json\n{json.dumps(args)}\n```",
    "comments": lambda args: "{ // so\n" + json.dumps(args)[1:-1] + " # there\n}",
}
texts = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cc"], include_characters="\n\t"), max_size=60
)
code = st.lists(
    st.sampled_from(["x = 'a'\n", 'print("b")\n', "# no {}\n", "y = [1, 2]\n", "\\d+", ", ", '"""', "{", "}"])
)
values = texts | code.map("".join)


@settings(max_examples=200, deadline=None)
@given(args=st.fixed_dictionaries({"file_name": values, "content": values}))
@pytest.mark.parametrize("style", STYLES)
def test_an_object_in_any_common_style_round_trips(style: str, args: dict[str, str]) -> None:
    assert parse_object(STYLES[style](args), ["file_name", "content"]) == args


@settings(max_examples=500, deadline=None)
@given(text=st.text(max_size=200) | st.lists(st.sampled_from(list("{}[]:,\"'`#/\\\n ax1"))).map("".join))
def test_no_text_raises_another_exception(text: str) -> None:
    for candidate in (text, "{" + text, '{"a": "' + text):
        with suppress(UnreadableObject):
            assert isinstance(parse_object(candidate, ["a"]), dict)
