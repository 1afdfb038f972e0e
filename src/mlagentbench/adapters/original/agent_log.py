"""agent_log/: what the original's agents were told and what they thought; each of them writes it in its own way."""

import ast
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from mlagentbench.adapters.original.log_folder import LogFolder
from mlagentbench.adapters.original.trace import OriginalAction, clean_arguments, clean_text
from mlagentbench.formatting import strip_control_chars

STATE_FILE = re.compile(r"agent_(\d+)(?:_(\d+))?\.json")
PRINTED_OPTIONS = re.compile(r"^Namespace\(.{1,20000}\)$", re.MULTILINE)
FIRST_STEP = re.compile(
    r"^Step 0:$|^> Entering new .*$", re.MULTILINE
)  # before it stands the prompt, with examples
ACTION = re.compile(r"^Action: *(?P<action>[^\n]+)\n+Action Input:", re.MULTILINE)
OBSERVATION = re.compile(r"^Observation:", re.MULTILINE)
AUTOGPT_COMMAND = re.compile(
    r"^ *NEXT ACTION: *COMMAND = (?P<action>[^\n]{0,200}?) {1,20}ARGUMENTS = (?P<input>.*)$", re.MULTILINE
)
AUTOGPT_RESULT = re.compile(r"^ *SYSTEM: *(?:Command \S+ returned: )?", re.MULTILINE)
AUTOGPT_THOUGHTS = re.compile(r"^.*THOUGHTS: ", re.MULTILINE)
ACTION_ENTRIES = ("Action", "Action Input")
LITERAL_ERRORS = (ValueError, SyntaxError, TypeError, RecursionError, MemoryError)
MAX_SEARCHED_BYTES = 16 << 20  # bytes of a log that is searched
MAX_ENTRIES_AHEAD = 3  # entries of the talk that a step may lie ahead of


class AgentLog:
    """What is known of the agent besides its steps."""

    def __init__(self, logs: LogFolder) -> None:
        self._state = _read_state(logs)
        told = self._state.get("args")
        self.options: dict[str, Any] = (
            told
            if isinstance(told, dict)
            else _parse_printed_options(logs.read_text("log", max_bytes=MAX_SEARCHED_BYTES))
        )
        self.main_log = strip_control_chars(
            logs.read_text("agent_log/main_log", expected=True, max_bytes=MAX_SEARCHED_BYTES)
        )
        if not self.options:
            logs.add_note(
                "what the agent was told (task, model) stands neither in agent_log/agent_*.json nor in log"
            )

    def text_option(self, name: str) -> str:
        """One of the words that the agent was told, if it is one."""
        value = self.options.get(name)
        return clean_text(value)[:200] if isinstance(value, str) else ""

    def number_option(self, name: str) -> float | None:
        """One of the numbers, if it is one and more than zero."""
        value = self.options.get(name)
        return float(value) if isinstance(value, int | float) and 0 < value < 1e9 else None

    def parse_actions(self) -> list[OriginalAction]:
        """The steps as the main log tells them, for runs whose trace says nothing."""
        return [*_parse_autogpt_log(self.main_log)] or [*_parse_react_log(self.main_log)]

    def add_thoughts(self, deeds: Sequence[OriginalAction]) -> list[OriginalAction]:
        """The steps of the trace with what the agent thought before each, as far as it can be told."""
        known = self._history()
        spoken = [*_parse_react_log(self.main_log)]
        found, at = [], 0
        for number, deed in enumerate(deeds):
            near = [
                place
                for place in range(at, min(at + MAX_ENTRIES_AHEAD, len(spoken)))
                if spoken[place].action == deed.action
            ]
            thought = spoken[near[0]].thought if near else ""
            at = near[0] + 1 if near else at
            action, remembered = known.get(number, ("", ""))
            found.append(
                replace(deed, thought=remembered if action == deed.action and remembered else thought)
            )
        return found

    def _history(self) -> dict[int, tuple[str, str]]:
        """Action and thought by the number of the step, as an agent's saved state has them."""
        found: dict[int, tuple[str, str]] = {}
        history = self._state.get("history_steps")
        for step in history if isinstance(history, list) else ():
            entries = step.get("action") if isinstance(step, dict) else None
            if isinstance(entries, dict) and isinstance(step.get("step_idx"), int):
                found[step["step_idx"] - 1] = (
                    clean_text(entries.get("Action")).strip(),
                    _join_thoughts(entries),
                )
        return found


