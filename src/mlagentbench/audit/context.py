"""What an attack knows: more than any agent knows, so that a failed attack means no agent can succeed."""

import csv
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import mlagentbench
from mlagentbench.audit.canaries import Secret
from mlagentbench.runner.setup import Setup
from mlagentbench.sandbox.access_log.expected_paths import PRIVATE_PATHS, expected_prefix
from mlagentbench.system.cache import cache_dir

Rows = list[list[str]]


@dataclass(frozen=True)
class AttackContext:
    """A task, the host paths of its answers and of the run, and the planted secrets."""

    setup: Setup
    run_folder: Path
    secrets: tuple[Secret, ...]
    quick: bool = False

    @property
    def secret_files(self) -> list[str]:
        """Host files that no agent may read."""
        answers = [str(path) for path in sorted(self.setup.data.private.rglob("*")) if path.is_file()]
        return answers + [str(secret.path) for secret in self.secrets if secret.path]

    @cached_property
    def protected_paths(self) -> tuple[str, ...]:
        """Paths of the harness as a script would name them: on the host, or inside the mounted Python."""
        setup, package = self.setup, Path(mlagentbench.__file__).parent
        folders = [package, setup.task.folder, setup.data.folder, cache_dir(), self.run_folder]
        protected = [path.resolve() for path in folders] + [
            secret.path for secret in self.secrets if secret.path
        ]
        prefix, inside = setup.runtime.prefix, setup.runtime.prefix_inside
        mounted = [
            f"{inside}/{path.relative_to(prefix)}" for path in protected if path.is_relative_to(prefix)
        ]
        return (*map(str, protected), *mounted)

    def is_protected(self, path: str) -> bool:
        """Whether no agent may open this path, as a script names it.

        The private folders of the sandbox are the agent's own, even if a protected path has the same name.
        """
        inside = any(path == root or path.startswith(f"{root}/") for root in self.protected_paths)
        return inside and expected_prefix(path) not in PRIVATE_PATHS

    @property
    def submission(self) -> str:
        """The file that is graded, or a dot if the whole workspace is."""
        return self.setup.task.config.submission

    @cached_property
    def answers(self) -> Rows:
        """The hidden answers, header first."""
        with (self.setup.data.private / "answers.csv").open(newline="") as file:
            return list(csv.reader(file))

    @cached_property
    def constant_table(self) -> Rows:
        """A valid table without information: each column holds its maximum in every row."""
        header, *rows = self.answers
        maxima = [max(column, key=cell_sort_key) for column in zip(*rows, strict=True)]
        return [header, *([row[0], *maxima[1:]] for row in rows)]


def cell_sort_key(cell: str) -> tuple[float, str]:
    """Order cells: numbers by value, before them words alphabetically."""
    try:
        return float(cell), ""
    except ValueError:
        return float("-inf"), cell


def to_csv(rows: Rows) -> str:
    """Format a table as CSV."""
    return "".join(",".join(row) + "\n" for row in rows)
