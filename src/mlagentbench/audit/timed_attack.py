"""Base class of attacks on timed tasks: the starter's function behind a cheating wrapper."""

from typing import ClassVar

from mlagentbench.audit.attacks.base import Attack
from mlagentbench.environment.environment import Environment
from mlagentbench.records import Call
from mlagentbench.task import Task

TIMED_FUNCTIONS = {"vectorization": ("conv", "forward"), "llama-inference": ("llama", "generate")}


class TimedAttack(Attack):
    """Submits code that is as slow as the starter but tries to look fast.

    `code` defines `cheat(honest, *args)`, which answers a question; `honest` is the function of the starter.
    """

    slow = True
    runs_alone = True
    code: ClassVar[str]

    @classmethod
    def applies_to(cls, task: Task) -> bool:
        """Whether the grader times a submitted function."""
        return task.name in TIMED_FUNCTIONS

    def run(self, env: Environment) -> None:
        """Move the starter's module aside and write the wrapper in its place."""
        module, function = TIMED_FUNCTIONS[env.task.name]
        self.try_action(env, "Copy File", source=f"{module}.py", destination="honest.py")
        wrapper = f"{self.code}\nfrom honest import {function} as honest\ndef {function}(*args):\n"
        wrapper += "    return cheat(honest, *args)\n"
        env.step(Call(action="Write File", args={"file_name": f"{module}.py", "content": wrapper}))
        self.submit(env)
