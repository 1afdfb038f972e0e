"""env_log/trace.json: what was done, as the original wrote it; a half-written one gives the steps that are whole."""

import json
import math
import re
from dataclasses import dataclass
from typing import Any

from mlagentbench.adapters.original.logs import Logs
from mlagentbench.journal import printable

PATH = "env_log/trace.json"
DEEPEST = 20  # objects within objects
LONGEST = 1 << 20  # characters of one text
FAILED = ("EnvError:", "LLMError:", "Invalid action:", "The action input for ", "ActionInputParsingError")


@dataclass(frozen=True)
class Deed:
    """One action that was done, and what was seen of it; when it ended, if that is known."""

    action: str
    args: dict[str, Any]
    observation: str
    time: float | None = None
    thought: str = ""

    @property
    def failed(self) -> bool:
        """Whether the original refused it."""
        return self.observation.startswith(FAILED)


def read_trace(logs: Logs) -> list[Deed]:
    """The steps in order; one that is none keeps its place, since snapshots are named by number."""
    text = logs.text(PATH, expected=True)
    if not text:
        return []
    try:
        found = json.loads(text, parse_constant=str)
        steps = found.get("steps") if isinstance(found, dict) else None
        if not isinstance(steps, list):
            logs.note(f"{PATH} has no steps")
            return []
    except (ValueError, RecursionError):
        steps = _whole(text)
        logs.note(f"{PATH} is damaged: it has {len(steps)} whole steps")
    return [_deed(step, number, logs) for number, step in enumerate(steps)]


def _whole(text: str) -> list[Any]:
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


def _deed(step: Any, number: int, logs: Logs) -> Deed:
    action = step.get("action") if isinstance(step, dict) else None
    if not isinstance(action, dict):
        logs.note(f"{PATH}: step {number} cannot be read")
        return Deed("unreadable", {}, "")
    name = words(action.get("name", ""))
    observation = step.get("observation")
    return Deed(name, arguments(name, action.get("args")), words(observation), moment(step.get("timestamp")))


def arguments(action: str, given: Any) -> dict[str, Any]:
    """What an action was told; what was no object is kept under one name."""
    if isinstance(given, dict):
        return {words(name): clean(value) for name, value in given.items()}
    if given is None:
        return {}
    return {"final_answer" if action == "Final Answer" else "action_input": clean(given)}


def clean(value: Any, depth: int = DEEPEST) -> Any:
    """The same as JSON that every reader takes: no lone surrogates, nothing endless, nothing too deep."""
    if isinstance(value, bool | int | type(None)) or (isinstance(value, float) and math.isfinite(value)):
        return value
    if depth and isinstance(value, dict):
        return {words(name): clean(inner, depth - 1) for name, inner in value.items()}
    if depth and isinstance(value, list):
        return [clean(inner, depth - 1) for inner in value]
    return words(value)


def words(value: Any) -> str:
    """Anything as text of a bearable length."""
    if value is None:
        return ""
    try:
        text = value if isinstance(value, str) else json.dumps(value) if isinstance(value, dict | list) else str(value)
    except (RecursionError, ValueError):
        text = "[nested too deeply]"
    if len(text) > LONGEST:
        text = f"{text[:LONGEST]}\n[... {len(text) - LONGEST:,} characters left out ...]"
    return printable(text)


def moment(value: Any) -> float | None:
    """A time in seconds, if it is one."""
    good = isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1e11
    return float(value) if good else None
