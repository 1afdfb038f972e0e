"""One run that a plan asks for, and the name by which its folder is found again."""

import json
import re
from pathlib import Path
from typing import Any

from blake3 import blake3
from pydantic import AliasChoices, Field

from mlagentbench.records import AgentSpec, Record

MAX_NAME_PART_CHARS = 40  # characters of each part of a name


class Job(Record):
    """Everything that makes a run what it is; two jobs that differ in anything are two runs."""

    task: str
    edition: str = "open"
    instance: str = ""
    sandbox: str = "bwrap"
    agent_spec: AgentSpec = Field(validation_alias=AliasChoices("agent_spec", "who"))
    seed: int = 0
    limits: dict[str, Any] = Field(default_factory=dict)
    record_access: bool = Field(default=False, validation_alias=AliasChoices("record_access", "ledger"))

    @property
    def name(self) -> str:
        """The folder of the run: told by its parts, and by a hash of all where these do not tell everything."""
        parts = [
            self.task,
            self.agent_spec.agent,
            *([self.agent_spec.model] if self.agent_spec.model else []),
            f"s{self.seed}",
        ]
        shown = [_to_name_part(part) for part in parts]
        plain = Job(
            task=self.task,
            agent_spec=AgentSpec(agent=self.agent_spec.agent, model=self.agent_spec.model),
            seed=self.seed,
        )
        if shown != parts or self != plain:
            shown.append(blake3(self.canonical_json.encode()).hexdigest(length=5))
        return ".".join(shown)

    @property
    def canonical_json(self) -> str:
        """The same text for the same job, whatever order its parts were written in.

        Folder names contain a hash of this text, so it keeps the field names of format 1.
        """
        fields = self.model_dump(exclude_defaults=True)
        old_names = {"agent_spec": "who", "record_access": "ledger"}
        return json.dumps(
            {old_names.get(name, name): value for name, value in fields.items()}, sort_keys=True
        )

    @property
    def setup_key(self) -> str:
        """What it shares with other jobs: the task, its edition and its data."""
        return " ".join(filter(None, (self.task, self.edition, self.instance)))


def _to_name_part(part: str) -> str:
    """A part of a name that any file system takes; dots stand between parts only."""
    last = Path(part).stem if part.endswith(".py") else part.rpartition("/")[2]
    return re.sub(r"[^A-Za-z0-9_-]+", "-", last).strip("-")[:MAX_NAME_PART_CHARS] or "-"
