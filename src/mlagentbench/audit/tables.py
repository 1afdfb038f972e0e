"""Attacks by what a submitted table says: each variant is a step, and what it leaves is graded after each."""

import base64
import zlib
from abc import abstractmethod

from mlagentbench.audit.attacks.base import EMPTY, Attack
from mlagentbench.audit.scene import Rows
from mlagentbench.environment import Environment
from mlagentbench.task import Task

QUICK = 2  # variants in the quick form


class TableAttack(Attack):
    """Hands in one table after another."""

    each_step = True

    @classmethod
    def fits(cls, task: Task) -> bool:
        """Whether a table is submitted."""
        return task.config.submission.endswith(".csv")

    @abstractmethod
    def variants(self, answers: Rows, clueless: Rows) -> dict[str, bytes]:
        """Tables by what is wrong with them, the worst first; it may use the answers to show what is possible."""

    def run(self, env: Environment) -> None:
        """One step for each, from inside, since not all of them are text."""
        chosen = list(self.variants(self.scene.answers, self.scene.clueless).items())
        for name, content in chosen[:QUICK] if self.scene.quick else chosen:
            self.execute(env, f"open({self.scene.submission!r}, 'wb').write({_packed(content)})", thought=name)
        self.execute(env, EMPTY)
        self.leave(env)


def _packed(content: bytes) -> str:
    """An expression for these bytes that is short, however often they repeat themselves."""
    told = base64.b85encode(zlib.compress(content, 9)).decode()
    return f"__import__('zlib').decompress(__import__('base64').b85decode({told!r}))"
