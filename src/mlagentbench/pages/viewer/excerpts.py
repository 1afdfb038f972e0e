"""Long texts cut so that a page stays small, each telling how much of it is not shown."""

from collections.abc import Iterable
from typing import NamedTuple

from markupsafe import escape

from mlagentbench.pages.layout.invisible_chars import reveal_invisible_chars

MAX_TEXT_BYTES = 40_000  # bytes of one text, also where there is room
MIN_TEXT_BYTES = 120  # below, a cut leaves nothing to read
HEAD_FRACTION = 0.6  # of what is kept comes from the beginning


class Excerpt(NamedTuple):
    """A text without its middle; with nothing left out, the tail is empty."""

    head: str
    omitted_chars: int = 0
    tail: str = ""

    def __bool__(self) -> bool:
        return bool(self.head)


def rendered_size(text: str) -> int:
    """Bytes of the text in a page, as far as they matter."""
    return len(escape(reveal_invisible_chars(_drop_middle(text, MAX_TEXT_BYTES))).encode())


def make_excerpt(text: str, cap: float) -> Excerpt:
    """The text, or its beginning and its end, in at most `cap` bytes of a page."""
    length = len(text) if len(text) <= cap else int(cap)
    while (heavy := rendered_size(_drop_middle(text, length))) > cap:
        length = int(length * min(cap / heavy, 0.9))
    if length == len(text):
        return Excerpt(text)
    size = int(length * HEAD_FRACTION)
    head, tail = text[:size], text[len(text) - (length - size) :]
    head = head[: head.rfind("\n", size // 2) + 1] or head  # whole lines, unless they are very long
    tail = tail[tail.find("\n", 0, len(tail) // 2) + 1 :]
    return Excerpt(head, len(text) - len(head) - len(tail), tail)


def size_cap(weights: Iterable[int], budget: float) -> float:
    """The one cap under which texts of these weights come to no more than the budget; small ones stay whole."""
    ordered = sorted(weights)
    for place, heavy in enumerate(ordered):
        share = budget / (len(ordered) - place)
        if heavy > share:
            return max(share, MIN_TEXT_BYTES)
        budget -= heavy
    return MAX_TEXT_BYTES


def _drop_middle(text: str, length: int) -> str:
    if len(text) <= length:
        return text
    head = int(length * HEAD_FRACTION)
    return text[:head] + text[len(text) - (length - head) :]
