import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlagentbench.language.lenient_json import UnreadableObject, parse_object

ODD = {
    "plain": '{"a": "x", "b": 2}',
    "a trailing comma": '{"a": "x", "b": 2,}',
    "single quotes": "{'a': 'x', 'b': 2}",
    "names without quotes": '{a: "x", b: 2}',
    "text without quotes": "{a: x, b: 2}",
    "equals signs": '{a = "x", b = 2}',
    "comments": '{"a": "x", // first\n /* and */ "b": 2 # last\n}',
    "a fence": '```json\n{"a": "x", "b": 2}\n```',
    "a fence without a language": '```\n{"a": "x", "b": 2}\n```\nThat is all.',
    "an open fence": '```json\n{"a": "x", "b": 2}',
    "words around it": 'Sure: {"a": "x", "b": 2} Let me know!',
    "triple quotes": '{"a": """x""", "b": 2}',
    "backticks": '{"a": `x`, "b": 2}',
    "cut off after a value": '{"a": "x", "b": 2',
    "no comma": '{"a": "x"\n"b": 2}',
}


@pytest.mark.parametrize("text", ODD.values(), ids=ODD.keys())
def test_the_meaning_counts_and_not_the_form(text: str) -> None:
    assert parse_object(text, ["a", "b"]) == {"a": "x", "b": 2}


SAID = {
    "raw newlines": ('{"a": "one\ntwo\tthree"}', "one\ntwo\tthree"),
    "python words": ('{"a": True, "b": None}', True),
    "an escape that JSON lacks": (r'{"a": "\d+ \x41 \u00e9"}', r"\d+ A é"),
    "a pair of surrogates": (r'{"a": "\ud83d\ude00",}', "😀"),
    "a script in triple quotes": ('{"a": """\nprint("x\\n")\n"""}', 'print("x\\n")\n'),
    "quotes that nobody escaped": ('{"a": "print("hi", "you")"}', 'print("hi", "you")'),
    "a dictionary in such quotes": (
        '{"a": "d = {"x": "y", "z": 1}\nprint(d["x"])"}',
        'd = {"x": "y", "z": 1}\nprint(d["x"])',
    ),
    "cut off in the middle": ('{"a": "so far', "so far"),
    "numbers": ('{"a": 1_000}', 1000),
    "a list": ("{'a': ['x', 'y',]}", ["x", "y"]),
    "a number too long to be one": ('{"a": ' + "9" * 5000 + ", b: 2}", "9" * 5000),
    "a long comment": ('{"a": /* ' + "so " * 2000 + '*/ "x", b: 2}', "x"),
    "a fence around nothing else": ('```json\n{a: "x"}\n\n\n  ```\n{a: "y"}', "x"),
    "nested": ("{'a': {'b': [1, {'c': 'd'}]}}", {"b": [1, {"c": "d"}]}),
}


@pytest.mark.parametrize(("text", "meant"), SAID.values(), ids=SAID.keys())
def test_what_models_write_is_read_as_it_was_meant(text: str, meant: Any) -> None:
    assert parse_object(text, ["a", "b"])["a"] == meant


@pytest.mark.parametrize(
    "text", ["", "no object", "[1, 2]", "{", "{:}", '{"a"}', "{" * 1000, '{"a":}', '{"a": [' * 100]
)
def test_what_is_no_object_is_refused_or_empty_and_never_a_crash(text: str) -> None:
    try:
        assert isinstance(parse_object(text), dict)
    except UnreadableObject as error:
        assert str(error)


WRITTEN: dict[str, Callable[[dict[str, str]], str]] = {
    "json": json.dumps,
    "json with all its letters": lambda args: json.dumps(args, ensure_ascii=False, indent=2),
    "python": repr,
    "a comma too many": lambda args: json.dumps(args)[:-1] + ",}",
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
@pytest.mark.parametrize("style", WRITTEN)
def test_an_object_in_any_usual_style_comes_back_as_it_was(style: str, args: dict[str, str]) -> None:
    assert parse_object(WRITTEN[style](args), ["file_name", "content"]) == args


@settings(max_examples=500, deadline=None)
@given(text=st.text(max_size=200) | st.lists(st.sampled_from(list("{}[]:,\"'`#/\\\n ax1"))).map("".join))
def test_nothing_that_a_model_can_say_is_an_exception(text: str) -> None:
    for said in (text, "{" + text, '{"a": "' + text):
        with suppress(UnreadableObject):
            assert isinstance(parse_object(said, ["a"]), dict)
