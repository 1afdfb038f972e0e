import re

import pytest
from pydantic import BaseModel

from mlagentbench.actions import base
from mlagentbench.language.grammar import MAX_REPLY_CHARS, build_reply_grammar

RESEARCH_ENTRIES = ["Reflection", "Research Plan and Status", "Fact Check", "Thought"]


def arguments(models: bool = True) -> dict[str, type[BaseModel]]:
    return {
        name: action.arguments
        for name, action in base.load_actions(models=models).items()
        if not action.is_internal
    }


def test_every_action_has_a_rule_and_no_rule_is_defined_twice() -> None:
    actions = arguments()
    grammar = build_reply_grammar(RESEARCH_ENTRIES, actions)
    rules = re.findall(r"^(\w+) ::=", grammar, re.MULTILINE)
    assert len(rules) == len(set(rules))
    assert all(f'"{name}\\nAction Input: {{"' in grammar for name in actions)


def test_entries_keep_their_order() -> None:
    root = build_reply_grammar(RESEARCH_ENTRIES, arguments()).partition("\n")[0]
    assert [root.index(f'"{entry}: "') for entry in RESEARCH_ENTRIES] == sorted(
        root.index(f'"{entry}: "') for entry in RESEARCH_ENTRIES
    )


def test_optional_arguments_may_be_omitted_without_stray_commas() -> None:
    class Search(BaseModel):
        text: str
        most: int = 10
        exact: bool = False

    class Look(BaseModel):
        around: str = "."
        deep: bool = False

    class Wait(BaseModel):
        pass

    grammar = build_reply_grammar([], {"Search": Search, "Look": Look, "Wait": Wait})
    assert r'"\"text\": " short (", " "\"most\": " integer)? (", " "\"exact\": " boolean)? "}"' in grammar
    assert r'("\"around\": " short (", " "\"deep\": " boolean)? | "\"deep\": " boolean)? "}"' in grammar
    assert re.search(r'"Wait\\nAction Input: {"\s+"}"', grammar)


@pytest.mark.parametrize("entries", [[], ["Thought"], RESEARCH_ENTRIES])
def test_a_script_gets_the_space_that_the_rest_of_the_reply_leaves(entries: list[str]) -> None:
    sizes = [
        int(size) for size in re.findall(r"script ::= .*{0,(\d+)}", build_reply_grammar(entries, arguments()))
    ]
    assert sizes and all(900 < size < MAX_REPLY_CHARS // 2 for size in sizes)


def test_an_argument_of_an_unsupported_type_is_named() -> None:
    class Paint(BaseModel):
        colours: list[str]

    with pytest.raises(ValueError, match="Paint: the grammar does not support the type of colours"):
        build_reply_grammar(["Thought"], {"Paint": Paint})


def test_file_name_arguments_accept_only_path_characters() -> None:
    grammar = build_reply_grammar([], arguments())
    named = dict(re.findall(r'"\\"(\w+)\\": " (\w+)', grammar))
    files = {"file_name", "script_name", "dir_path", "source", "destination"}
    assert files <= named.keys() and {named[argument] for argument in files} == {"path"}
    assert named["final_answer"] == named["arguments"] == "short"
