"""Reads env_log/trace.json, the steps of a run; of a truncated file, the complete steps."""

import json
import math
import re
from dataclasses import dataclass
from typing import Any

from mlagentbench.adapters.original.log_folder import LogFolder
from mlagentbench.system.journal import escape_invalid_utf8

TRACE_PATH = "env_log/trace.json"
MAX_DEPTH = 20
MAX_TEXT_CHARS = 1 << 20
FAILURE_PREFIXES = (
    "EnvError:",
    "LLMError:",
    "Invalid action:",
    "The action input for ",
    "ActionInputParsingError",
)


@dataclass(frozen=True)
class OriginalAction:
    """An action and its observation, with the time it ended if known."""

    action: str
    args: dict[str, Any]
    observation: str
    time: float | None = None
    thought: str = ""

    @property
    def failed(self) -> bool:
        """Whether the original rejected it."""
        return self.observation.startswith(FAILURE_PREFIXES)


def read_trace(logs: LogFolder) -> list[OriginalAction]:
    """Read the steps in order; an unreadable one keeps its number, since snapshots are named by it."""
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
        logs.add_note(f"{TRACE_PATH} is damaged: {len(steps)} complete steps were read")
    return [_to_action(step, number, logs) for number, step in enumerate(steps)]


def _parse_complete_steps(text: str) -> list[Any]:
    """The steps before the point where the file is truncated."""
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


def clean_arguments(action: str, arguments: Any) -> dict[str, Any]:
    """The arguments of an action; if they are not an object, they are kept under one name."""
    if isinstance(arguments, dict):
        return {clean_text(name): clean_json(value) for name, value in arguments.items()}
    if arguments is None:
        return {}
    return {"final_answer" if action == "Final Answer" else "action_input": clean_json(arguments)}


def clean_json(value: Any, depth: int = MAX_DEPTH) -> Any:
    """Make a value portable JSON: no lone surrogates, no infinities, limited depth and length."""
    if isinstance(value, bool | int | type(None)) or (isinstance(value, float) and math.isfinite(value)):
        return value
    if depth and isinstance(value, dict):
        return {clean_text(name): clean_json(inner, depth - 1) for name, inner in value.items()}
    if depth and isinstance(value, list):
        return [clean_json(inner, depth - 1) for inner in value]
    return clean_text(value)


def clean_text(value: Any) -> str:
    """Convert any value to text of limited length."""
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
        text = f"{text[:MAX_TEXT_CHARS]}\n[... {len(text) - MAX_TEXT_CHARS:,} characters omitted ...]"
    return escape_invalid_utf8(text)


def valid_seconds(value: Any) -> float | None:
    """The value as seconds, or None if it is not a plausible time."""
    plausible = isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1e11
    return float(value) if plausible else None
