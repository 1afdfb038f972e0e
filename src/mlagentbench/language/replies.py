"""Reads a model's reply: entries such as Thought, Action and Action Input, and the action that they mean."""

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from pydantic import BaseModel

from mlagentbench.errors import ActionError, BenchError
from mlagentbench.language.lenient_json import UnreadableObject, parse_object, strip_code_fence
from mlagentbench.records import Call

ACTION, ACTION_INPUT = "Action", "Action Input"
MARKUP = r"[ \t>*_#`~\d.()-]*"  # of lists, headings, bold, quotes: before a name and after it
MAX_SHOWN_CHARS = 200
CODE_FENCE = re.compile(r"^(`{3,})([^\n`]*)$", re.MULTILINE)


class ActionInterface(Protocol):
    """What must be known of an action to offer it and to understand a model that asks for it."""

    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def description(self) -> str: ...  # noqa: D102
    @property
    def usage(self) -> str: ...  # noqa: D102
    @property
    def arguments(self) -> type[BaseModel]: ...  # noqa: D102


class UnreadableReply(BenchError):
    """A reply that cannot be understood; the message is for the model, and shows the right form."""


def parse_reply(
    text: str, actions: Mapping[str, ActionInterface], entries: Sequence[str] = ()
) -> tuple[Call, dict[str, str]]:
    """The action that a reply asks for, and its other entries; `entries` must all be there."""
    found = split_entries(text, [*entries, "Thought", "Observation", ACTION, ACTION_INPUT])
    if missing := [name for name in (*entries, ACTION) if name not in found]:
        raise UnreadableReply(f"the reply has no {' and no '.join(missing)}. {describe_reply_form(entries)}")
    action = match_action(found[ACTION], actions)
    if action is None:
        shown = found[ACTION].splitlines()[0][:MAX_SHOWN_CHARS] if found[ACTION] else "nothing"
        raise UnreadableReply(
            f"there is no action {shown!r}. The actions are: {', '.join(actions)}. {describe_reply_form(entries)}"
        )
    return Call(
        action=action.name,
        args=parse_arguments(found.get(ACTION_INPUT, ""), action),
        thought=found.get("Thought", ""),
    ), found


def split_entries(text: str, names: Sequence[str]) -> dict[str, str]:
    """The entries of a reply by name: each goes on to where the next begins. Of several with one name, the first.

    Whatever follows Action Input belongs to it, up to an Observation that a model made up for itself.
    """
    longest_first = sorted(names, key=len, reverse=True)
    either = "|".join(re.escape(name).replace("\\ ", r"[ _]+") for name in longest_first)
    heads = re.compile(rf"^{MARKUP}({either}){MARKUP}[:：][ \t*]*", re.IGNORECASE | re.MULTILINE)
    known = {_normalize_name(name): name for name in names}
    places = [
        (known[_normalize_name(place[1])], place.start(), place.end()) for place in heads.finditer(text)
    ]
    found: dict[str, str] = {}
    for number, (name, _, begin) in enumerate(places, 1):
        later = (places[at] for at in range(number, len(places)))
        ends = (start for other, start, _ in later if name != ACTION_INPUT or other == "Observation")
        found.setdefault(name, text[begin : next(ends, len(text))].strip())
        if name == ACTION_INPUT:
            break
    return found


def match_action(said: str, actions: Mapping[str, ActionInterface]) -> ActionInterface | None:
    """The action that a model means: quotes, case, punctuation and a forgotten (AI) do not matter."""
    first = next((line for line in said.splitlines() if line.strip()), "")
    plain = {_normalize_name(name): action for name, action in actions.items()}
    for wanted in (
        _normalize_name(first),
        _normalize_name(first.partition("(")[0]),
        _normalize_name(first.partition("{")[0]),
    ):
        if wanted in plain:
            return plain[wanted]
        short = [action for name, action in plain.items() if name.removesuffix("ai") == wanted]
        if wanted and len(short) == 1:
            return short[0]
    return None


def parse_arguments(said: str, action: ActionInterface) -> dict[str, Any]:
    """The arguments of an action; for one that takes a single text, the bare text will do."""
    fields = action.arguments.model_fields
    try:
        found = parse_object(said, list(fields))
    except UnreadableObject as error:
        needed = [name for name, field in fields.items() if field.is_required()]
        if not needed:
            return {}
        bare = strip_code_fence(said).strip().strip("\"'`").strip()
        if len(needed) == 1 and bare and not bare.startswith("{"):
            return {needed[0]: bare}
        raise UnreadableReply(
            f"{ACTION_INPUT} cannot be read: {error}. It must be a JSON object: {action.usage}"
        ) from error
    known = {_normalize_name(name): name for name in fields}
    return {
        known.get(_normalize_name(name), name): _coerce_number_to_text(value, fields.get(name))
        for name, value in found.items()
    }


def _coerce_number_to_text(value: Any, field: Any) -> Any:
    """A number where text is asked for, and the other way round, is a matter of quotes only."""
    if (
        field is not None
        and field.annotation is str
        and isinstance(value, int | float)
        and not isinstance(value, bool)
    ):
        return str(value)
    return value


def extract_code(said: str) -> str:
    """The file that a model answered with: its code block, or all of it if there is none."""
    blocks = [*_iter_code_blocks(said)]
    if not blocks and "```" in said:
        raise ActionError("the model's answer was cut off before its end; ask for a smaller change")
    text = max(blocks, key=len) if blocks else said.strip("\n") + "\n"
    if not text.strip():
        raise ActionError("the model answered nothing; describe the change in another way")
    return text


def _iter_code_blocks(said: str) -> Iterator[str]:
    """What stands between two fences of one length, the second of them bare."""
    fences = [*CODE_FENCE.finditer(said)]
    bare: dict[str, list[int]] = defaultdict(list)
    for place, fence in enumerate(fences):
        if not fence[2].strip():
            bare[fence[1]].append(place)
    at = 0
    while at < len(fences):
        closing = bare[fences[at][1]]
        later = bisect_right(closing, at)
        if later < len(closing):
            yield said[fences[at].end() + 1 : fences[closing[later]].start()]
            at = closing[later]
        at += 1


def describe_reply_form(entries: Sequence[str] = ()) -> str:
    """How a reply must look."""
    lines = [f"{name}: ..." for name in entries] + [
        f"{ACTION}: the name of one action",
        f"{ACTION_INPUT}: a JSON object",
    ]
    return "Reply in this form, each entry on a line of its own:\n" + "\n".join(lines)


def _normalize_name(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())
