"""Records: everything that crosses a file or a process. Frozen, validated, stored as JSON."""

from pathlib import Path
from typing import Any, Literal, Self

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError, model_validator

BYTES_PER_GB = 2**30  # in Limits, a GB is a GiB
RUN_FORMAT = 1  # of run folders; this program reads every earlier format too

EXTERNAL_COMMAND = "Command"  # the action of a step by an external program

Ending = Literal["submitted", "steps", "time", "tokens", "money", "stopped", "crashed", "fault"]
# Why a command was killed: it exceeded a limit, or the caller cancelled it.
Limit = Literal["time", "memory", "processes", "disk", "cancelled"]
Better = Literal["higher", "lower"]
# Task data: the same everywhere; drawn again with a hidden seed; the same rows with other labels.
DataKind = Literal["public", "fresh", "twin"]
# The solution whose files the workspace contains when a run starts.
Start = Literal["starter", "reference", "expert"]
STARTS: tuple[Start, ...] = ("starter", "reference", "expert")
# How progress grows between two levels: with the score, or with its logarithm (times).
Scale = Literal["linear", "log"]
# Models: the agent's own; for summaries and reading files; for rewriting scripts.
Role = Literal["main", "fast", "edit"]


class Record(BaseModel):
    """Base of all records. Unknown fields are errors, and so are numbers that JSON cannot represent."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    def replace(self, **changes: Any) -> Self:
        """A copy of the record with some fields changed."""
        return self.model_copy(update=changes)


class ToolCall(Record):
    """One tool call of a model. `arguments` should be JSON, but models make mistakes."""

    id: str
    name: str
    arguments: str


class Call(Record):
    """One action that the agent wants to run, optionally with its reason."""

    action: str
    args: dict[str, Any] = {}
    thought: str = ""

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """The tools that an external program was told to call in this step; empty for other actions."""
        if self.action != EXTERNAL_COMMAND:
            return ()
        try:
            return tuple(ToolCall.model_validate(call) for call in self.args.get("calls", ()))
        except (TypeError, ValidationError):  # a record that was written by hand
            return ()


class Message(Record):
    """One message of a conversation. `answers` is the id of the tool call that a tool message answers."""

    role: Literal["system", "user", "assistant", "tool"]
    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    answers: str = ""
    failed: bool = False  # the tool call that this message answers failed
    reasoning: str = ""  # what an assistant thought before its text
    provider_state: str = ""  # what its provider wants back with it, such as signatures


class Tool(Record):
    """An action as a tool definition, for models with native tool calling."""

    name: str
    description: str
    parameters: dict[str, Any]
    strict: bool | None = None  # whether arguments must follow the schema exactly; None: the provider decides


class ToolChoice(Record):
    """Whether the model may, must or must not call a tool; `names` restricts it to these tools."""

    mode: Literal["auto", "required", "none"] = "auto"
    names: tuple[str, ...] = ()
    parallel: bool | None = None  # whether a reply may have several calls; None: the provider decides


class ReplyFormat(Record):
    """The form of a reply: any JSON object, or JSON that follows a schema."""

    json_schema: dict[str, Any] | None = None
    name: str = ""
    strict: bool | None = None
    description: str = ""


class Sampling(Record):
    """How a reply is sampled; None and "" leave it to the provider."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    seed: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    effort: Literal["", "none", "default", "minimal", "low", "medium", "high", "xhigh", "max"] = ""
    verbosity: Literal["", "low", "medium", "high"] = ""


class Prompt(Record):
    """Everything that is sent to a model. `grammar` (GBNF) is used by models that support it."""

    messages: tuple[Message, ...]
    stop: tuple[str, ...] = ()
    tools: tuple[Tool, ...] = ()
    grammar: str = ""
    max_tokens: int | None = 4000  # None: as many as the model can write
    tool_choice: ToolChoice = ToolChoice()
    reply_format: ReplyFormat | None = None
    sampling: Sampling = Sampling()


class Reply(Record):
    """Everything that a model returns, and what it cost."""

    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    reasoning: str = ""
    provider_state: str = ""
    finish: Literal["stop", "length", "filter"] = "stop"  # length: cut at the limit of tokens
    not_applied: tuple[str, ...] = ()  # settings of the prompt that the model does not have
    model: str = ""
    input_tokens: int = 0
    output_tokens: int = 0
    dollars: float = 0.0
    retries: int = 0


class ModelCall(Record):
    """A line of model_calls.jsonl. `inside` is true if an action made the call, false if the agent did."""

    number: int
    step: int
    inside: bool
    role: Role
    model: str
    prompt: Prompt
    reply: Reply | None = None
    too_long: str = ""
    rejected: str = ""  # why the model cannot answer such a prompt
    seconds: float


