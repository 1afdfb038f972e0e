"""One run that a plan asks for, and the name by which its folder is found again."""

import json
import re
from pathlib import Path
from typing import Any

from blake3 import blake3
from pydantic import Field

from mlagentbench.records import Contestant, Record

LONGEST = 40  # characters of each part of a name


class Job(Record):
    """Everything that makes a run what it is; two jobs that differ in anything are two runs."""

    task: str
    edition: str = "open"
    instance: str = ""
    sandbox: str = "bwrap"
    who: Contestant
    seed: int = 0
    limits: dict[str, Any] = Field(default_factory=dict)
    ledger: bool = False

    @property
    def name(self) -> str:
        """The folder of the run: told by its parts, and by a hash of all where these do not tell everything."""
        parts = [self.task, self.who.agent, *([self.who.model] if self.who.model else []), f"s{self.seed}"]
        shown = [_shown(part) for part in parts]
        plain = Job(task=self.task, who=Contestant(agent=self.who.agent, model=self.who.model), seed=self.seed)
        if shown != parts or self != plain:
            shown.append(blake3(self.canonical.encode()).hexdigest(length=5))
        return ".".join(shown)

    @property
    def canonical(self) -> str:
        """The same text for the same job, whatever order its parts were written in."""
        return json.dumps(self.model_dump(exclude_defaults=True), sort_keys=True)

    @property
    def setting(self) -> str:
        """What it shares with other jobs: the task, its edition and its data."""
        return " ".join(filter(None, (self.task, self.edition, self.instance)))


def _shown(part: str) -> str:
    """A part of a name that any file system takes; dots stand between parts only."""
    last = Path(part).stem if part.endswith(".py") else part.rpartition("/")[2]
    return re.sub(r"[^A-Za-z0-9_-]+", "-", last).strip("-")[:LONGEST] or "-"
