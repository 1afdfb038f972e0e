"""Attacks by what a submitted table says: each variant is a step, and what it leaves is graded after each."""

import base64
import zlib
from abc import abstractmethod

from mlagentbench.audit.attacks.base import CLEAR_WORKSPACE_CODE, Attack
from mlagentbench.audit.context import Rows
from mlagentbench.environment.environment import Environment
from mlagentbench.task import Task

QUICK_VARIANTS = 2  # variants in the quick form


class TableAttack(Attack):
    """Hands in one table after another."""

    grades_each_step = True

    @classmethod
    def applies_to(cls, task: Task) -> bool:
        """Whether a table is submitted."""
        return task.config.submission.endswith(".csv")

    @abstractmethod
    def build_variants(self, answers: Rows, clueless: Rows) -> dict[str, bytes]:
        """Tables by what is wrong with them, the worst first; it may use the answers to show what is possible."""

    def run(self, env: Environment) -> None:
        """One step for each, from inside, since not all of them are text."""
        chosen = list(self.build_variants(self.context.answers, self.context.constant_table).items())
        for name, content in chosen[:QUICK_VARIANTS] if self.context.quick else chosen:
            self.run_script(
                env,
                f"open({self.context.submission!r}, 'wb').write({_compressed_literal(content)})",
                thought=name,
            )
        self.run_script(env, CLEAR_WORKSPACE_CODE)
        self.finish_without_submission(env)


def _compressed_literal(content: bytes) -> str:
    """An expression for these bytes that is short, however often they repeat themselves."""
    told = base64.b85encode(zlib.compress(content, 9)).decode()
    return f"__import__('zlib').decompress(__import__('base64').b85decode({told!r}))"
