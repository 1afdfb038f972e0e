"""One run of the original, read as far as it can be: who worked on what, step by step, and how it ended."""

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from mlagentbench.adapters.original.agent_log import AgentLog
from mlagentbench.adapters.original.log_folder import LogFolder
from mlagentbench.adapters.original.model_calls import read_model_calls
from mlagentbench.adapters.original.task_names import KnownTask, find_known_task
from mlagentbench.adapters.original.trace import OriginalAction, read_trace, valid_seconds
from mlagentbench.records import AgentSpec, Call, Ending, Limits, ModelCall, Step

# What a failing provider left in error.txt, which is no failure of the agent.
PROVIDER_ERRORS = (
    "Connection aborted",
    "exceeded your current quota",
    "RateLimitError",
    "APIConnectionError",
    "LLMError",
)
TIMEOUT_ERROR = "TimeoutException"


@dataclass(frozen=True)
class OriginalRun:
    """All that a log folder says."""

    logs: LogFolder
    task: str
    known_task: KnownTask | None
    agent: AgentSpec
    limits: Limits
    steps: tuple[Step, ...]
    calls: tuple[ModelCall, ...]
    ending: Ending
    ending_note: str
    started: str

    @property
    def is_baseline(self) -> bool:
        """Whether it is the original's baseline: it runs the starter, and submits."""
        return self.agent.agent == "Agent"


def read_original_run(logs: LogFolder, task: str = "") -> OriginalRun:
    """Everything at once; each thing that cannot be read is a note of `logs`."""
    talk = AgentLog(logs)
    deeds = talk.add_thoughts(read_trace(logs))
    if not deeds and (deeds := talk.parse_actions()):
        logs.add_note(f"the {len(deeds)} steps are those that agent_log/main_log tells of")
    name = task or _find_task_name(talk, logs)
    took = _read_total_seconds(logs)
    limits = _read_limits(talk)
    ending, why = _classify_ending(deeds, logs, limits, took)
    start = _estimate_start(deeds, took)
    return OriginalRun(
        logs=logs,
        task=name,
        known_task=find_known_task(name),
        agent=_read_agent(talk),
        limits=limits,
        steps=tuple(_build_steps(deeds, start, took)),
        calls=tuple(read_model_calls(logs, deeds)),
        ending=ending,
        ending_note=why,
        started=datetime.fromtimestamp(start, UTC).isoformat(timespec="seconds") if start else "",
    )


def _find_task_name(talk: AgentLog, logs: LogFolder) -> str:
    """What it was told, or what one of the folders above it is called: the original's scripts name them so."""
    told = [talk.text_option("task"), Path(talk.text_option("work_dir")).name, *reversed(logs.root.parts)]
    for name in told:
        if name and find_known_task(name):
            return name
    if talk.text_option("task"):
        return talk.text_option("task")
    logs.add_note("which task it was cannot be told; pass --task NAME")
    return "unknown"


def _read_agent(talk: AgentLog) -> AgentSpec:
    retrieval = talk.options.get("retrieval")
    return AgentSpec(
        agent=talk.text_option("agent_type") or "unknown",
        options={"retrieval": retrieval} if isinstance(retrieval, bool) else {},
        model=talk.text_option("llm_name"),
        fast_model=talk.text_option("fast_llm_name"),
        edit_model=talk.text_option("edit_script_llm_name"),
    )


def _read_limits(talk: AgentLog) -> Limits:
    steps, seconds = talk.number_option("max_steps"), talk.number_option("max_time")
    return Limits(
        steps=int(steps) if steps and steps >= 1 else 50, hours=max(seconds / 3600, 1e-9) if seconds else 5.0
    )


def _read_total_seconds(logs: LogFolder) -> float | None:
    text = logs.read_text("env_log/overall_time.txt", expected=True, max_bytes=1000).strip()
    try:
        return valid_seconds(float(text)) if text else None
    except ValueError:
        logs.add_note("env_log/overall_time.txt holds no number")
        return None


def _classify_ending(
    deeds: list[OriginalAction], logs: LogFolder, limits: Limits, took: float | None
) -> tuple[Ending, str]:
    error = logs.read_text("env_log/error.txt", max_bytes=1 << 20).strip()
    last = error.splitlines()[-1][:300] if error else ""
    if any(deed.action == "Final Answer" and not deed.failed for deed in deeds):
        return "submitted", ""
    if any(outage in error for outage in PROVIDER_ERRORS):
        return "fault", last
    if TIMEOUT_ERROR in error or (took and took >= limits.hours * 3600):
        return "time", ""
    if error:
        return "crashed", last
    return ("steps" if len(deeds) >= limits.steps else "stopped"), ""


def _estimate_start(deeds: list[OriginalAction], took: float | None) -> float | None:
    """When it began: the original notes only when each step ended, and how long all took."""
    times = [deed.time for deed in deeds if deed.time is not None]
    if not times:
        return None
    return max(min(times[0], max(times) - took), 1.0) if took else times[0]


def _build_steps(deeds: list[OriginalAction], start: float | None, took: float | None) -> list[Step]:
    clock, steps = 0.0, []
    for number, deed in enumerate(deeds, 1):
        before = clock
        if deed.time is not None and start is not None:
            clock = max(clock, deed.time - start)
        elif start is None and took and number == len(deeds):
            clock = took  # no step has a time of its own
        steps.append(
            Step(
                number=number,
                call=Call(action=deed.action, args=deed.args, thought=deed.thought),
                observation=deed.observation,
                failed=deed.failed,
                seconds=round(clock - before, 4),
                clock=round(clock, 4),
            )
        )
    return steps
