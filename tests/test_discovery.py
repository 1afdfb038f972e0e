from pathlib import Path

import pytest

from mlagentbench import discovery
from mlagentbench.agents import base as agents
from mlagentbench.errors import UsageError

IMPORTS = "from abc import abstractmethod\nfrom mlagentbench.agents.base import Agent\n"
ONE = "class One(Agent):\n    def run(self, env): pass\n"
TWO = "class Two(Agent):\n    def run(self, env): pass\n"


@pytest.fixture
def write(tmp_path: Path):
    def write_one(text: str) -> str:
        path = tmp_path / "mine.py"
        path.write_text(text)
        return str(path)

    return write_one


def test_agents_and_actions_are_found_by_their_files() -> None:
    assert {"nothing", "baseline", "reference", "tuner", "human"} <= set(discovery.plugin_names("agents"))
    assert "write_file" in discovery.plugin_names("actions")
    assert "base" not in discovery.plugin_names("agents") + discovery.plugin_names("actions")


def test_every_agent_of_the_suite_loads() -> None:
    for name in discovery.plugin_names("agents"):
        assert issubclass(agents.load_agent_class(name), agents.Agent)


def test_an_unknown_agent_is_answered_with_those_that_exist() -> None:
    with pytest.raises(UsageError, match=r"No such agent: 'genius'\. Available: .*tuner.*--agent PATH\.py"):
        agents.load_agent_class("genius")


def test_a_file_with_one_agent_gives_that_agent(write) -> None:
    assert agents.load_agent_class(write(IMPORTS + ONE)).__name__ == "One"


def test_other_names_for_the_agent_and_abstract_ones_do_not_count(write) -> None:
    halfway = "class Halfway(Agent):\n    @abstractmethod\n    def think(self): ...\n"
    whole = "class Whole(Halfway):\n    def think(self): pass\n    def run(self, env): pass\nAlias = Whole\n"
    assert agents.load_agent_class(write(IMPORTS + halfway + whole)).__name__ == "Whole"


@pytest.mark.parametrize(
    ("text", "sentence"),
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
def test_a_file_that_holds_no_agent_is_one_line(write, text: str, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence) as caught:
        agents.load_agent_class(write(text))
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    for path in (tmp_path / "missing.py", tmp_path):
        with pytest.raises(UsageError, match="No such file: "):
            discovery.load_module_from_file(path)


def test_an_agent_that_cannot_be_made_is_one_line(write) -> None:
    kind = agents.load_agent_class(write(IMPORTS + ONE + "    def __init__(self): pass\n"))
    with pytest.raises(UsageError, match="The agent One cannot be created: TypeError"):
        agents.instantiate_agent(kind, 0)


@pytest.mark.parametrize(
    ("name", "options", "sentence"),
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
def test_an_option_that_no_run_could_go_by_is_one_line_before_it_begins(
    name: str, options: dict[str, object], sentence: str
) -> None:
    with pytest.raises(UsageError, match=sentence) as caught:
        agents.instantiate_agent(agents.load_agent_class(name), 0, options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("annotation", ["", ": 'Unknown' = None", ": Agent | None = None", ": 3 = None"])
def test_an_annotation_that_says_nothing_of_data_holds_nothing_up(write, annotation: str) -> None:
    kind = agents.load_agent_class(
        write(IMPORTS + ONE + f"    def __init__(self, seed, told{annotation}): self.told = told\n")
    )
    assert vars(agents.instantiate_agent(kind, 0, {"told": 5}))["told"] == 5
