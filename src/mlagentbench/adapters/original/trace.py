"""env_log/trace.json: what was done, as the original wrote it; a half-written one gives the steps that are whole."""

import json
import math
import re
from dataclasses import dataclass
from typing import Any

from mlagentbench.adapters.original.log_folder import LogFolder
from mlagentbench.system.journal import escape_invalid_utf8

TRACE_PATH = "env_log/trace.json"
MAX_DEPTH = 20  # objects within objects
MAX_TEXT_CHARS = 1 << 20  # characters of one text
FAILURE_PREFIXES = (
    "EnvError:",
    "LLMError:",
    "Invalid action:",
    "The action input for ",
    "ActionInputParsingError",
)


@dataclass(frozen=True)
class OriginalAction:
    """One action that was done, and what was seen of it; when it ended, if that is known."""

    action: str
    args: dict[str, Any]
    observation: str
    time: float | None = None
    thought: str = ""

    @property
    def failed(self) -> bool:
        """Whether the original refused it."""
        return self.observation.startswith(FAILURE_PREFIXES)


def read_trace(logs: LogFolder) -> list[OriginalAction]:
    """The steps in order; one that is none keeps its place, since snapshots are named by number."""
    text = logs.read_text(TRACE_PATH, expected=True)
    if not text:
        return []
    try:
        found = json.loads(text, parse_constant=str)
        steps = found.get("steps") if isinstance(found, dict) else None
        if not isinstance(steps, list):
            logs.add_note(f"{TRACE_PATH} has no steps")
            return []
    except (ValueError, RecursionError):
        steps = _parse_complete_steps(text)
        logs.add_note(f"{TRACE_PATH} is damaged: it has {len(steps)} whole steps")
    return [_to_action(step, number, logs) for number, step in enumerate(steps)]


def _parse_complete_steps(text: str) -> list[Any]:
    """The steps up to where the file breaks off."""
    begin = re.search(r'"steps"\s*:\s*\[', text)
    steps: list[Any] = []
    at = begin.end() if begin else len(text)
    decoder = json.JSONDecoder(parse_constant=str)
    while gap := re.compile(r"[\s,]*(?=\{)").match(text, at):
        try:
            step, at = decoder.raw_decode(text, gap.end())
        except (ValueError, RecursionError):
            break
        steps.append(step)
    return steps


def _to_action(step: Any, number: int, logs: LogFolder) -> OriginalAction:
    action = step.get("action") if isinstance(step, dict) else None
    if not isinstance(action, dict):
        logs.add_note(f"{TRACE_PATH}: step {number} cannot be read")
        return OriginalAction("unreadable", {}, "")
    name = clean_text(action.get("name", ""))
    observation = step.get("observation")
    return OriginalAction(
        name,
        clean_arguments(name, action.get("args")),
        clean_text(observation),
        valid_seconds(step.get("timestamp")),
    )


def clean_arguments(action: str, given: Any) -> dict[str, Any]:
    """What an action was told; what was no object is kept under one name."""
    if isinstance(given, dict):
        return {clean_text(name): clean_json(value) for name, value in given.items()}
    if given is None:
        return {}
    return {"final_answer" if action == "Final Answer" else "action_input": clean_json(given)}


def clean_json(value: Any, depth: int = MAX_DEPTH) -> Any:
    """The same as JSON that every reader takes: no lone surrogates, nothing endless, nothing too deep."""
    if isinstance(value, bool | int | type(None)) or (isinstance(value, float) and math.isfinite(value)):
        return value
    if depth and isinstance(value, dict):
        return {clean_text(name): clean_json(inner, depth - 1) for name, inner in value.items()}
    if depth and isinstance(value, list):
        return [clean_json(inner, depth - 1) for inner in value]
    return clean_text(value)


def clean_text(value: Any) -> str:
    """Anything as text of a bearable length."""
    if value is None:
        return ""
    try:
        text = (
            value
            if isinstance(value, str)
            else json.dumps(value)
            if isinstance(value, dict | list)
            else str(value)
        )
    except (RecursionError, ValueError):
        text = "[nested too deeply]"
    if len(text) > MAX_TEXT_CHARS:
        text = f"{text[:MAX_TEXT_CHARS]}\n[... {len(text) - MAX_TEXT_CHARS:,} characters left out ...]"
    return escape_invalid_utf8(text)


def valid_seconds(value: Any) -> float | None:
    """A time in seconds, if it is one."""
    good = isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1e11
    return float(value) if good else None
