"""What a step opened and which sockets it tried, as far as it is worth a look: most of it is Python's own business."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from mlagentbench.analysis.runs import Run
from mlagentbench.pages.viewer.excerpts import Excerpt, make_excerpt, rendered_size, size_cap
from mlagentbench.sandbox.access_log.expected_paths import PRIVATE_PATHS, expected_prefix
from mlagentbench.sandbox.access_log.records import Access, unexpected_accesses

MAX_ACCESS_BYTES = 200_000  # bytes of folded lists in a page
MAX_UNFOLDED_ACCESSES = 6  # that stand unfolded in a step
MAX_PATH_CHARS = 160  # characters of a path that stands unfolded
LINE_BREAK_SYMBOLS = str.maketrans({"\n": "␊", "\r": "␍", "\t": "␉"})  # else a path could pretend to be two


class OutsideAccess(NamedTuple):
    """A file or a socket that an honest command has no reason for."""

    operation: str
    path: str
    denied: bool


class StepAccessView(NamedTuple):
    """What one step tried: outside its own files, and the rest of it in a line, folded."""

    outside: tuple[OutsideAccess, ...]
    summary: str
    rest: Excerpt


class OutsideAccessCounts(NamedTuple):
    """What all steps tried outside their own files."""

    attempted: int
    allowed: int
    steps: tuple[int, ...]


class _ClassifiedAccesses(NamedTuple):
    outside: Sequence[Access]
    rest: str
    summary: str


def count_outside_accesses(run: Run) -> OutsideAccessCounts:
    """How much the run has tried that is foreign to it, and where."""
    found = {
        number: strays for number, tried in run.accesses.items() if (strays := unexpected_accesses(tried))
    }
    every = [each for strays in found.values() for each in strays]
    return OutsideAccessCounts(len(every), sum(not each.always_refused for each in every), tuple(found))


def view_accesses(run: Run, after: int, budget: float) -> dict[int, StepAccessView]:
    """The accesses of each step after one that has any, within a budget of bytes for all of them."""
    found = {number: _classify(tried) for number, tried in run.accesses.items() if number > after}
    cap = size_cap((rendered_size(each.rest) for each in found.values()), budget)
    return {
        number: StepAccessView(_view_outside(each.outside), each.summary, make_excerpt(each.rest, cap))
        for number, each in found.items()
    }


def _classify(tried: Sequence[Access]) -> _ClassifiedAccesses:
    strays = sorted(
        unexpected_accesses(tried), key=lambda each: each.always_refused
    )  # what went through comes first
    odd = set(strays)
    ordinary = [each for each in tried if each not in odd]
    sockets = [each for each in ordinary if not each.path.startswith("/")]
    own = [each for each in ordinary if expected_prefix(each.path) in PRIVATE_PATHS]
    system = len({each.path for each in ordinary}) - len({each.path for each in (*sockets, *own)})
    rest = "".join(
        f"{each.summary}  {_to_single_line(each.path)}\n"
        for each in (*strays[MAX_UNFOLDED_ACCESSES:], *sockets, *own)
    )
    return _ClassifiedAccesses(
        strays[:MAX_UNFOLDED_ACCESSES],
        rest,
        ", ".join(_count_phrases(strays[MAX_UNFOLDED_ACCESSES:], sockets, own, system)),
    )


def _count_phrases(
    more: Sequence[Access], sockets: Sequence[Access], own: Sequence[Access], system: int
) -> Iterator[str]:
    if more:
        yield f"{len(more):,} more outside its own files"
    if sockets:
        yield f"{len(sockets):,} {'sockets' if len(sockets) > 1 else 'socket'} of its own"
    files = len({each.path for each in own})
    yield f"{files:,} of its own files"
    yield f"{system:,} of the system and the runtime"


def _view_outside(strays: Sequence[Access]) -> tuple[OutsideAccess, ...]:
    return tuple(
        OutsideAccess(each.summary, _shorten_path(_to_single_line(each.path)), each.always_refused)
        for each in strays
    )


def _to_single_line(path: str) -> str:
    return path.translate(LINE_BREAK_SYMBOLS)


def _shorten_path(path: str) -> str:
    return (
        path
        if len(path) <= MAX_PATH_CHARS
        else f"{path[: MAX_PATH_CHARS // 2]} … {path[-MAX_PATH_CHARS // 2 :]}"
    )
