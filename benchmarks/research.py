"""Measures what a long run of the research agent costs the harness, with an instant model. Prints JSON.

Part of overhead.py; a process of its own, because its memory is measured.

python benchmarks/research.py [STEPS]
"""

import json
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from overhead import Figure, median_seconds

from mlagentbench.agents.research import Research
from mlagentbench.environment.environment import Environment
from mlagentbench.models.base import Model
from mlagentbench.records import AgentSpec, Call, Limits, Prompt, Reply
from mlagentbench.runner.folder import RunFolder
from mlagentbench.runner.run import open_environment, populate_workspace
from mlagentbench.runner.setup import prepare_setup

TOY = Path(__file__).parents[1] / "tests" / "toy"
FILLER = "what an observation has shown, what was tried, and what comes next; " * 30
WRITE_REPLY = f"""Reflection: {FILLER}
Research Plan and Status: {FILLER}
Fact Check: {FILLER}
Thought: continue
Action: Write File
Action Input: {json.dumps({"file_name": "note.txt", "content": FILLER})}"""


class InstantModel(Model):
    """Always writes the same file; replies at once."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []

    def reply(self, prompt: Prompt) -> Reply:
        self.sizes.append(sum(len(message.text) for message in prompt.messages))
        return Reply(text=WRITE_REPLY, model="instant", input_tokens=1000, output_tokens=100)


class TimedEnvironment(Environment):
    """Times model calls and steps; the model itself takes no time, and writing a small file hardly any."""

    def __init__(self, other: Environment) -> None:
        self.__dict__ = other.__dict__
        self.call_seconds: list[float] = []
        self.step_seconds: list[float] = []

    def ask(self, *args: Any, **options: Any) -> Reply:
        started = time.perf_counter()
        try:
            return super().ask(*args, **options)
        finally:
            self.call_seconds.append(time.perf_counter() - started)

    def step(self, call: Call) -> str:
        started = time.perf_counter()
        try:
            return super().step(call)
        finally:
            self.step_seconds.append(time.perf_counter() - started)


def median_around(values: list[float], index: int) -> float:
    """The median of the twenty values around an index, in milliseconds."""
    return statistics.median(values[max(index - 10, 0) : index + 10]) * 1000


def measure(steps: int) -> Iterator[Figure]:
    imported_mb = peak_memory_mb()
    setup = prepare_setup(str(TOY), "open", "bwrap", lambda line: print(line, file=sys.stderr))
    model = InstantModel()
    agent = Research(memory=True)
    with tempfile.TemporaryDirectory(prefix="mlagentbench-research-") as name:
        folder = RunFolder.create(
            Path(name),
            setup.create_run_spec(AgentSpec(agent="research", model="instant"), 0, Limits(steps=steps)),
        )
        env = TimedEnvironment(open_environment(setup, folder, None, {"main": model}))
        populate_workspace(env, setup)
        agent.run(env)
        env.close()
        peak_mb = peak_memory_mb()
        record = json.loads(folder.model_calls.path.read_text().splitlines()[-1])
        bare_call_ms = median_seconds(lambda: append_line(Path(name, "bare.jsonl"), record), 50) * 1000
        bare_step_ms = median_seconds(lambda: record_same_content(Path(name)), 50) * 1000
    calls = len(env.call_seconds) // steps
    for step in (50, steps - 10):
        call_ms = median_around(env.call_seconds, step * calls)
        title = f"model call at step {step} (with its record)"
        yield Figure(title, call_ms, "ms", 5, bare_call_ms, "the same line, written by hand")
    for step in (50, steps - 10):
        step_ms = median_around(env.step_seconds, step)
        title = f"step {step} besides the model"
        yield Figure(title, step_ms, "ms", 5, bare_step_ms, "the file and a line, written by hand")
    growth = max(model.sizes) / max(model.sizes[: 50 * calls])
    yield Figure("longest prompt, at the end relative to step 50", growth, "×", 1.1)
    title = f"memory of a research run of {steps} steps"
    yield Figure(title, peak_mb, "MB", 150, imported_mb, "the process before the run")


def append_line(path: Path, record: object) -> None:
    """The lower bound of a recorded model call."""
    with path.open("ab", buffering=0) as journal:
        journal.write(json.dumps(record).encode() + b"\n")


def record_same_content(folder: Path) -> None:
    """The lower bound of a step that writes the same content again: no snapshot of it is stored."""
    (folder / "bare.txt").unlink(missing_ok=True)  # ext4 writes a truncated file to disk, which takes longer
    (folder / "bare.txt").write_text(FILLER)
    append_line(folder / "bare-trace.jsonl", FILLER)


def peak_memory_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 510
    print(json.dumps([vars(figure) for figure in measure(steps)]))
