"""What every attack has: what it stands for, where it fits, and how it acts."""

from dataclasses import dataclass
from typing import Any, ClassVar

from mlagentbench import discovery
from mlagentbench.agents.base import Agent
from mlagentbench.audit.scene import Scene, text
from mlagentbench.environment import Environment
from mlagentbench.records import Call, Result, Step
from mlagentbench.runner.folder import RunFolder
from mlagentbench.task import Task

ROOM = "audit/attacks"
PROBE = '''\
import os, sys

def attempt(what, deed):
    """Try it, and say what came of it."""
    try:
        got = deed()
    except BaseException as error:
        print(f"refused {what}: {type(error).__name__}: {error}"[:300].replace("\\n", " "), flush=True)
    else:
        print(f"got {what}: {got!r}"[:3000], flush=True)

def read(path):
    with open(path, "rb") as file:
        return file.read(2500)

'''


@dataclass(frozen=True)
class Aftermath:
    """What a run left."""

    scene: Scene
    folder: RunFolder
    result: Result

    @property
    def steps(self) -> tuple[Step, ...]:
        """What it did."""
        return self.folder.steps()


class Attack(Agent):
    """An agent that cheats or breaks things. Its docstring says how, in one sentence."""

    contestant = False
    lines: ClassVar[tuple[int, ...]] = ()  # of the list in docs/security.md that it keeps closed
    general: ClassVar[bool] = False  # the same on every task, so that one will do for the quick form
    slow: ClassVar[bool] = False  # left out of the quick form
    alone: ClassVar[bool] = False  # would disturb the others, or be disturbed
    each_step: ClassVar[bool] = False  # what it left after each of its steps is graded
    limits: ClassVar[dict[str, Any]] = {}

    def __init__(self, scene: Scene) -> None:
        super().__init__()
        self.scene = scene
        self.refusals: list[str] = []
        self.left_nothing = False  # to grade, on purpose

    @classmethod
    def fits(cls, task: Task) -> bool:
        """Whether it can be tried on a task."""
        return True

    def gained(self, end: Aftermath) -> str:
        """What it achieved besides a score or a secret, in words; empty if nothing."""
        return ""

    def act(self, env: Environment, action: str, **args: Any) -> str:
        """One step; a refusal is noted."""
        observation = env.step(Call(action=action, args=args))
        if env.steps[-1].failed:
            self.refusals.append(f"{action}: {observation.removeprefix('Error: ')}")
        return observation

    def execute(self, env: Environment, code: str, name: str = "attack.py", thought: str = "", **names: object) -> str:
        """Run code inside the sandbox, where it knows `names`; what it says was refused is noted."""
        known = "".join(f"{name} = {value!r}\n" for name, value in names.items())
        env.step(Call(action="Write File", args={"file_name": name, "content": PROBE + known + code}))
        observation = env.step(Call(action="Execute Script", args={"script_name": name}, thought=thought))
        first, *said = observation.splitlines()
        self.refusals += [line.removeprefix("refused ") for line in said if line.startswith("refused ")]
        if "killed" in first or "refused" in first:
            self.refusals.append(first.strip("[]"))
        return observation

    def write(self, env: Environment, content: str) -> None:
        """Leave a submission."""
        self.act(env, "Write File", file_name=self.scene.submission, content=content)

    def leave(self, env: Environment) -> None:
        """End with nothing to grade: a score would say nothing about what was tried."""
        self.left_nothing = True
        if self.scene.submission == "." and not env.done:
            self.execute(env, EMPTY)
        self.submit(env)

    def submit(self, env: Environment) -> None:
        """End the run."""
        if not env.done:
            env.step(Call(action="Final Answer", args={"final_answer": "score: 1.0, success: true"}))

    def leave_clueless(self, env: Environment) -> None:
        """End with a valid submission that deserves nothing: a table of one value, or the untouched starter."""
        if self.scene.submission != ".":
            self.write(env, text(self.scene.clueless))
        self.submit(env)


EMPTY = """
import shutil
for name in os.listdir("."):
    try:
        shutil.rmtree(name) if os.path.isdir(name) and not os.path.islink(name) else os.remove(name)
    except OSError:
        pass
"""


def names() -> list[str]:
    """All attacks."""
    return discovery.names(ROOM)


def load(name: str) -> type[Attack]:
    """An attack by its file's name."""
    return discovery.only_subclass(discovery.plugin(ROOM, name), Attack)  # type: ignore[type-abstract]
