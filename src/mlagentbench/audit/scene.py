"""What an attack may know: more than any agent, so that what it does not gain nobody can."""

import csv
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from mlagentbench.audit.canaries import Secret
from mlagentbench.runner.setup import Setup

Rows = list[list[str]]


@dataclass(frozen=True)
class Scene:
    """A task, where on the host its answers and the run lie, and what is hidden there."""

    setup: Setup
    run: Path
    secrets: tuple[Secret, ...]
    quick: bool = False

    @property
    def targets(self) -> list[str]:
        """Files of the host that no agent may read."""
        answers = [str(path) for path in sorted(self.setup.data.private.rglob("*")) if path.is_file()]
        return answers + [str(secret.path) for secret in self.secrets if secret.path]

    @property
    def submission(self) -> str:
        """The file that is graded; or a dot, where the workspace is."""
        return self.setup.task.config.submission

    @cached_property
    def answers(self) -> Rows:
        """The hidden table, header first."""
        with (self.setup.data.private / "answers.csv").open(newline="") as file:
            return list(csv.reader(file))

    @cached_property
    def clueless(self) -> Rows:
        """A valid table that says of everything that it is the most: what somebody leaves who knows nothing."""
        header, *rows = self.answers
        most = [max(column, key=_weight) for column in zip(*rows, strict=True)]
        return [header, *([row[0], *most[1:]] for row in rows)]


def _weight(cell: str) -> tuple[float, str]:
    try:
        return float(cell), ""
    except ValueError:
        return float("-inf"), cell


def text(rows: Rows) -> str:
    """A table as csv."""
    return "".join(",".join(row) + "\n" for row in rows)
