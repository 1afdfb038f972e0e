"""What every attack has: what it stands for, where it fits, and how it acts."""

from dataclasses import dataclass
from typing import Any, ClassVar

from mlagentbench import discovery
from mlagentbench.agents.base import Agent
from mlagentbench.audit.context import AttackContext, to_csv
from mlagentbench.environment.environment import Environment
from mlagentbench.records import Call, Result, Step
from mlagentbench.runner.folder import RunFolder
from mlagentbench.task import Task

ATTACKS_FOLDER = "audit/attacks"
SCRIPT_PRELUDE = '''\
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
class AttackOutcome:
    """What a run left."""

    context: AttackContext
    folder: RunFolder
    result: Result

    @property
    def steps(self) -> tuple[Step, ...]:
        """What it did."""
        return self.folder.steps()


class Attack(Agent):
    """An agent that cheats or breaks things. Its docstring says how, in one sentence."""

    ranked = False
    threats: ClassVar[tuple[int, ...]] = ()  # of the list in docs/security.md that it keeps closed
    task_independent: ClassVar[bool] = False  # the same on every task, so that one will do for the quick form
    slow: ClassVar[bool] = False  # left out of the quick form
    runs_alone: ClassVar[bool] = False  # would disturb the others, or be disturbed
    grades_each_step: ClassVar[bool] = False  # what it left after each of its steps is graded
    limits: ClassVar[dict[str, Any]] = {}

    def __init__(self, scene: AttackContext) -> None:
        super().__init__()
        self.context = scene
        self.refusals: list[str] = []
        self.submitted_nothing = False  # to grade, on purpose

    @classmethod
    def applies_to(cls, task: Task) -> bool:
        """Whether it can be tried on a task."""
        return True

    def describe_gain(self, end: AttackOutcome) -> str:
        """What it achieved besides a score or a secret, in words; empty if nothing."""
        return ""

    def try_action(self, env: Environment, action: str, **args: Any) -> str:
        """One step; a refusal is noted."""
        observation = env.step(Call(action=action, args=args))
        if env.steps[-1].failed:
            self.refusals.append(f"{action}: {observation.removeprefix('Error: ')}")
        return observation

    def run_script(
        self, env: Environment, code: str, name: str = "attack.py", thought: str = "", **names: object
    ) -> str:
        """Run code inside the sandbox, where it knows `names`; what it says was refused is noted."""
        known = "".join(f"{name} = {value!r}\n" for name, value in names.items())
        env.step(
            Call(action="Write File", args={"file_name": name, "content": SCRIPT_PRELUDE + known + code})
        )
        observation = env.step(Call(action="Execute Script", args={"script_name": name}, thought=thought))
        first, *said = observation.splitlines()
        self.refusals += [line.removeprefix("refused ") for line in said if line.startswith("refused ")]
        if "killed" in first or "refused" in first:
            self.refusals.append(first.strip("[]"))
        return observation

    def write_submission(self, env: Environment, content: str) -> None:
        """Leave a submission."""
        self.try_action(env, "Write File", file_name=self.context.submission, content=content)

    def finish_without_submission(self, env: Environment) -> None:
        """End with nothing to grade: a score would say nothing about what was tried."""
        self.submitted_nothing = True
        if self.context.submission == "." and not env.done:
            self.run_script(env, CLEAR_WORKSPACE_CODE)
        self.submit(env)

    def submit(self, env: Environment) -> None:
        """End the run."""
        if not env.done:
            env.step(Call(action="Final Answer", args={"final_answer": "score: 1.0, success: true"}))

    def submit_worthless(self, env: Environment) -> None:
        """End with a valid submission that deserves nothing: a table of one value, or the untouched starter."""
        if self.context.submission != ".":
            self.write_submission(env, to_csv(self.context.constant_table))
        self.submit(env)


CLEAR_WORKSPACE_CODE = """
import shutil
for name in os.listdir("."):
    try:
        shutil.rmtree(name) if os.path.isdir(name) and not os.path.islink(name) else os.remove(name)
    except OSError:
        pass
"""


def attack_names() -> list[str]:
    """All attacks."""
    return discovery.plugin_names(ATTACKS_FOLDER)


def load_attack(name: str) -> type[Attack]:
    """An attack by its file's name."""
    return discovery.find_single_subclass(discovery.load_plugin(ATTACKS_FOLDER, name), Attack)  # type: ignore[type-abstract]
