"""Excerpts of long texts, so that a page stays small; each says how many characters are omitted."""

from collections.abc import Iterable
from typing import NamedTuple

from markupsafe import escape

from mlagentbench.pages.layout.invisible_chars import reveal_invisible_chars

MAX_TEXT_BYTES = 40_000  # of one text, even if the budget allows more
MIN_TEXT_BYTES = 120  # a shorter excerpt would not be readable
HEAD_FRACTION = 0.6  # of an excerpt, the rest is the end of the text


class Excerpt(NamedTuple):
    """The beginning and the end of a text; a complete text has an empty tail."""

    head: str
    omitted_chars: int = 0
    tail: str = ""

    def __bool__(self) -> bool:
        return bool(self.head)


def rendered_size(text: str) -> int:
    """The size of a text in the page in bytes; only up to MAX_TEXT_BYTES characters are measured."""
    return len(escape(reveal_invisible_chars(_drop_middle(text, MAX_TEXT_BYTES))).encode())


def make_excerpt(text: str, max_bytes: float) -> Excerpt:
    """Return the text, or its beginning and end, in at most `max_bytes` of the page."""
    length = len(text) if len(text) <= max_bytes else int(max_bytes)
    while (size := rendered_size(_drop_middle(text, length))) > max_bytes:
        length = int(length * min(max_bytes / size, 0.9))
    if length == len(text):
        return Excerpt(text)
    head_length = int(length * HEAD_FRACTION)
    head, tail = text[:head_length], text[len(text) - (length - head_length) :]
    # Keep whole lines, unless they are very long.
    head = head[: head.rfind("\n", head_length // 2) + 1] or head
    tail = tail[tail.find("\n", 0, len(tail) // 2) + 1 :]
    return Excerpt(head, len(text) - len(head) - len(tail), tail)


def size_cap(sizes: Iterable[int], budget: float) -> float:
    """The maximum size per text such that all texts fit the budget together; short texts stay complete."""
    ordered = sorted(sizes)
    for index, size in enumerate(ordered):
        share = budget / (len(ordered) - index)
        if size > share:
            return max(share, MIN_TEXT_BYTES)
        budget -= size
    return MAX_TEXT_BYTES


def _drop_middle(text: str, length: int) -> str:
    if len(text) <= length:
        return text
    head = int(length * HEAD_FRACTION)
    return text[:head] + text[len(text) - (length - head) :]
