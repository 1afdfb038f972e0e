"""Attacks by submitted code that is timed or asked by the grader: a wrapper around the starter's own function."""

from typing import ClassVar

from mlagentbench.audit.attacks.base import Attack
from mlagentbench.environment.environment import Environment
from mlagentbench.records import Call
from mlagentbench.task import Task

TIMED_FUNCTIONS = {"vectorization": ("conv", "forward"), "llama-inference": ("llama", "generate")}


class TimedAttack(Attack):
    """Hands in code that is as slow as the starter, and means to look fast.

    `code` defines `cheat(honest, *args)`: the answer to a question, for which `honest` would do the work.
    """

    slow = True
    runs_alone = True
    code: ClassVar[str]

    @classmethod
    def applies_to(cls, task: Task) -> bool:
        """Whether the task is about speed."""
        return task.name in TIMED_FUNCTIONS

    def run(self, env: Environment) -> None:
        """The starter's module under another name, and the wrapper in its place."""
        module, function = TIMED_FUNCTIONS[env.task.name]
        self.try_action(env, "Copy File", source=f"{module}.py", destination="honest.py")
        wrapper = f"{self.code}\nfrom honest import {function} as honest\ndef {function}(*args):\n"
        wrapper += "    return cheat(honest, *args)\n"
        env.step(Call(action="Write File", args={"file_name": f"{module}.py", "content": wrapper}))
        self.submit(env)
