"""The scripted runs of a soak: the replies of their models, good and bad, and the expected results."""

import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import NamedTuple

from mlagentbench.models.scripted import REPLY_SEPARATOR
from mlagentbench.records import Call

TOY = Path(__file__).parents[2] / "tests" / "toy"
STARTER_SCORE, BEST_SCORE = 5.0, 0.0  # of the starter and the reference of the toy task
PERFECT_TABLE_CODE = '"id,value\\n" + "".join(f"{i},{i}\\n" for i in range(10))'


def write(name: str, content: str) -> Call:
    """A call that writes a file."""
    return Call(action="Write File", args={"file_name": name, "content": content})


def execute(name: str) -> Call:
    """A call that runs a script."""
    return Call(action="Execute Script", args={"script_name": name})


def compute(command: str) -> Call:
    """A call that runs a command in the interpreter."""
    return Call(action="Python REPL", args={"command": command})


TRAIN = execute("train.py")
SUBMIT = Call(action="Final Answer", args={"final_answer": "done"})


class Behavior(NamedTuple):
    """The calls before the final answer, the resulting score, and how often the behavior is drawn."""

    calls: Callable[[Random], list[Call]]
    score: float | None = STARTER_SCORE
    weight: int = 1


def run_greedy_script(code: str) -> Callable[[Random], list[Call]]:
    """Run a script that uses too much of a resource, and then the starter."""
    return lambda random: [write("greedy.py", code), execute("greedy.py"), TRAIN]


def _write_notes(random: Random) -> list[Call]:
    sizes = [random.choice([1, 100, 6_000]) for _ in range(random.randint(1, 4))]
    notes = [write(f"notes/{number}", random.randbytes(size).hex()) for number, size in enumerate(sizes)]
    return [*notes, TRAIN]


def _run_slow_script(random: Random) -> list[Call]:
    code = f"import time\nprint('started', flush=True)\ntime.sleep({random.uniform(0.2, 1.5):.2f})"
    return [write("slow.py", code), execute("slow.py"), TRAIN]


def _use_variables(random: Random) -> list[Call]:
    number = random.randint(1, 9)
    return [
        compute(f"kept = {number}"),
        compute("kept * 2"),
        compute(f"kept == {number} and open('submission.csv', 'w').write({PERFECT_TABLE_CODE})"),
    ]


BEHAVIORS = {
    "plain": Behavior(_write_notes, weight=5),
    "succeeds": Behavior(
        lambda random: [write("train.py", (TOY / "reference" / "train.py").read_text()), TRAIN], BEST_SCORE, 3
    ),
    "submits nothing": Behavior(lambda random: [execute("missing.py")], None, 2),
    "slow": Behavior(_run_slow_script, weight=4),
    "uses variables": Behavior(_use_variables, BEST_SCORE, 2),
    "exhausts memory": Behavior(
        run_greedy_script("blocks = []\nwhile True: blocks.append(bytearray(2**24))"), weight=2
    ),
    "forks": Behavior(
        run_greedy_script("import os\nwhile True:\n    try: os.fork()\n    except OSError: pass")
    ),
    "opens files": Behavior(
        run_greedy_script("files = []\nwhile True: files.append(open('train.py'))"), weight=2
    ),
    "fills the disk": Behavior(
        run_greedy_script("for n in range(4): open(f'big{n}', 'wb').write(bytes(2**26))")
    ),
    "floods the output": Behavior(run_greedy_script("for _ in range(3000): print('x' * 999)")),
    "leaves a daemon": Behavior(
        run_greedy_script(
            "import os, time\nif os.fork() == 0:\n    os.setsid()\n    os.fork()\n    time.sleep(1000)"
        ),
        weight=2,
    ),
    "crashes": Behavior(run_greedy_script("import ctypes\nctypes.string_at(0)")),
    "kills itself": Behavior(run_greedy_script("import os\nos.kill(os.getpid(), 9)")),
}
BAD_REPLIES: tuple[str, ...] = (
    "",
    "I think that I should look at the data first.",
    "Action: Fly\nAction Input: {}",
    "x" * 300_000,
)
BAD_REPLIES += (
    'Action: Write File\nAction Input: {"file_name": ',
    "Action:\nAction Input:",
    "\x00\ufffd\u202e=====",
)


class ScriptedRun(NamedTuple):
    """One run: the replies of its model for each step, bad ones first; the steps; the expected score."""

    name: str
    behavior: str
    replies: tuple[tuple[str, ...], ...]
    calls: tuple[Call, ...]
    score: float | None


def draw_run(random: Random, name: str, bad_replies: bool = True) -> ScriptedRun:
    """Draw a random run; one whose agent uses no model has no bad replies."""
    weights = [behavior.weight for behavior in BEHAVIORS.values()]
    behavior = random.choices(list(BEHAVIORS), weights)[0]
    calls = (*BEHAVIORS[behavior].calls(random), SUBMIT)
    replies = []
    for call in calls:
        bad: list[str] = []
        if bad_replies and random.random() < 0.15:
            bad = random.choices(BAD_REPLIES, k=random.choice([1, 2, 3]))
        replies.append((*bad, f"Action: {call.action}\nAction Input: {json.dumps(call.args)}"))
    return ScriptedRun(name, behavior, tuple(replies), calls, BEHAVIORS[behavior].score)


def render_script(run: ScriptedRun) -> str:
    """Format all replies as the file of a scripted model."""
    return REPLY_SEPARATOR.join(reply for replies in run.replies for reply in replies)