class Limits(Record):
    """The limits of a run; None means no limit."""

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
    """How one command inside the sandbox ended."""

    exit_code: int | None
    seconds: float
    peak_mb: float | None = None
    limit: Limit | None = None
    output_bytes: int = 0
    output_file: str = ""


class Step(Record):
    """A line of trace.jsonl: one action and its observation. `clock` is in seconds since the run started."""

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
    """Content hashes of everything that a result depends on."""

    task: str
    grader: str
    data: str
    runtime: str


class Hardware(Record):
    """The machine that a run used, as far as it matters to timings."""

    cpu: str
    cores: int
    memory_gb: float
    gpu: str = ""
    system: str
    python: str


class Baseline(Record):
    """The scores of an unchanged solution (the starter, or a stronger start) over several seeds."""

    mean: float
    sd: float = Field(ge=0)
    n: int = Field(gt=0)
    hardware: str = ""


class Ceiling(Record):
    """The best score that any program could reach, and how it was obtained."""

    score: float
    how: str = Field(min_length=1)


class Levels(Record):
    """Measured solutions of a task, from weak to strong, and the best possible score."""

    starter: Baseline | None = None
    reference: Baseline | None = None
    expert: Baseline | None = None
    ceiling: Ceiling | None = None

    def solution(self, start: Start) -> Baseline | None:
        """The scores of one of the three solutions."""
        solutions = {"starter": self.starter, "reference": self.reference, "expert": self.expert}
        return solutions[start]


class AgentSpec(Record):
    """An agent, its options and its models."""

    agent: str
    options: dict[str, Any] = {}
    model: str = ""
    fast_model: str = ""
    edit_model: str = ""

    @property
    def models_by_role(self) -> dict[Role, str]:
        """The names of the models by role."""
        named: dict[Role, str] = {"main": self.model, "fast": self.fast_model, "edit": self.edit_model}
        return {role: name for role, name in named.items() if name}


class ImportSource(Record):
    """The origin of an imported run: the program, its log, and notes on what could not be read."""

    program: str
    log: str
    notes: tuple[str, ...] = ()


class ProgramInfo(Record):
    """An external program: its name, its version if it is a known one, and a hash of what was installed."""

    name: str
    version: str = ""
    hash: str


class RunSpec(AgentSpec):
    """run.json: what was asked for, and on what machine, data and code."""

    format: int = RUN_FORMAT
    version: str
    id: str
    task: str
    edition: str
    seed: int
    limits: Limits
    sandbox: str
    sandbox_limitations: tuple[str, ...] = ()  # what it cannot guarantee on this machine
    gpu: str = ""
    interactive: bool = False
    record_access: bool = Field(default=False, validation_alias=AliasChoices("record_access", "ledger"))
    metric: str = ""
    better: Better = "higher"
    start: Start = "starter"
    baseline: Baseline | None = None  # the scores of the start
    levels: Levels = Levels()  # unknown in older runs
    scale: Scale = "linear"
    hashes: Hashes
    hardware: Hardware
    started: str
    imported: ImportSource | None = None
    clients: tuple[str, ...] = ()  # who took the steps over MCP: names and versions as they say themselves
    kind: DataKind | None = None  # of the data; unknown in older runs
    program: ProgramInfo | None = None  # of an agent that runs one; unknown in older runs

    @property
    def known_levels(self) -> Levels:
        """The levels, including the start's in runs that are older than levels."""
        return self.levels.replace(**{self.start: self.baseline})


class Verdict(Record):
    """A score compared with the baseline and the levels of the task."""

    baseline: float
    improvement: float | None  # relative to the baseline
    gap_closed: float | None = None  # of the gap to the next level; only if the run began at a stronger start
    progress: float | None = None  # 0 at the starter, 1 at the expert, not capped
    improved: bool
    p_value: float
    success: bool


class Result(Record):
    """result.json: how a run ended and what it scored. A missing score is None, never zero."""

    task: str
    edition: str
    agent: str
    model: str = ""
    seed: int = 0
    start: Start = "starter"
    score: float | None = None
    baseline: float | None = None
    improvement: float | None = None
    gap_closed: float | None = None
    progress: float | None = None
    improved: bool | None = None
    p_value: float | None = None
    success: bool | None = False  # None: not judged, because the score of the start is not known
    valid: bool = False
    ending: Ending
    note: str = ""
    violations: tuple[str, ...] = ()
    unsandboxed: bool = False
    ungraded: bool = False  # imported without a matching grader: excluded from all statistics
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
    folder: Path = Path()

    @model_validator(mode="before")
    @classmethod
    def _read_unjudged(cls, given: Any) -> Any:
        """Without a baseline a run is not judged; older files say `success: false`."""
        if isinstance(given, dict) and given.get("baseline") is None and not given.get("success"):
            return {**given, "success": None}
        return given
