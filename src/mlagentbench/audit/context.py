"""What an attack may know: more than any agent, so that what it does not gain nobody can."""

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
    """A task, where on the host its answers and the run lie, and what is hidden there."""

    setup: Setup
    run_folder: Path
    secrets: tuple[Secret, ...]
    quick: bool = False

    @property
    def secret_files(self) -> list[str]:
        """Files of the host that no agent may read."""
        answers = [str(path) for path in sorted(self.setup.data.private.rglob("*")) if path.is_file()]
        return answers + [str(secret.path) for secret in self.secrets if secret.path]

    @cached_property
    def protected_paths(self) -> tuple[str, ...]:
        """Where a script would find what is ours, by its name on the host, or inside the Python that is shown."""
        setup, package = self.setup, Path(mlagentbench.__file__).parent
        folders = [package, setup.task.folder, setup.data.folder, cache_dir(), self.run_folder]
        ours = [path.resolve() for path in folders] + [secret.path for secret in self.secrets if secret.path]
        prefix, inside = setup.runtime.prefix, setup.runtime.prefix_inside
        below = [f"{inside}/{path.relative_to(prefix)}" for path in ours if path.is_relative_to(prefix)]
        return (*map(str, ours), *below)

    def is_protected(self, path: str) -> bool:
        """Whether no agent may open this, as a script names it; its own folders are its own, also if ours lie there."""
        here = any(path == place or path.startswith(f"{place}/") for place in self.protected_paths)
        return here and expected_prefix(path) not in PRIVATE_PATHS

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
    def constant_table(self) -> Rows:
        """A valid table that says of everything that it is the most: what somebody leaves who knows nothing."""
        header, *rows = self.answers
        most = [max(column, key=cell_sort_key) for column in zip(*rows, strict=True)]
        return [header, *([row[0], *most[1:]] for row in rows)]


def cell_sort_key(cell: str) -> tuple[float, str]:
    """By what cells are ordered: numbers by their size, words after each other."""
    try:
        return float(cell), ""
    except ValueError:
        return float("-inf"), cell


def to_csv(rows: Rows) -> str:
    """A table as csv."""
    return "".join(",".join(row) + "\n" for row in rows)
