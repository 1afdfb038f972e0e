"""Base class of attacks that submit malformed tables: one variant per step, each graded."""

import base64
import zlib
from abc import abstractmethod

from mlagentbench.audit.attacks.base import CLEAR_WORKSPACE_CODE, Attack
from mlagentbench.audit.context import Rows
from mlagentbench.environment.environment import Environment
from mlagentbench.task import Task

QUICK_VARIANTS = 2  # variants tried in a quick audit


class TableAttack(Attack):
    """Submits one table after another."""

    grades_each_step = True

    @classmethod
    def applies_to(cls, task: Task) -> bool:
        """Whether the task asks for a table, and has the trait of the attack."""
        return task.config.submission.endswith(".csv") and super().applies_to(task)

    @abstractmethod
    def build_variants(self, answers: Rows, constant: Rows) -> dict[str, bytes]:
        """Build the tables, keyed by what is wrong with each, the worst first.

        A variant may use the answers, to show that the trick would not turn them into a score.
        """

    def run(self, env: Environment) -> None:
        """Write each variant in its own step, by a script, since not all of them are text."""
        variants = list(self.build_variants(self.context.answers, self.context.constant_table).items())
        for name, content in variants[:QUICK_VARIANTS] if self.context.quick else variants:
            code = f"open({self.context.submission!r}, 'wb').write({_compressed_literal(content)})"
            self.run_script(env, code, thought=name)
        self.run_script(env, CLEAR_WORKSPACE_CODE)
        self.finish_without_submission(env)


def _compressed_literal(content: bytes) -> str:
    """Return a Python expression for these bytes that is short even if they are repetitive."""
    encoded = base64.b85encode(zlib.compress(content, 9)).decode()
    return f"__import__('zlib').decompress(__import__('base64').b85decode({encoded!r}))"
