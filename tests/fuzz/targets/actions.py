"""Arguments of actions in a real run: an error is an observation, never a fault; nothing outside changes."""

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

EXPECTED_ERRORS = ()
CASES_PER_1000, SHORT_CASES = 20, 60
TOY = Path(__file__).parents[2] / "toy"
STEPS_PER_RUN = 300

texts = st.text(st.characters(exclude_categories=()), max_size=40)  # lone surrogates too
odd_paths = st.sampled_from(
    ["", ".", "..", "/", "/etc/passwd", "/workspace/a.py", "a/../../b", "a\0b", "x" * 5000, "a/" * 100]
)
paths = (
    st.sampled_from(["train.py", "new/deep/a.py", "questions.csv", "data", "data/deep/more.csv", "a.py"])
    | odd_paths
    | texts
)
contents = texts | st.sampled_from(["x = 1\n", "a\n" * 3000, "\r\n\x0c\u2028", "é" * 9000, "Action: {}"])
lines = st.integers(-2, 12) | st.sampled_from([2**64, -(2**64), 10**400])
values = (
    paths | contents | lines | st.none() | st.booleans() | st.floats() | st.lists(st.integers(), max_size=2)
)
ACTION_ARGS: dict[str, dict[str, st.SearchStrategy[Any]]] = {
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
valid_calls = st.sampled_from([*ACTION_ARGS]).flatmap(
    lambda name: st.tuples(st.just(name), st.fixed_dictionaries(ACTION_ARGS[name]))
)
arbitrary_args = st.dictionaries(
    st.sampled_from(["file_name", "content", "script_name"]) | texts, values, max_size=4
)
replies = st.sampled_from(["```python\nx = 2\n```", "", "```\n", "y = 3"]) | contents
STRATEGY = st.tuples(
    valid_calls | st.tuples(st.sampled_from([*ACTION_ARGS]) | texts, arbitrary_args), replies
)


class CaseModel(Model):
    """Returns the reply of the case."""

    reply_text = ""

    def reply(self, prompt: Prompt) -> Reply:
        return Reply(text=self.reply_text, model="case", input_tokens=1, output_tokens=1)


class SuccessiveRuns:
    """A new run every few hundred steps, because a run grows with its steps."""

    def __init__(self, folder: Path, setup: Setup) -> None:
        self.folder, self.setup, self.model, self.count = folder, setup, CaseModel(), 0
        self.env: Environment | None = None
        (folder / "outside").write_text("untouched")

    def step(self, call: Call, reply_text: str) -> str:
        if self.env is None or self.env.fault or len(self.env.steps) >= STEPS_PER_RUN:
            self.close()
            self.env = self._start_run()
        self.model.reply_text = reply_text
        return self.env.step(call)

    def _start_run(self) -> Environment:
        self.count += 1
        spec = self.setup.create_run_spec(
            AgentSpec(agent="fuzz"), 0, Limits(steps=10 * STEPS_PER_RUN, files=2000, disk_gb=0.2)
        )
        env = open_environment(
            self.setup, RunFolder.create(self.folder / f"run-{self.count}", spec), models={"main": self.model}
        )
        populate_workspace(env, self.setup)
        return env

    def close(self) -> None:
        if self.env:
            self.env.close()


@contextmanager
def open_fixture(folder: Path) -> Iterator[SuccessiveRuns]:
    """Open the runs."""
    runs = SuccessiveRuns(folder, prepare_setup(str(TOY), "open", "none", lambda line: None))
    try:
        yield runs
    finally:
        runs.close()


def run_case(case: tuple[tuple[str, dict[str, Any]], str], runs: SuccessiveRuns) -> None:
    (action, args), reply_text = case
    assert isinstance(runs.step(Call(action=action, args=args), reply_text), str)
    assert (runs.folder / "outside").read_text() == "untouched"
    assert {path.name.partition("-")[0] for path in runs.folder.iterdir()} <= {"outside", "run", "at"}
