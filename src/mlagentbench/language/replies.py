"""Parses a model's reply: entries such as Thought, Action and Action Input, and the action they describe."""

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Protocol

from pydantic import BaseModel

from mlagentbench.errors import ActionError, BenchError
from mlagentbench.language.lenient_json import UnreadableObject, parse_object, strip_code_fence
from mlagentbench.records import Call

ACTION, ACTION_INPUT = "Action", "Action Input"
MARKUP = r"[ \t>*_#`~\d.()-]*"  # lists, headings, bold, quotes: around the name of an entry
MAX_SHOWN_CHARS = 200
CODE_FENCE = re.compile(r"^(`{3,})([^\n`]*)$", re.MULTILINE)


class ActionInterface(Protocol):
    """What prompts and the reply parser need to know about an action."""

    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def description(self) -> str: ...  # noqa: D102
    @property
    def usage(self) -> str: ...  # noqa: D102
    @property
    def arguments(self) -> type[BaseModel]: ...  # noqa: D102


class UnreadableReply(BenchError):
    """The reply cannot be parsed; the message is for the model, and shows the required format."""


def parse_reply(
    text: str, actions: Mapping[str, ActionInterface], entries: Sequence[str] = ()
) -> tuple[Call, dict[str, str]]:
    """Parse a reply.

    Args:
        text: The model's reply.
        actions: The available actions, by name.
        entries: Entries that the reply must have besides Action.

    Returns:
        The call, and all entries by name.

    Raises:
        UnreadableReply: An entry is missing, the action is unknown, or its input cannot be parsed.
    """
    parsed = split_entries(text, [*entries, "Thought", "Observation", ACTION, ACTION_INPUT])
    if missing := [name for name in (*entries, ACTION) if name not in parsed]:
        raise UnreadableReply(f"the reply has no {' and no '.join(missing)}. {describe_reply_form(entries)}")
    action = match_action(parsed[ACTION], actions)
    if action is None:
        shown = parsed[ACTION].splitlines()[0][:MAX_SHOWN_CHARS] if parsed[ACTION] else "nothing"
        raise UnreadableReply(
            f"there is no action {shown!r}. Available actions: {', '.join(actions)}. "
            f"{describe_reply_form(entries)}"
        )
    return Call(
        action=action.name,
        args=parse_arguments(parsed.get(ACTION_INPUT, ""), action),
        thought=parsed.get("Thought", ""),
    ), parsed


def split_entries(text: str, names: Sequence[str]) -> dict[str, str]:
    """Split a reply into entries by name. Each extends to the next; the first of several equal names counts.

    Everything after Action Input belongs to it, up to an Observation that the model invented.
    """
    by_normalized_name = _index_by_normalized_name(tuple(names))
    headers = [
        (by_normalized_name[_normalize_name(match[1])], match.start(), match.end())
        for match in _compile_header(tuple(names)).finditer(text)
    ]
    entries: dict[str, str] = {}
    for number, (name, _, content_start) in enumerate(headers, 1):
        later = (headers[index] for index in range(number, len(headers)))
        ends = (start for other, start, _ in later if name != ACTION_INPUT or other == "Observation")
        entries.setdefault(name, text[content_start : next(ends, len(text))].strip())
        if name == ACTION_INPUT:
            break
    return entries


@lru_cache(maxsize=64)  # every reply of a run has the same names
def _compile_header(names: tuple[str, ...]) -> re.Pattern[str]:
    longest_first = sorted(names, key=len, reverse=True)
    any_name = "|".join(re.escape(name).replace("\\ ", r"[ _]+") for name in longest_first)
    return re.compile(rf"^{MARKUP}({any_name}){MARKUP}[:：][ \t*]*", re.IGNORECASE | re.MULTILINE)


@lru_cache(maxsize=64)
def _index_by_normalized_name(names: tuple[str, ...]) -> Mapping[str, str]:
    return {_normalize_name(name): name for name in names}


def match_action(text: str, actions: Mapping[str, ActionInterface]) -> ActionInterface | None:
    """Find the action that a model names; quotes, case, punctuation and a missing "(AI)" are ignored."""
    first_line = next((line for line in text.splitlines() if line.strip()), "")
    by_normalized_name = _index_by_normalized_name(tuple(actions))
    for candidate in (
        _normalize_name(first_line),
        _normalize_name(first_line.partition("(")[0]),
        _normalize_name(first_line.partition("{")[0]),
    ):
        if candidate in by_normalized_name:
            return actions[by_normalized_name[candidate]]
        without_ai = [
            name
            for normalized, name in by_normalized_name.items()
            if normalized.removesuffix("ai") == candidate
        ]
        if candidate and len(without_ai) == 1:
            return actions[without_ai[0]]
    return None


def parse_arguments(text: str, action: ActionInterface) -> dict[str, Any]:
    """Parse the arguments of an action; if it requires a single one, bare text is accepted as its value."""
    fields = action.arguments.model_fields
    try:
        arguments = parse_object(text, list(fields))
    except UnreadableObject as error:
        required = [name for name, field in fields.items() if field.is_required()]
        if not required:
            return {}
        bare_text = strip_code_fence(text).strip().strip("\"'`").strip()
        if len(required) == 1 and bare_text and not bare_text.startswith("{"):
            return {required[0]: bare_text}
        raise UnreadableReply(
            f"{ACTION_INPUT} cannot be parsed: {error}. It must be a JSON object: {action.usage}"
        ) from error
    by_normalized_name = _index_by_normalized_name(tuple(fields))
    return {
        by_normalized_name.get(_normalize_name(name), name): _coerce_number_to_text(value, fields.get(name))
        for name, value in arguments.items()
    }


def _coerce_number_to_text(value: Any, field: Any) -> Any:
    """Convert a number to text where the argument is text: the model only left out the quotes."""
    if (
        field is not None
        and field.annotation is str
        and isinstance(value, int | float)
        and not isinstance(value, bool)
    ):
        return str(value)
    return value


def extract_code(text: str) -> str:
    """The file in a model's answer: its longest code block, or the whole text if there is none."""
    blocks = [*_iter_code_blocks(text)]
    if not blocks and "```" in text:
        raise ActionError("The model's answer was truncated. Ask for a smaller change.")
    code = max(blocks, key=len) if blocks else text.strip("\n") + "\n"
    if not code.strip():
        raise ActionError("The model's answer was empty. Describe the change in a different way.")
    return code


def _iter_code_blocks(text: str) -> Iterator[str]:
    """Yield the content between two fences of the same length, the second without an info string."""
    fences = [*CODE_FENCE.finditer(text)]
    bare_fences: dict[str, list[int]] = defaultdict(list)
    for index, fence in enumerate(fences):
        if not fence[2].strip():
            bare_fences[fence[1]].append(index)
    index = 0
    while index < len(fences):
        closing = bare_fences[fences[index][1]]
        later = bisect_right(closing, index)
        if later < len(closing):
            yield text[fences[index].end() + 1 : fences[closing[later]].start()]
            index = closing[later]
        index += 1


def describe_reply_form(entries: Sequence[str] = ()) -> str:
    """Describe the format that a reply must have."""
    lines = [f"{name}: ..." for name in entries] + [
        f"{ACTION}: the name of one action",
        f"{ACTION_INPUT}: a JSON object",
    ]
    return "Reply in this format, with each entry on its own line:\n" + "\n".join(lines)


def _normalize_name(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())
