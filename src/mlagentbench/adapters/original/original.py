"""One run of the original, read as far as it can be: who worked on what, step by step, and how it ended."""

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from mlagentbench.adapters.original.calls import read_calls
from mlagentbench.adapters.original.logs import Logs
from mlagentbench.adapters.original.names import Known, known
from mlagentbench.adapters.original.talk import Talk
from mlagentbench.adapters.original.traces import Deed, moment, read_trace
from mlagentbench.records import Call, Contestant, Ending, Limits, ModelCall, Step

# What a failing provider left in error.txt, which is no failure of the agent.
OUTAGES = ("Connection aborted", "exceeded your current quota", "RateLimitError", "APIConnectionError", "LLMError")
TIMED_OUT = "TimeoutException"


@dataclass(frozen=True)
class Original:
    """All that a log folder says."""

    logs: Logs
    task: str
    known: Known | None
    who: Contestant
    limits: Limits
    steps: tuple[Step, ...]
    calls: tuple[ModelCall, ...]
    ending: Ending
    why: str
    started: str

    @property
    def trivial(self) -> bool:
        """Whether it is the original's baseline: it runs the starter, and submits."""
        return self.who.agent == "Agent"


def read_original(logs: Logs, task: str = "") -> Original:
    """Everything at once; each thing that cannot be read is a note of `logs`."""
    talk = Talk(logs)
    deeds = talk.thoughtful(read_trace(logs))
    if not deeds and (deeds := talk.deeds()):
        logs.note(f"the {len(deeds)} steps are those that agent_log/main_log tells of")
    name = task or _task(talk, logs)
    took = _seconds(logs)
    limits = _limits(talk)
    ending, why = _ending(deeds, logs, limits, took)
    start = _start(deeds, took)
    return Original(
        logs=logs,
        task=name,
        known=known(name),
        who=_who(talk),
        limits=limits,
        steps=tuple(_steps(deeds, start, took)),
        calls=tuple(read_calls(logs, deeds)),
        ending=ending,
        why=why,
        started=datetime.fromtimestamp(start, UTC).isoformat(timespec="seconds") if start else "",
    )


def _task(talk: Talk, logs: Logs) -> str:
    """What it was told, or what one of the folders above it is called: the original's scripts name them so."""
    told = [talk.word("task"), Path(talk.word("work_dir")).name, *reversed(logs.root.parts)]
    for name in told:
        if name and known(name):
            return name
    if talk.word("task"):
        return talk.word("task")
    logs.note("which task it was cannot be told; pass --task NAME")
    return "unknown"


def _who(talk: Talk) -> Contestant:
    retrieval = talk.args.get("retrieval")
    return Contestant(
        agent=talk.word("agent_type") or "unknown",
        options={"retrieval": retrieval} if isinstance(retrieval, bool) else {},
        model=talk.word("llm_name"),
        fast_model=talk.word("fast_llm_name"),
        edit_model=talk.word("edit_script_llm_name"),
    )


def _limits(talk: Talk) -> Limits:
    steps, seconds = talk.number("max_steps"), talk.number("max_time")
    return Limits(steps=int(steps) if steps and steps >= 1 else 50, hours=max(seconds / 3600, 1e-9) if seconds else 5.0)


def _seconds(logs: Logs) -> float | None:
    text = logs.text("env_log/overall_time.txt", expected=True, cap=1000).strip()
    try:
        return moment(float(text)) if text else None
    except ValueError:
        logs.note("env_log/overall_time.txt holds no number")
        return None


def _ending(deeds: list[Deed], logs: Logs, limits: Limits, took: float | None) -> tuple[Ending, str]:
    error = logs.text("env_log/error.txt", cap=1 << 20).strip()
    last = error.splitlines()[-1][:300] if error else ""
    if any(deed.action == "Final Answer" and not deed.failed for deed in deeds):
        return "submitted", ""
    if any(outage in error for outage in OUTAGES):
        return "fault", last
    if TIMED_OUT in error or (took and took >= limits.hours * 3600):
        return "time", ""
    if error:
        return "crashed", last
    return ("steps" if len(deeds) >= limits.steps else "stopped"), ""


def _start(deeds: list[Deed], took: float | None) -> float | None:
    """When it began: the original notes only when each step ended, and how long all took."""
    times = [deed.time for deed in deeds if deed.time is not None]
    if not times:
        return None
    return max(min(times[0], max(times) - took), 1.0) if took else times[0]


def _steps(deeds: list[Deed], start: float | None, took: float | None) -> list[Step]:
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
