"""Base class of attacks on timed tasks: the starter's function behind a cheating wrapper."""

from typing import ClassVar

from mlagentbench.audit.attacks.base import Attack
from mlagentbench.environment.environment import Environment
from mlagentbench.records import Call


class TimedAttack(Attack):
    """Submits code that is as slow as the starter but tries to look fast.

    `code` defines `cheat(honest, *args)`, which answers a question; `honest` is the function of the starter.
    """

    trait = "timed_function"
    slow = True
    runs_alone = True
    code: ClassVar[str]

    def run(self, env: Environment) -> None:
        """Move the starter's module aside and write the wrapper in its place."""
        timed = env.task.config.traits.timed_function
        assert timed
        module, function = timed.module, timed.function
        self.try_action(env, "Copy File", source=f"{module}.py", destination="honest.py")
        wrapper = f"{self.code}\nfrom honest import {function} as honest\ndef {function}(*args):\n"
        wrapper += "    return cheat(honest, *args)\n"
        env.step(Call(action="Write File", args={"file_name": f"{module}.py", "content": wrapper}))
        self.submit(env)
