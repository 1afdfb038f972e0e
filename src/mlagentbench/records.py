"""Whatever crosses a file or a process: frozen, validated, JSON."""

from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field

GB = 2**30  # bytes in the gigabytes of Limits
FORMAT = 1  # of a run folder; readers keep understanding every earlier one

Ending = Literal["submitted", "steps", "time", "tokens", "money", "stopped", "crashed", "fault"]
Limit = Literal["time", "memory", "processes", "disk"]
Better = Literal["higher", "lower"]


class Record(BaseModel):
    """Base of all records; an unknown field is an error, never ignored, and so is a number that JSON cannot carry."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    def but(self, **changes: Any) -> Self:
        """The same record with some fields changed."""
        return self.model_copy(update=changes)


class Call(Record):
    """One action that the agent asks for, and why if it says so."""

    action: str
    args: dict[str, Any] = {}
    thought: str = ""


class Limits(Record):
    """What a run may use; None means no limit of that kind."""

    steps: int = Field(gt=0, default=50)
    hours: float = Field(gt=0, default=5.0)
    tokens: int | None = Field(gt=0, default=None)
    dollars: float | None = Field(gt=0, default=None)
    script_minutes: float = Field(gt=0, default=60.0)
    memory_gb: float = Field(gt=0, default=8.0)
    disk_gb: float = Field(gt=0, default=8.0)
    files: int = Field(gt=0, default=100_000)
    processes: int = Field(gt=0, default=256)


class Execution(Record):
    """What one command did inside the sandbox."""

    exit_code: int | None
    seconds: float
    peak_mb: float | None = None
    limit: Limit | None = None
    output_bytes: int = 0
    output_file: str = ""


class Step(Record):
    """One action done, and what came of it."""

    number: int
    call: Call
    observation: str
    failed: bool = False
    seconds: float
    clock: float
    tokens: int = 0
    dollars: float = 0.0
    execution: Execution | None = None
    notes: tuple[str, ...] = ()


class Hashes(Record):
    """What a result depends on, by content."""

    task: str
    grader: str
    data: str
    runtime: str


class Hardware(Record):
    """The machine, in words that matter to a timing."""

    cpu: str
    cores: int
    memory_gb: float
    gpu: str = ""
    system: str
    python: str


class Baseline(Record):
    """The starter's own scores, over several seeds."""

    mean: float
    sd: float = Field(ge=0)
    n: int = Field(gt=0)
    hardware: str = ""


class RunSpec(Record):
    """run.json: what was asked for."""

    format: int = FORMAT
    version: str
    id: str
    task: str
    edition: str
    agent: str
    model: str = ""
    seed: int
    limits: Limits
    sandbox: str
    gpu: str = ""
    interactive: bool = False
    metric: str = ""
    better: Better = "higher"
    baseline: Baseline | None = None
    hashes: Hashes
    hardware: Hardware
    started: str


class Verdict(Record):
    """A score held against the baseline."""

    baseline: float
    improvement: float | None
    improved: bool
    p_value: float
    success: bool


class Result(Record):
    """result.json: how a run ended and what it scored; no score means none, and never zero."""

    task: str
    edition: str
    agent: str
    model: str = ""
    seed: int = 0
    score: float | None = None
    baseline: float | None = None
    improvement: float | None = None
    improved: bool | None = None
    p_value: float | None = None
    success: bool = False
    valid: bool = False
    ending: Ending
    note: str = ""
    violations: tuple[str, ...] = ()
    unsandboxed: bool = False
    steps: int
    seconds: float
    tokens: int = 0
    dollars: float = 0.0
    grading_seconds: float = 0.0
    snapshot: str = ""
    history: str = ""
    trace: str = ""
    hashes: Hashes
    folder: str = ""
