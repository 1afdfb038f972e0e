"""Arguments of actions, in a real run: an error that the agent hears, and never a fault; nothing outside is touched."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from mlagentbench.environment.environment import Environment
from mlagentbench.models.base import Model
from mlagentbench.records import AgentSpec, Call, Limits, Prompt, Reply
from mlagentbench.runner.folder import RunFolder
from mlagentbench.runner.run import open_environment, populate_workspace
from mlagentbench.runner.setup import Setup, prepare_setup

RAISES = ()
WEIGHT, SHORT = 20, 60
TOY = Path(__file__).parents[2] / "toy"
ROUND = 300  # steps of one run

letters = st.text(st.characters(exclude_categories=()), max_size=40)  # halves of characters too
odd = st.sampled_from(
    ["", ".", "..", "/", "/etc/passwd", "/workspace/a.py", "a/../../b", "a\0b", "x" * 5000, "a/" * 100]
)
paths = (
    st.sampled_from(["train.py", "new/deep/a.py", "questions.csv", "data", "data/deep/more.csv", "a.py"])
    | odd
    | letters
)
contents = letters | st.sampled_from(["x = 1\n", "a\n" * 3000, "\r\n\x0c\u2028", "é" * 9000, "Action: {}"])
lines = st.integers(-2, 12) | st.sampled_from([2**64, -(2**64), 10**400])
values = (
    paths | contents | lines | st.none() | st.booleans() | st.floats() | st.lists(st.integers(), max_size=2)
)
SHAPES: dict[str, dict[str, st.SearchStrategy[Any]]] = {
    "List Files": {"dir_path": paths},
    "Read File": {"file_name": paths},
    "Write File": {"file_name": paths, "content": contents},
    "Append File": {"file_name": paths, "content": contents},
    "Copy File": {"source": paths, "destination": paths},
    "Inspect Script Lines": {"script_name": paths, "start_line_number": lines, "end_line_number": lines},
    "Undo Edit Script": {"script_name": paths},
    "Edit Script (AI)": {"script_name": paths, "edit_instruction": contents, "save_name": paths},
    "Edit Script Segment (AI)": {
        "script_name": paths,
        "start_line_number": lines,
        "end_line_number": lines,
        "edit_instruction": contents,
        "save_name": paths,
    },
    "Understand File": {"file_name": paths, "things_to_look_for": contents},
    "Reflection": {"things_to_reflect_on": contents},
}
fitting = st.sampled_from([*SHAPES]).flatmap(
    lambda name: st.tuples(st.just(name), st.fixed_dictionaries(SHAPES[name]))
)
any_args = st.dictionaries(
    st.sampled_from(["file_name", "content", "script_name"]) | letters, values, max_size=4
)
replies = st.sampled_from(["```python\nx = 2\n```", "", "```\n", "y = 3"]) | contents
STRATEGY = st.tuples(fitting | st.tuples(st.sampled_from([*SHAPES]) | letters, any_args), replies)


class Told(Model):
    """Says what the case says."""

    said = ""

    def reply(self, prompt: Prompt) -> Reply:
        return Reply(text=self.said, model="told", input_tokens=1, output_tokens=1)


class Runs:
    """One run after another, since each grows with its steps."""

    def __init__(self, room: Path, setup: Setup) -> None:
        self.room, self.setup, self.model, self.count = room, setup, Told(), 0
        self.env: Environment | None = None
        (room / "outside").write_text("untouched")

    def step(self, call: Call, said: str) -> str:
        if self.env is None or self.env.fault or len(self.env.steps) >= ROUND:
            self.close()
            self.env = self._begun()
        self.model.said = said
        return self.env.step(call)

    def _begun(self) -> Environment:
        self.count += 1
        spec = self.setup.create_run_spec(
            AgentSpec(agent="nobody"), 0, Limits(steps=10 * ROUND, files=2000, disk_gb=0.2)
        )
        env = open_environment(
            self.setup, RunFolder.create(self.room / f"run-{self.count}", spec), models={"main": self.model}
        )
        populate_workspace(env, self.setup)
        return env

    def close(self) -> None:
        if self.env:
            self.env.close()


@contextmanager
def opened(room: Path) -> Iterator[Runs]:
    """A place for runs."""
    runs = Runs(room, prepare_setup(str(TOY), "open", "none", lambda line: None))
    try:
        yield runs
    finally:
        runs.close()


def attempt(case: tuple[tuple[str, dict[str, Any]], str], runs: Runs) -> None:
    (action, args), said = case
    assert isinstance(runs.step(Call(action=action, args=args), said), str)
    assert (runs.room / "outside").read_text() == "untouched"
    assert {path.name.partition("-")[0] for path in runs.room.iterdir()} <= {"outside", "run", "at"}
