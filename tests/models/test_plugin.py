"""Models of other packages are found by their entry points; the example in the documentation works."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from example_package import installed_example

from mlagentbench.errors import ModelFault, UsageError
from mlagentbench.models.base import load_model
from mlagentbench.records import Message, Prompt, Tool

PAGE = Path(__file__).parents[2] / "docs" / "extend" / "model.md"
HELLO = Prompt(messages=(Message(role="system", text="be brief"), Message(role="user", text="hello")))


@pytest.fixture(autouse=True)
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An installed package with the model of the documentation."""
    with installed_example(PAGE, "my_models", "shell", tmp_path, monkeypatch):
        yield


def test_the_model_of_the_documentation_replies_and_stops_at_stop_sequences() -> None:
    model = load_model("shell:sed 's/hello/hi Observation: x/'")
    reply = model.reply(HELLO.replace(stop=("Observation:",)))
    assert (reply.text, reply.model) == ("system: be brief\n\nuser: hi ", "sed")
    assert reply.input_tokens > 0 and reply.output_tokens > 0 and reply.dollars == 0.0


@pytest.mark.parametrize("command", ["false", "/nowhere/program"])
def test_a_failing_command_is_a_model_fault(command: str) -> None:
    with pytest.raises(ModelFault, match=r"^shell: "):
        load_model(f"shell:{command}").reply(HELLO)


def test_tools_and_a_missing_command_are_reported() -> None:
    tool = Tool(name="look", description="", parameters={})
    with pytest.raises(ModelFault, match="tool calls are not supported"):
        load_model("shell:cat").reply(HELLO.replace(tools=(tool,)))
    with pytest.raises(UsageError, match="Name a command"):
        load_model("shell:")
