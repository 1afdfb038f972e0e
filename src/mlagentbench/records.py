"""Whatever crosses a file or a process: frozen, validated, JSON."""

from typing import Any, Literal, Self

from pydantic import AliasChoices, BaseModel, ConfigDict, Field

BYTES_PER_GB = 2**30  # bytes in the gigabytes of Limits
RUN_FORMAT = 1  # of a run folder; readers keep understanding every earlier one

Ending = Literal["submitted", "steps", "time", "tokens", "money", "stopped", "crashed", "fault"]
Limit = Literal["time", "memory", "processes", "disk"]
Better = Literal["higher", "lower"]
DataKind = Literal[
    "public", "fresh", "twin"
]  # of data: the same everywhere; drawn anew; the same rows relabelled
Role = Literal["main", "fast", "edit"]  # of a model: thinks; summarises and reads files; rewrites scripts


class Record(BaseModel):
    """Base of all records; an unknown field is an error, never ignored, and so is a number that JSON cannot carry."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    def replace(self, **changes: Any) -> Self:
        """The same record with some fields changed."""
        return self.model_copy(update=changes)


class Call(Record):
    """One action that the agent asks for, and why if it says so."""

    action: str
    args: dict[str, Any] = {}
    thought: str = ""


class ToolCall(Record):
    """One tool that a model asks for; its arguments are JSON, or what the model takes for it."""

    id: str
    name: str
    arguments: str


class Message(Record):
    """One turn of a conversation; a tool's answer names the call that it answers."""

    role: Literal["system", "user", "assistant", "tool"]
    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    answers: str = ""


class Tool(Record):
    """An action as a model that calls tools sees it."""

    name: str
    description: str
    parameters: dict[str, Any]


class Prompt(Record):
    """All that a model is told; a grammar (GBNF) binds models that can be bound."""

    messages: tuple[Message, ...]
    stop: tuple[str, ...] = ()
    tools: tuple[Tool, ...] = ()
    grammar: str = ""
    max_tokens: int = 4000


class Reply(Record):
    """All that a model answers, and what it cost."""

    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    model: str = ""
    input_tokens: int = 0
    output_tokens: int = 0
    dollars: float = 0.0
    retries: int = 0


class ModelCall(Record):
    """A line of model_calls.jsonl: one question to a model, for which step, and by the agent or inside an action."""

    number: int
    step: int
    inside: bool
    role: Role
    model: str
    prompt: Prompt
    reply: Reply | None = None
    too_long: str = ""
    seconds: float


class Limits(Record):
    """What a run may use; None means no limit of that kind."""

    steps: int = Field(gt=0, default=50)
    hours: float = Field(gt=0, default=5.0)
    tokens: int | None = Field(gt=0, default=None)
    dollars: float | None = Field(gt=0, default=None)
    script_minutes: float = Field(gt=0, default=60.0)
    memory_gb: float = Field(gt=0, default=8.0)
    disk_gb: float = Field(gt=0, default=8.0)
    history_gb: float = Field(gt=0, default=64.0)
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


class AgentSpec(Record):
    """Who works on a task: an agent, what it is told, and the models that it may ask."""

    agent: str
    options: dict[str, Any] = {}
    model: str = ""
    fast_model: str = ""
    edit_model: str = ""

    @property
    def models_by_role(self) -> dict[Role, str]:
        """The models by what they are for."""
        named: dict[Role, str] = {"main": self.model, "fast": self.fast_model, "edit": self.edit_model}
        return {role: name for role, name in named.items() if name}


class ImportSource(Record):
    """Where a run came from that another program made, and what of it could not be read."""

    program: str
    log: str
    notes: tuple[str, ...] = ()


class RunSpec(AgentSpec):
    """run.json: what was asked for."""

    format: int = RUN_FORMAT
    version: str
    id: str
    task: str
    edition: str
    seed: int
    limits: Limits
    sandbox: str
    gpu: str = ""
    interactive: bool = False
    record_access: bool = Field(default=False, validation_alias=AliasChoices("record_access", "ledger"))
    metric: str = ""
    better: Better = "higher"
    baseline: Baseline | None = None
    hashes: Hashes
    hardware: Hardware
    started: str
    imported: ImportSource | None = None
    kind: DataKind | None = None  # of the data; older runs do not know


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
    ungraded: bool = False  # imported, and no grader fits: it counts for nothing
    steps: int
    seconds: float
    tokens: int = 0
    dollars: float = 0.0
    grading_seconds: float = 0.0
    snapshot: str = ""
    history: str = ""
    trace: str = ""
    calls: str = ""
    hashes: Hashes
    folder: str = ""
