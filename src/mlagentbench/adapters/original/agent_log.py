"""Reads agent_log/: the options and thoughts of the original's agents, each with its own log format."""

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
# Before this line is the prompt, which contains examples.
FIRST_STEP = re.compile(r"^Step 0:$|^> Entering new .*$", re.MULTILINE)
ACTION = re.compile(r"^Action: *(?P<action>[^\n]+)\n+Action Input:", re.MULTILINE)
OBSERVATION = re.compile(r"^Observation:", re.MULTILINE)
AUTOGPT_COMMAND = re.compile(
    r"^ *NEXT ACTION: *COMMAND = (?P<action>[^\n]{0,200}?) {1,20}ARGUMENTS = (?P<input>.*)$", re.MULTILINE
)
AUTOGPT_RESULT = re.compile(r"^ *SYSTEM: *(?:Command \S+ returned: )?", re.MULTILINE)
AUTOGPT_THOUGHTS = re.compile(r"^.*THOUGHTS: ", re.MULTILINE)
ACTION_ENTRIES = ("Action", "Action Input")
LITERAL_ERRORS = (ValueError, SyntaxError, TypeError, RecursionError, MemoryError)
MAX_SEARCHED_BYTES = 16 << 20  # of a log file
MAX_ENTRIES_AHEAD = 3  # log entries without a matching step that may be skipped


class AgentLog:
    """The agent's options, main log and saved state."""

    def __init__(self, logs: LogFolder) -> None:
        self._state = _read_state(logs)
        saved_options = self._state.get("args")
        self.options: dict[str, Any] = (
            saved_options
            if isinstance(saved_options, dict)
            else _parse_printed_options(logs.read_text("log", max_bytes=MAX_SEARCHED_BYTES))
        )
        self.main_log = strip_control_chars(
            logs.read_text("agent_log/main_log", expected=True, max_bytes=MAX_SEARCHED_BYTES)
        )
        if not self.options:
            logs.add_note(
                "the agent's options (task, model) are neither in agent_log/agent_*.json nor in log"
            )

    def text_option(self, name: str) -> str:
        """An option that is a string; otherwise empty."""
        value = self.options.get(name)
        return clean_text(value)[:200] if isinstance(value, str) else ""

    def number_option(self, name: str) -> float | None:
        """An option that is a positive number; otherwise None."""
        value = self.options.get(name)
        return float(value) if isinstance(value, int | float) and 0 < value < 1e9 else None

    def parse_actions(self) -> list[OriginalAction]:
        """The actions in the main log, for runs without a usable trace."""
        return [*_parse_autogpt_log(self.main_log)] or [*_parse_react_log(self.main_log)]

    def add_thoughts(self, actions: Sequence[OriginalAction]) -> list[OriginalAction]:
        """The actions of the trace with the thought before each, as far as it can be found."""
        saved = self._history()
        logged = [*_parse_react_log(self.main_log)]
        with_thoughts, position = [], 0
        for number, action in enumerate(actions):
            matches = [
                index
                for index in range(position, min(position + MAX_ENTRIES_AHEAD, len(logged)))
                if logged[index].action == action.action
            ]
            thought = logged[matches[0]].thought if matches else ""
            position = matches[0] + 1 if matches else position
            saved_name, saved_thought = saved.get(number, ("", ""))
            if saved_name == action.action and saved_thought:
                thought = saved_thought
            with_thoughts.append(replace(action, thought=thought))
        return with_thoughts

    def _history(self) -> dict[int, tuple[str, str]]:
        """Action and thought by step number, from the agent's saved state."""
        by_step: dict[int, tuple[str, str]] = {}
        history = self._state.get("history_steps")
        for step in history if isinstance(history, list) else ():
            entries = step.get("action") if isinstance(step, dict) else None
            if isinstance(entries, dict) and isinstance(step.get("step_idx"), int):
                by_step[step["step_idx"] - 1] = (
                    clean_text(entries.get("Action")).strip(),
                    _join_thoughts(entries),
                )
        return by_step


def _read_state(logs: LogFolder) -> dict[str, Any]:
    """The newest readable saved state of the agent, which includes all earlier ones."""
    matches = [match for name in logs.list_names("agent_log") if (match := STATE_FILE.fullmatch(name))]
    for match in sorted(matches, key=lambda match: (int(match[1]), int(match[2] or 0)), reverse=True):
        try:
            state = json.loads(logs.read_text(f"agent_log/{match[0]}"), parse_constant=str)
        except (ValueError, RecursionError):
            logs.add_note(f"agent_log/{match[0]} is damaged")
            continue
        if isinstance(state, dict):
            return state
    return {}


