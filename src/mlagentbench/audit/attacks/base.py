"""Base class of all attacks: the threats an attack covers, the tasks it applies to, and how it acts."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from mlagentbench import discovery
from mlagentbench.agents.base import Agent
from mlagentbench.audit.context import AttackContext, to_csv
from mlagentbench.environment.environment import Environment
from mlagentbench.records import Call, Result, Step
from mlagentbench.runner.folder import RunFolder
from mlagentbench.task import Task

ATTACKS_PACKAGE = "audit.attacks"
SCRIPT_PRELUDE = '''\
import os, sys

def attempt(what, operation):
    """Try an operation and print whether it was refused."""
    try:
        result = operation()
    except BaseException as error:
        print(f"refused {what}: {type(error).__name__}: {error}"[:300].replace("\\n", " "), flush=True)
    else:
        print(f"got {what}: {result!r}"[:3000], flush=True)

def read(path):
    with open(path, "rb") as file:
        return file.read(2500)

'''
CLEAR_WORKSPACE_CODE = """
import shutil
for name in os.listdir("."):
    try:
        shutil.rmtree(name) if os.path.isdir(name) and not os.path.islink(name) else os.remove(name)
    except OSError:
        pass
"""


@dataclass(frozen=True)
class AttackOutcome:
    """The finished run of an attack."""

    context: AttackContext
    folder: RunFolder
    result: Result

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps the attack took."""
        return self.folder.steps()


class Attack(Agent):
    """An agent that cheats or causes damage. The docstring of a subclass says how, in one sentence."""

    ranked = False
    trait: ClassVar[str] = ""  # a task must declare it in task.toml; empty for attacks on every task
    threats: ClassVar[tuple[int, ...]] = ()  # the rows it covers in docs/internals/security.md
    task_independent: ClassVar[bool] = False  # the same on every task: a quick audit runs it on one task only
    slow: ClassVar[bool] = False  # left out of a quick audit
    runs_alone: ClassVar[bool] = False  # would disturb other attacks, or be disturbed by them
    grades_each_step: ClassVar[bool] = False  # the submission is graded after each step
    limits: ClassVar[dict[str, Any]] = {}

    def __init__(self, context: AttackContext) -> None:
        super().__init__()
        self.context = context
        self.refusals: list[str] = []
        self.submitted_nothing = False  # on purpose

    @classmethod
    def applies_to(cls, task: Task) -> bool:
        """Whether the attack can be run against a task: by default, if the task has its trait."""
        return not cls.trait or bool(getattr(task.config.traits, cls.trait))

    def describe_gain(self, outcome: AttackOutcome) -> str:
        """Describe what the attack achieved besides a score or a secret; empty if nothing."""
        return ""

    def try_action(self, env: Environment, action: str, **args: Any) -> str:
        """Take one step and note a refusal."""
        observation = env.step(Call(action=action, args=args))
        if env.steps[-1].failed:
            self.refusals.append(f"{action}: {observation.removeprefix('Error: ')}")
        return observation

    def run_script(
        self, env: Environment, code: str, name: str = "attack.py", thought: str = "", **variables: object
    ) -> str:
        """Run code inside the sandbox with `variables` defined, and note the refusals it prints."""
        assignments = "".join(f"{variable} = {value!r}\n" for variable, value in variables.items())
        content = SCRIPT_PRELUDE + assignments + code
        env.step(Call(action="Write File", args={"file_name": name, "content": content}))
        observation = env.step(Call(action="Execute Script", args={"script_name": name}, thought=thought))
        status, *output = observation.splitlines()
        self.refusals += [line.removeprefix("refused ") for line in output if line.startswith("refused ")]
        if "killed" in status or "refused" in status:
            self.refusals.append(status.strip("[]"))
        return observation

    def write_submission(self, env: Environment, content: str) -> None:
        """Write the submission file."""
        self.try_action(env, "Write File", file_name=self.context.submission, content=content)

    def write_each_program(self, env: Environment, module: str, codes: Mapping[str, str]) -> None:
        """Write each program in its own step, which is graded; the keys say what is tried."""
        for thought, code in codes.items():
            args = {"file_name": f"{module}.py", "content": code}
            env.step(Call(action="Write File", args=args, thought=thought))
        self.finish_without_submission(env)

    def finish_without_submission(self, env: Environment) -> None:
        """End the run with nothing to grade: a score would say nothing about this attack."""
        self.submitted_nothing = True
        if self.context.submission == "." and not env.done:
            self.run_script(env, CLEAR_WORKSPACE_CODE)
        self.submit(env)

    def submit(self, env: Environment) -> None:
        """End the run."""
        if not env.done:
            env.step(Call(action="Final Answer", args={"final_answer": "score: 1.0, success: true"}))

    def submit_worthless(self, env: Environment) -> None:
        """End the run with a valid submission without merit: a constant table, or the unchanged starter."""
        if self.context.submission != ".":
            self.write_submission(env, to_csv(self.context.constant_table))
        self.submit(env)


def attack_names() -> list[str]:
    """The names of all attacks."""
    return discovery.builtin_names(ATTACKS_PACKAGE)


def load_attack(name: str) -> type[Attack]:
    """Load an attack by its file name."""
    return discovery.load_class(ATTACKS_PACKAGE, name, Attack)  # type: ignore[type-abstract]