def _read_state(logs: LogFolder) -> dict[str, Any]:
    """The newest saved state of the agent that can be read; it holds all the earlier ones."""
    names = [found for name in logs.list_names("agent_log") if (found := STATE_FILE.fullmatch(name))]
    for found in sorted(names, key=lambda name: (int(name[1]), int(name[2] or 0)), reverse=True):
        try:
            state = json.loads(logs.read_text(f"agent_log/{found[0]}"), parse_constant=str)
        except (ValueError, RecursionError):
            logs.add_note(f"agent_log/{found[0]} is damaged")
            continue
        if isinstance(state, dict):
            return state
    return {}


def _parse_printed_options(text: str) -> dict[str, Any]:
    """The options, which the original prints when it begins."""
    line = PRINTED_OPTIONS.search(text)
    try:
        call = ast.parse(line[0], mode="eval").body if line else None
        keywords = call.keywords if isinstance(call, ast.Call) else []
        return {keyword.arg: ast.literal_eval(keyword.value) for keyword in keywords if keyword.arg}
    except LITERAL_ERRORS:
        return {}


def _join_thoughts(entries: dict[Any, Any]) -> str:
    """All that was said beside the action; of a single entry, its name need not be told."""
    said = {
        clean_text(name): clean_text(text).strip()
        for name, text in entries.items()
        if name not in ACTION_ENTRIES
    }
    said = {name: text for name, text in said.items() if text}
    return (
        "\n".join(f"{name}: {text}" for name, text in said.items())
        if len(said) > 1
        else "".join(said.values())
    )


def _parse_react_log(main: str) -> Iterator[OriginalAction]:
    """The form of Thought, Action, Action Input, Observation, which research, ReAct and LangChain agents share."""
    begin = FIRST_STEP.search(main)
    at = begin.end() if begin else len(main)
    found = [*_find_actions(main, at)]
    said = main[at : found[0][0].start()] if found else ""
    for number, (asked, observed) in enumerate(found):
        after = found[number + 1][0].start() if number + 1 < len(found) else len(main)
        action, thought = asked["action"].strip(), _clean_thought(said)
        seen, said = _split_observation(main[observed.end() : after])
        yield OriginalAction(
            action,
            clean_arguments(action, _parse_input(main[asked.end() : observed.start()])),
            clean_text(seen),
            thought=thought,
        )


def _find_actions(main: str, at: int) -> Iterator[tuple[re.Match[str], re.Match[str]]]:
    """Every action with its input, and the observation that follows next; actions within an input are part of it."""
    observations = OBSERVATION.finditer(main, at)
    observed = next(observations, None)
    for action in ACTION.finditer(main, at):
        if action.start() < at:
            continue
        while observed and observed.start() < action.end():
            observed = next(observations, None)
        if not observed:
            return
        yield action, observed
        at = observed.end()


def _split_observation(text: str) -> tuple[str, str]:
    """What was seen, and what was said after it: quoted, or up to the next Thought."""
    quoted = re.match(r"\s*```\n(.*?)\n```\n", text, re.DOTALL)
    if quoted:
        return quoted[1], text[quoted.end() :]
    seen, _, said = text.partition("\nThought:")
    return seen.strip(), said


def _clean_thought(text: str) -> str:
    text = re.sub(r"^(Step \d+:|Assistant:|> .*)$", "", text, flags=re.MULTILINE).strip()
    return clean_text(text.removeprefix("Thought:").strip())


def _parse_input(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=str)
    except (ValueError, RecursionError):
        return text.strip()


def _parse_autogpt_log(main: str) -> Iterator[OriginalAction]:
    """Auto-GPT never called the environment: its commands stand in its own log only."""
    found = [*AUTOGPT_COMMAND.finditer(main)]
    before = 0
    for number, deed in enumerate(found):
        after = found[number + 1].start() if number + 1 < len(found) else len(main)
        answer = AUTOGPT_RESULT.search(main, deed.end(), after)
        next_thought = AUTOGPT_THOUGHTS.search(main, answer.end(), after) if answer else None
        end = next_thought.start() if next_thought else after
        seen = main[answer.end() : end].strip() if answer else ""
        action = deed["action"].strip()
        thought = main[before : deed.start()]
        begin = AUTOGPT_THOUGHTS.search(thought)
        yield OriginalAction(
            action,
            clean_arguments(action, _parse_literal(deed["input"].strip())),
            clean_text(seen),
            thought=clean_text(thought[begin.end() :].strip() if begin else ""),
        )
        before = end


def _parse_literal(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except LITERAL_ERRORS:
        return text
