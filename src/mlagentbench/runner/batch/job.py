"""A job: one run of a plan, and the name of its folder."""

import json
import re
from pathlib import Path
from typing import Any

from blake3 import blake3
from pydantic import AliasChoices, Field

from mlagentbench.records import AgentSpec, Record, Start

MAX_NAME_PART_CHARS = 40


class Job(Record):
    """Everything that defines a run. Jobs that differ in any field are different runs."""

    task: str
    edition: str = "open"
    instance: str = ""
    start: Start = "starter"
    sandbox: str = "bwrap"
    agent_spec: AgentSpec = Field(validation_alias=AliasChoices("agent_spec", "who"))
    seed: int = 0
    limits: dict[str, Any] = Field(default_factory=dict)
    record_access: bool = Field(default=False, validation_alias=AliasChoices("record_access", "ledger"))

    @property
    def name(self) -> str:
        """The name of the run folder, such as "imdb.act.local.s0".

        A hash is appended if the readable parts do not identify the job.
        """
        agent, model = self.agent_spec.agent, self.agent_spec.model
        parts = [self.task, agent, *([model] if model else []), f"s{self.seed}"]
        name_parts = [_to_name_part(part) for part in parts]
        identified_by_parts = Job(
            task=self.task, agent_spec=AgentSpec(agent=agent, model=model), seed=self.seed
        )
        if name_parts != parts or self != identified_by_parts:
            name_parts.append(blake3(self.canonical_json.encode()).hexdigest(length=5))
        return ".".join(name_parts)

    @property
    def canonical_json(self) -> str:
        """The job as JSON that does not depend on the order of keys.

        Folder names contain a hash of this text, so it keeps the field names of format 1.
        """
        fields = self.model_dump(exclude_defaults=True)
        old_names = {"agent_spec": "who", "record_access": "ledger"}
        return json.dumps(
            {old_names.get(name, name): value for name, value in fields.items()}, sort_keys=True
        )

    @property
    def setup_key(self) -> str:
        """Equal for jobs that share a setup: the task, its edition, its data and the start."""
        start = "" if self.start == "starter" else f"from {self.start}"
        return " ".join(filter(None, (self.task, self.edition, self.instance, start)))


def _to_name_part(text: str) -> str:
    """Shorten `text` to characters that every file system accepts, without dots, which separate the parts."""
    last = Path(text).stem if text.endswith(".py") else text.rpartition("/")[2]
    return re.sub(r"[^A-Za-z0-9_-]+", "-", last).strip("-")[:MAX_NAME_PART_CHARS] or "-"