def _parse_printed_options(text: str) -> dict[str, Any]:
    """The options that the original prints at the start."""
    line = PRINTED_OPTIONS.search(text)
    try:
        call = ast.parse(line[0], mode="eval").body if line else None
        keywords = call.keywords if isinstance(call, ast.Call) else []
        return {keyword.arg: ast.literal_eval(keyword.value) for keyword in keywords if keyword.arg}
    except LITERAL_ERRORS:
        return {}


def _join_thoughts(entries: dict[Any, Any]) -> str:
    """All entries besides the action; a single entry is given without its name."""
    thoughts = {
        clean_text(name): clean_text(text).strip()
        for name, text in entries.items()
        if name not in ACTION_ENTRIES
    }
    thoughts = {name: text for name, text in thoughts.items() if text}
    if len(thoughts) == 1:
        return "".join(thoughts.values())
    return "\n".join(f"{name}: {text}" for name, text in thoughts.items())


def _parse_react_log(main_log: str) -> Iterator[OriginalAction]:
    """Parse the Thought/Action/Action Input/Observation format of research, ReAct and LangChain agents."""
    first_step = FIRST_STEP.search(main_log)
    start = first_step.end() if first_step else len(main_log)
    pairs = [*_find_actions(main_log, start)]
    thought = main_log[start : pairs[0][0].start()] if pairs else ""
    for index, (action, observation) in enumerate(pairs):
        end = pairs[index + 1][0].start() if index + 1 < len(pairs) else len(main_log)
        name, thought_before = action["action"].strip(), _clean_thought(thought)
        observed, thought = _split_observation(main_log[observation.end() : end])
        yield OriginalAction(
            name,
            clean_arguments(name, _parse_input(main_log[action.end() : observation.start()])),
            clean_text(observed),
            thought=thought_before,
        )


def _find_actions(main_log: str, start: int) -> Iterator[tuple[re.Match[str], re.Match[str]]]:
    """Yield every action with the observation that follows; actions within an input are part of the input."""
    observations = OBSERVATION.finditer(main_log, start)
    observation = next(observations, None)
    for action in ACTION.finditer(main_log, start):
        if action.start() < start:
            continue
        while observation and observation.start() < action.end():
            observation = next(observations, None)
        if not observation:
            return
        yield action, observation
        start = observation.end()


def _split_observation(text: str) -> tuple[str, str]:
    """Split the observation from the text after it: at its closing fence, or at the next Thought."""
    quoted = re.match(r"\s*```\n(.*?)\n```\n", text, re.DOTALL)
    if quoted:
        return quoted[1], text[quoted.end() :]
    observation, _, rest = text.partition("\nThought:")
    return observation.strip(), rest


def _clean_thought(text: str) -> str:
    text = re.sub(r"^(Step \d+:|Assistant:|> .*)$", "", text, flags=re.MULTILINE).strip()
    return clean_text(text.removeprefix("Thought:").strip())


def _parse_input(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=str)
    except (ValueError, RecursionError):
        return text.strip()


def _parse_autogpt_log(main_log: str) -> Iterator[OriginalAction]:
    """Parse Auto-GPT's commands, which are only in its own log: it never called the environment."""
    commands = [*AUTOGPT_COMMAND.finditer(main_log)]
    previous_end = 0
    for index, command in enumerate(commands):
        next_start = commands[index + 1].start() if index + 1 < len(commands) else len(main_log)
        result = AUTOGPT_RESULT.search(main_log, command.end(), next_start)
        next_thought = AUTOGPT_THOUGHTS.search(main_log, result.end(), next_start) if result else None
        end = next_thought.start() if next_thought else next_start
        observation = main_log[result.end() : end].strip() if result else ""
        name = command["action"].strip()
        text_before = main_log[previous_end : command.start()]
        thought = AUTOGPT_THOUGHTS.search(text_before)
        yield OriginalAction(
            name,
            clean_arguments(name, _parse_literal(command["input"].strip())),
            clean_text(observation),
            thought=clean_text(text_before[thought.end() :].strip() if thought else ""),
        )
        previous_end = end


def _parse_literal(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except LITERAL_ERRORS:
        return text
