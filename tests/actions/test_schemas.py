import json

import pytest

from mlagentbench.actions.base import Action, load_actions

ACTIONS = load_actions(interactive=True)
OFFERED_ACTIONS = [action for action in ACTIONS.values() if not action.is_internal]
ARGUMENTS = {
    "List Files": ["dir_path"],
    "Read File": ["file_name"],
    "Write File": ["file_name", "content"],
    "Append File": ["file_name", "content"],
    "Copy File": ["source", "destination"],
    "Inspect Script Lines": ["script_name", "start_line_number", "end_line_number"],
    "Undo Edit Script": ["script_name"],
    "Execute Script": ["script_name", "arguments"],
    "Python REPL": ["command"],
    "Request Help": ["request"],
    "Final Answer": ["final_answer"],
}


def test_low_level_actions_have_the_names_and_arguments_of_the_paper() -> None:
    assert {name: list(ACTIONS[name].arguments.model_fields) for name in ARGUMENTS} == ARGUMENTS


@pytest.mark.parametrize("action", OFFERED_ACTIONS, ids=lambda action: action.name)
def test_the_schema_is_derived_from_the_signature(action: Action) -> None:
    schema = json.loads(json.dumps(action.schema))
    assert schema["type"] == "object" and schema["additionalProperties"] is False
    assert list(schema["properties"]) == list(action.arguments.model_fields)
    for name, field in schema["properties"].items():
        assert field["type"] in ("string", "integer")
        assert field["description"], f"{action.name}: {name} is not described"
        assert (name in schema.get("required", [])) == ("default" not in field)
    assert action.description and "\n" not in action.description
    assert all(f'"{name}": [' in action.usage for name in schema["properties"])


def test_types_and_defaults_come_from_the_signature() -> None:
    lines = ACTIONS["Inspect Script Lines"].schema["properties"]
    assert lines["start_line_number"]["type"] == "integer"
    assert ACTIONS["Execute Script"].schema["required"] == ["script_name"]
    assert ACTIONS["List Files"].schema["properties"]["dir_path"]["default"] == "."


def test_only_read_only_actions_take_no_snapshot() -> None:
    read_only = {name for name in ARGUMENTS if not ACTIONS[name].changes_workspace}
    assert read_only == {"List Files", "Read File", "Inspect Script Lines", "Request Help"}
    assert [name for name in ARGUMENTS if ACTIONS[name].ends_run] == ["Final Answer"]
