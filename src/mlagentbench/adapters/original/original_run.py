"""Reads one run of the original as far as possible: agent, task, steps, model calls and ending."""

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from mlagentbench.adapters.original.agent_log import AgentLog
from mlagentbench.adapters.original.log_folder import LogFolder
from mlagentbench.adapters.original.model_calls import read_model_calls
from mlagentbench.adapters.original.task_names import KnownTask, find_known_task
from mlagentbench.adapters.original.trace import OriginalAction, read_trace, valid_seconds
from mlagentbench.records import AgentSpec, Call, Ending, Limits, ModelCall, Step

# In error.txt: errors of the model provider, which are not failures of the agent.
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
    """Everything that a log folder contains."""

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
        """Whether the agent is the original's baseline, which runs the starter and submits."""
        return self.agent.agent == "Agent"


def read_original_run(logs: LogFolder, task: str = "") -> OriginalRun:
    """Read a run; whatever cannot be read is noted in `logs`."""
    agent_log = AgentLog(logs)
    actions = agent_log.add_thoughts(read_trace(logs))
    if not actions and (actions := agent_log.parse_actions()):
        logs.add_note(f"the {len(actions)} steps were read from agent_log/main_log")
    name = task or _find_task_name(agent_log, logs)
    total_s = _read_total_seconds(logs)
    limits = _read_limits(agent_log)
    ending, ending_note = _classify_ending(actions, logs, limits, total_s)
    start = _estimate_start(actions, total_s)
    return OriginalRun(
        logs=logs,
        task=name,
        known_task=find_known_task(name),
        agent=_read_agent(agent_log),
        limits=limits,
        steps=tuple(_build_steps(actions, start, total_s)),
        calls=tuple(read_model_calls(logs, actions)),
        ending=ending,
        ending_note=ending_note,
        started=datetime.fromtimestamp(start, UTC).isoformat(timespec="seconds") if start else "",
    )


def _find_task_name(agent_log: AgentLog, logs: LogFolder) -> str:
    """The task from the options, or from the parent folders, which the original's scripts name after it."""
    candidates = [
        agent_log.text_option("task"),
        Path(agent_log.text_option("work_dir")).name,
        *reversed(logs.root.parts),
    ]
    for name in candidates:
        if name and find_known_task(name):
            return name
    if agent_log.text_option("task"):
        return agent_log.text_option("task")
    logs.add_note("the task could not be determined; pass --task NAME")
    return "unknown"


def _read_agent(agent_log: AgentLog) -> AgentSpec:
    retrieval = agent_log.options.get("retrieval")
    return AgentSpec(
        agent=agent_log.text_option("agent_type") or "unknown",
        options={"retrieval": retrieval} if isinstance(retrieval, bool) else {},
        model=agent_log.text_option("llm_name"),
        fast_model=agent_log.text_option("fast_llm_name"),
        edit_model=agent_log.text_option("edit_script_llm_name"),
    )


def _read_limits(agent_log: AgentLog) -> Limits:
    steps, seconds = agent_log.number_option("max_steps"), agent_log.number_option("max_time")
    return Limits(
        steps=int(steps) if steps and steps >= 1 else 50, hours=max(seconds / 3600, 1e-9) if seconds else 5.0
    )


def _read_total_seconds(logs: LogFolder) -> float | None:
    text = logs.read_text("env_log/overall_time.txt", expected=True, max_bytes=1000).strip()
    try:
        return valid_seconds(float(text)) if text else None
    except ValueError:
        logs.add_note("env_log/overall_time.txt does not contain a number")
        return None


def _classify_ending(
    actions: list[OriginalAction], logs: LogFolder, limits: Limits, total_s: float | None
) -> tuple[Ending, str]:
    error = logs.read_text("env_log/error.txt", max_bytes=1 << 20).strip()
    last_line = error.splitlines()[-1][:300] if error else ""
    if any(action.action == "Final Answer" and not action.failed for action in actions):
        return "submitted", ""
    if any(message in error for message in PROVIDER_ERRORS):
        return "fault", last_line
    if TIMEOUT_ERROR in error or (total_s and total_s >= limits.hours * 3600):
        return "time", ""
    if error:
        return "crashed", last_line
    return ("steps" if len(actions) >= limits.steps else "stopped"), ""


def _estimate_start(actions: list[OriginalAction], total_s: float | None) -> float | None:
    """The start time; the original records only when each step ended, and the total time."""
    times = [action.time for action in actions if action.time is not None]
    if not times:
        return None
    return max(min(times[0], max(times) - total_s), 1.0) if total_s else times[0]


def _build_steps(actions: list[OriginalAction], start: float | None, total_s: float | None) -> list[Step]:
    clock, steps = 0.0, []
    for number, action in enumerate(actions, 1):
        before = clock
        if action.time is not None and start is not None:
            clock = max(clock, action.time - start)
        elif start is None and total_s and number == len(actions):
            clock = total_s  # no step has a timestamp
        steps.append(
            Step(
                number=number,
                call=Call(action=action.action, args=action.args, thought=action.thought),
                observation=action.observation,
                failed=action.failed,
                seconds=round(clock - before, 4),
                clock=round(clock, 4),
            )
        )
    return steps
