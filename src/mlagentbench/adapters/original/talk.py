"""agent_log/: what the original's agents were told and what they thought; each of them writes it in its own way."""

import ast
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from mlagentbench.adapters.original.logs import Logs
from mlagentbench.adapters.original.traces import Deed, arguments, words
from mlagentbench.words import plain

STATE = re.compile(r"agent_(\d+)(?:_(\d+))?\.json")
TOLD = re.compile(r"^Namespace\(.{1,20000}\)$", re.MULTILINE)
BEGINNING = re.compile(r"^Step 0:$|^> Entering new .*$", re.MULTILINE)  # before it stands the prompt, with examples
ACTION = re.compile(r"^Action: *(?P<action>[^\n]+)\n+Action Input:", re.MULTILINE)
OBSERVATION = re.compile(r"^Observation:", re.MULTILINE)
AUTOGPT = re.compile(
    r"^ *NEXT ACTION: *COMMAND = (?P<action>[^\n]{0,200}?) {1,20}ARGUMENTS = (?P<input>.*)$", re.MULTILINE
)
ANSWER = re.compile(r"^ *SYSTEM: *(?:Command \S+ returned: )?", re.MULTILINE)
THOUGHTS = re.compile(r"^.*THOUGHTS: ", re.MULTILINE)
ENTRIES = ("Action", "Action Input")
NO_LITERAL = (ValueError, SyntaxError, TypeError, RecursionError, MemoryError)
BIGGEST = 16 << 20  # bytes of a log that is searched
NEAR = 3  # entries of the talk that a step may lie ahead of


class Talk:
    """What is known of the agent besides its steps."""

    def __init__(self, logs: Logs) -> None:
        self._state = _state(logs)
        told = self._state.get("args")
        self.args: dict[str, Any] = told if isinstance(told, dict) else _told(logs.text("log", cap=BIGGEST))
        self.main = plain(logs.text("agent_log/main_log", expected=True, cap=BIGGEST))
        if not self.args:
            logs.note("what the agent was told (task, model) stands neither in agent_log/agent_*.json nor in log")

    def word(self, name: str) -> str:
        """One of the words that the agent was told, if it is one."""
        value = self.args.get(name)
        return words(value)[:200] if isinstance(value, str) else ""

    def number(self, name: str) -> float | None:
        """One of the numbers, if it is one and more than zero."""
        value = self.args.get(name)
        return float(value) if isinstance(value, int | float) and 0 < value < 1e9 else None

    def deeds(self) -> list[Deed]:
        """The steps as the main log tells them, for runs whose trace says nothing."""
        return [*_autogpt(self.main)] or [*_entries(self.main)]

    def thoughtful(self, deeds: Sequence[Deed]) -> list[Deed]:
        """The steps of the trace with what the agent thought before each, as far as it can be told."""
        known = self._history()
        spoken = [*_entries(self.main)]
        found, at = [], 0
        for number, deed in enumerate(deeds):
            near = [place for place in range(at, min(at + NEAR, len(spoken))) if spoken[place].action == deed.action]
            thought = spoken[near[0]].thought if near else ""
            at = near[0] + 1 if near else at
            action, remembered = known.get(number, ("", ""))
            found.append(replace(deed, thought=remembered if action == deed.action and remembered else thought))
        return found

    def _history(self) -> dict[int, tuple[str, str]]:
        """Action and thought by the number of the step, as an agent's saved state has them."""
        found: dict[int, tuple[str, str]] = {}
        history = self._state.get("history_steps")
        for step in history if isinstance(history, list) else ():
            entries = step.get("action") if isinstance(step, dict) else None
            if isinstance(entries, dict) and isinstance(step.get("step_idx"), int):
                found[step["step_idx"] - 1] = words(entries.get("Action")).strip(), _thought(entries)
        return found


def _state(logs: Logs) -> dict[str, Any]:
    """The newest saved state of the agent that can be read; it holds all the earlier ones."""
    names = [found for name in logs.names("agent_log") if (found := STATE.fullmatch(name))]
    for found in sorted(names, key=lambda name: (int(name[1]), int(name[2] or 0)), reverse=True):
        try:
            state = json.loads(logs.text(f"agent_log/{found[0]}"), parse_constant=str)
        except (ValueError, RecursionError):
            logs.note(f"agent_log/{found[0]} is damaged")
            continue
        if isinstance(state, dict):
            return state
    return {}


def _told(text: str) -> dict[str, Any]:
    """The options, which the original prints when it begins."""
    line = TOLD.search(text)
    try:
        call = ast.parse(line[0], mode="eval").body if line else None
        keywords = call.keywords if isinstance(call, ast.Call) else []
        return {keyword.arg: ast.literal_eval(keyword.value) for keyword in keywords if keyword.arg}
    except NO_LITERAL:
        return {}


def _thought(entries: dict[Any, Any]) -> str:
    """All that was said beside the action; of a single entry, its name need not be told."""
    said = {words(name): words(text).strip() for name, text in entries.items() if name not in ENTRIES}
    said = {name: text for name, text in said.items() if text}
    return "\n".join(f"{name}: {text}" for name, text in said.items()) if len(said) > 1 else "".join(said.values())


def _entries(main: str) -> Iterator[Deed]:
    """The form of Thought, Action, Action Input, Observation, which research, ReAct and LangChain agents share."""
    begin = BEGINNING.search(main)
    at = begin.end() if begin else len(main)
    found = [*_asked(main, at)]
    said = main[at : found[0][0].start()] if found else ""
    for number, (asked, observed) in enumerate(found):
        after = found[number + 1][0].start() if number + 1 < len(found) else len(main)
        action, thought = asked["action"].strip(), _spoken(said)
        seen, said = _parted(main[observed.end() : after])
        yield Deed(
            action, arguments(action, _input(main[asked.end() : observed.start()])), words(seen), thought=thought
        )


def _asked(main: str, at: int) -> Iterator[tuple[re.Match[str], re.Match[str]]]:
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


def _parted(text: str) -> tuple[str, str]:
    """What was seen, and what was said after it: quoted, or up to the next Thought."""
    quoted = re.match(r"\s*```\n(.*?)\n```\n", text, re.DOTALL)
    if quoted:
        return quoted[1], text[quoted.end() :]
    seen, _, said = text.partition("\nThought:")
    return seen.strip(), said


def _spoken(text: str) -> str:
    text = re.sub(r"^(Step \d+:|Assistant:|> .*)$", "", text, flags=re.MULTILINE).strip()
    return words(text.removeprefix("Thought:").strip())


def _input(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=str)
    except (ValueError, RecursionError):
        return text.strip()


def _autogpt(main: str) -> Iterator[Deed]:
    """Auto-GPT never called the environment: its commands stand in its own log only."""
    found = [*AUTOGPT.finditer(main)]
    before = 0
    for number, deed in enumerate(found):
        after = found[number + 1].start() if number + 1 < len(found) else len(main)
        answer = ANSWER.search(main, deed.end(), after)
        next_thought = THOUGHTS.search(main, answer.end(), after) if answer else None
        end = next_thought.start() if next_thought else after
        seen = main[answer.end() : end].strip() if answer else ""
        action = deed["action"].strip()
        thought = main[before : deed.start()]
        begin = THOUGHTS.search(thought)
        yield Deed(
            action,
            arguments(action, _literal(deed["input"].strip())),
            words(seen),
            thought=words(thought[begin.end() :].strip() if begin else ""),
        )
        before = end


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except NO_LITERAL:
        return text
