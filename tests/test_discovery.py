from collections.abc import Callable
from pathlib import Path

import pytest

from mlagentbench import discovery
from mlagentbench.agents import base as agents
from mlagentbench.errors import UsageError

IMPORTS = "from abc import abstractmethod\nfrom mlagentbench.agents.base import Agent\n"
ONE = "class One(Agent):\n    def run(self, env): pass\n"
TWO = "class Two(Agent):\n    def run(self, env): pass\n"


@pytest.fixture
def write_agent(tmp_path: Path) -> Callable[[str], str]:
    def write(text: str) -> str:
        path = tmp_path / "mine.py"
        path.write_text(text)
        return str(path)

    return write


def test_agents_and_actions_are_found_by_their_file_names() -> None:
    assert {"nothing", "baseline", "reference", "tuner", "human"} <= set(discovery.plugin_names("agents"))
    assert "write_file" in discovery.plugin_names("actions")
    assert "base" not in discovery.plugin_names("agents") + discovery.plugin_names("actions")


def test_every_builtin_agent_loads() -> None:
    for name in discovery.plugin_names("agents"):
        assert issubclass(agents.load_agent_class(name), agents.Agent)


def test_the_error_for_an_unknown_agent_lists_the_available_ones() -> None:
    with pytest.raises(UsageError, match=r"No such agent: 'genius'\. Available: .*tuner.*--agent PATH\.py"):
        agents.load_agent_class("genius")


def test_a_file_with_one_agent_gives_that_agent(write_agent: Callable[[str], str]) -> None:
    assert agents.load_agent_class(write_agent(IMPORTS + ONE)).__name__ == "One"


def test_aliases_and_abstract_agents_do_not_count(write_agent: Callable[[str], str]) -> None:
    abstract = "class Abstract(Agent):\n    @abstractmethod\n    def think(self): ...\n"
    concrete = "class Concrete(Abstract):\n    def think(self): pass\n    def run(self, env): pass\n"
    alias = "Alias = Concrete\n"
    assert agents.load_agent_class(write_agent(IMPORTS + abstract + concrete + alias)).__name__ == "Concrete"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (IMPORTS, "must define exactly one Agent, but defines 0"),
        (IMPORTS + ONE + TWO, "must define exactly one Agent, but defines 2"),
        (IMPORTS + "class Lazy(Agent): pass\n", "must define exactly one Agent, but defines 0"),
        ("def run(:\n", "cannot be imported: SyntaxError"),
        ("import nonexistent_package\n", "cannot be imported: ModuleNotFoundError"),
        ("1 / 0\n", "cannot be imported: ZeroDivisionError"),
        ("import sys\nsys.exit(0)\n", "cannot be imported: SystemExit"),
        ("\0", "cannot be imported"),
    ],
)
def test_a_file_without_exactly_one_agent_is_one_line(
    write_agent: Callable[[str], str], text: str, message: str
) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        agents.load_agent_class(write_agent(text))
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_one_line(tmp_path: Path) -> None:
    for path in (tmp_path / "missing.py", tmp_path):
        with pytest.raises(UsageError, match="No such file: "):
            discovery.load_module_from_file(path)


def test_an_agent_that_cannot_be_created_is_one_line(write_agent: Callable[[str], str]) -> None:
    agent_class = agents.load_agent_class(write_agent(IMPORTS + ONE + "    def __init__(self): pass\n"))
    with pytest.raises(UsageError, match="The agent One cannot be created: TypeError"):
        agents.instantiate_agent(agent_class, 0)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("contestant = False", "contestant, which is called ranked"),
        ("begins_again = True", "begins_again, which is called restarts_on_resume"),
        ("def require(self, sandbox): pass", "require, which is called check_sandbox"),
    ],
)
def test_an_agent_with_an_attribute_of_version_0_1_is_refused_with_its_new_name(
    write_agent: Callable[[str], str], old: str, new: str
) -> None:
    with pytest.raises(UsageError, match=rf"mine\.py defines {new} since version 0\.2\."):
        agents.load_agent_class(write_agent(IMPORTS + ONE + f"    {old}\n"))


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("act", {"window": 0}, "The option window of Act should be greater than 0, not 0"),
        ("react", {"window": -1}, "The option window of React should be greater than 0, not -1"),
        ("research", {"window": 0}, "The option window of Research should be greater than 0"),
        ("autogpt", {"window": 0}, "The option window of Autogpt should be greater than 0"),
        ("tools", {"window": 0}, "The option window of Tools should be greater than 0"),
        ("tree", {"drafts": -1}, "The option drafts of Tree should be greater than or equal to 0"),
        ("tree", {"mends": -1}, "The option debug_attempts of Tree should be greater than or equal to 0"),
        ("tree", {"patience": 0}, "The option patience of Tree should be greater than 0"),
        (
            "command",
            {"command": "x", "environment": "{bad"},
            "environment of Command should be a valid dictionary",
        ),
        ("command", {"command": "x", "environment": {"A=B": 1}}, "environment cannot set 'A=B'"),
        ("command", {"command": "x\0"}, "contains a NUL character"),
    ],
)
def test_an_invalid_option_is_one_line_before_the_run_starts(
    name: str, options: dict[str, object], message: str
) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        agents.instantiate_agent(agents.load_agent_class(name), 0, options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("annotation", ["", ": 'Unknown' = None", ": Agent | None = None", ": 3 = None"])
def test_an_annotation_that_cannot_be_checked_is_ignored(
    write_agent: Callable[[str], str], annotation: str
) -> None:
    agent_class = agents.load_agent_class(
        write_agent(
            IMPORTS + ONE + f"    def __init__(self, seed, option{annotation}): self.option = option\n"
        )
    )
    assert vars(agents.instantiate_agent(agent_class, 0, {"option": 5}))["option"] == 5
