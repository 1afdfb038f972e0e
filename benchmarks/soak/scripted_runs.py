"""What scripted models want in a soak, good and bad, and what must come of it."""

import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import NamedTuple

from mlagentbench.models.scripted import REPLY_SEPARATOR
from mlagentbench.records import Call

TOY = Path(__file__).parents[2] / "tests" / "toy"
STARTER_SCORE, BEST_SCORE = 5.0, 0.0  # the scores of the toy's starter and of its reference
DATA = '"id,value\\n" + "".join(f"{i},{i}\\n" for i in range(10))'


def write(name: str, content: str) -> Call:
    """Put a file into the workspace."""
    return Call(action="Write File", args={"file_name": name, "content": content})


def execute(name: str) -> Call:
    """Run a script of the workspace."""
    return Call(action="Execute Script", args={"script_name": name})


def compute(command: str) -> Call:
    """Run a line in the interpreter that stays."""
    return Call(action="Python REPL", args={"command": command})


TRAIN = execute("train.py")
SUBMIT = Call(action="Final Answer", args={"final_answer": "done"})


class Behavior(NamedTuple):
    """What is done before the end, the score of what is left, and how often it is drawn."""

    calls: Callable[[Random], list[Call]]
    score: float | None = STARTER_SCORE
    weight: int = 1


def greedy(code: str) -> Callable[[Random], list[Call]]:
    """A script that wants too much, and the starter after it."""
    return lambda dice: [write("greedy.py", code), execute("greedy.py"), TRAIN]


def _notes(dice: Random) -> list[Call]:
    sizes = [dice.choice([1, 100, 6_000]) for _ in range(dice.randint(1, 4))]
    return [write(f"notes/{number}", dice.randbytes(size).hex()) for number, size in enumerate(sizes)] + [
        TRAIN
    ]


def _slow(dice: Random) -> list[Call]:
    code = f"import time\nprint('begun', flush=True)\ntime.sleep({dice.uniform(0.2, 1.5):.2f})"
    return [write("slow.py", code), execute("slow.py"), TRAIN]


def _keeps(dice: Random) -> list[Call]:
    number = dice.randint(1, 9)
    return [
        compute(f"kept = {number}"),
        compute("kept * 2"),
        compute(f"kept == {number} and open('submission.csv', 'w').write({DATA})"),
    ]


BEHAVIORS = {
    "plain": Behavior(_notes, weight=5),
    "wins": Behavior(
        lambda dice: [write("train.py", (TOY / "reference" / "train.py").read_text()), TRAIN], BEST_SCORE, 3
    ),
    "leaves nothing": Behavior(lambda dice: [execute("missing.py")], None, 2),
    "slow": Behavior(_slow, weight=4),
    "keeps variables": Behavior(_keeps, BEST_SCORE, 2),
    "eats memory": Behavior(greedy("held = []\nwhile True: held.append(bytearray(2**24))"), weight=2),
    "forks": Behavior(greedy("import os\nwhile True:\n    try: os.fork()\n    except OSError: pass")),
    "opens files": Behavior(greedy("held = []\nwhile True: held.append(open('train.py'))"), weight=2),
    "fills the disk": Behavior(greedy("for n in range(4): open(f'big{n}', 'wb').write(bytes(2**26))")),
    "floods": Behavior(greedy("for _ in range(3000): print('x' * 999)")),
    "leaves a daemon": Behavior(
        greedy("import os, time\nif os.fork() == 0:\n    os.setsid()\n    os.fork()\n    time.sleep(1000)"),
        weight=2,
    ),
    "crashes": Behavior(greedy("import ctypes\nctypes.string_at(0)")),
    "kills itself": Behavior(greedy("import os\nos.kill(os.getpid(), 9)")),
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
    """One run: what its model says for each step, bad replies first; the steps; the score that must come of it."""

    name: str
    plot: str
    replies: tuple[tuple[str, ...], ...]
    calls: tuple[Call, ...]
    score: float | None


def draw_run(dice: Random, name: str, bad: bool = True) -> ScriptedRun:
    """A run at random; where the agent asks no model, there are no bad replies."""
    plot = dice.choices(list(BEHAVIORS), [plot.weight for plot in BEHAVIORS.values()])[0]
    calls = (*BEHAVIORS[plot].calls(dice), SUBMIT)
    replies = []
    for call in calls:
        spoiled = dice.choices(BAD_REPLIES, k=dice.choice([1, 2, 3])) if bad and dice.random() < 0.15 else []
        replies.append((*spoiled, f"Action: {call.action}\nAction Input: {json.dumps(call.args)}"))
    return ScriptedRun(name, plot, tuple(replies), calls, BEHAVIORS[plot].score)


def render_script(part: ScriptedRun) -> str:
    """All replies as the file of a scripted model."""
    return REPLY_SEPARATOR.join(reply for replies in part.replies for reply in replies)
