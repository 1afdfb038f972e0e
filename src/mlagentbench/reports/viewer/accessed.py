"""What a step opened and which sockets it tried, as far as it is worth a look: most of it is Python's own business."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from mlagentbench.reports.runs import Run
from mlagentbench.reports.viewer.pieces import Piece, cut, level, weight
from mlagentbench.sandbox.access.places import OWN, place_of
from mlagentbench.sandbox.access.record import Access, foreign

BUDGET = 200_000  # bytes of folded lists in a page
STAND = 6  # that stand unfolded in a step
LONG = 160  # characters of a path that stands unfolded
BREAKS = str.maketrans({"\n": "␊", "\r": "␍", "\t": "␉"})  # else a path could pretend to be two


class Stray(NamedTuple):
    """A file or a socket that an honest command has no reason for."""

    deed: str
    path: str
    in_vain: bool


class Accessed(NamedTuple):
    """What one step tried: outside its own files, and the rest of it in a line, folded."""

    strays: tuple[Stray, ...]
    summary: str
    rest: Piece


class Strayed(NamedTuple):
    """What all steps tried outside their own files."""

    tried: int
    opened: int
    steps: tuple[int, ...]


class _Sorted(NamedTuple):
    strays: Sequence[Access]
    rest: str
    summary: str


def strayed(run: Run) -> Strayed:
    """How much the run has tried that is foreign to it, and where."""
    found = {number: strays for number, tried in run.accesses.items() if (strays := foreign(tried))}
    every = [each for strays in found.values() for each in strays]
    return Strayed(len(every), sum(not each.in_vain for each in every), tuple(found))


def accessed(run: Run, after: int, budget: float) -> dict[int, Accessed]:
    """The accesses of each step after one that has any, within a budget of bytes for all of them."""
    found = {number: _sorted(tried) for number, tried in run.accesses.items() if number > after}
    cap = level((weight(each.rest) for each in found.values()), budget)
    return {number: Accessed(_shown(each.strays), each.summary, cut(each.rest, cap)) for number, each in found.items()}


def _sorted(tried: Sequence[Access]) -> _Sorted:
    strays = sorted(foreign(tried), key=lambda each: each.in_vain)  # what went through comes first
    odd = set(strays)
    ordinary = [each for each in tried if each not in odd]
    sockets = [each for each in ordinary if not each.path.startswith("/")]
    own = [each for each in ordinary if place_of(each.path) in OWN]
    system = len({each.path for each in ordinary}) - len({each.path for each in (*sockets, *own)})
    rest = "".join(f"{each.deed}  {_line(each.path)}\n" for each in (*strays[STAND:], *sockets, *own))
    return _Sorted(strays[:STAND], rest, ", ".join(_counted(strays[STAND:], sockets, own, system)))


def _counted(more: Sequence[Access], sockets: Sequence[Access], own: Sequence[Access], system: int) -> Iterator[str]:
    if more:
        yield f"{len(more):,} more outside its own files"
    if sockets:
        yield f"{len(sockets):,} {'sockets' if len(sockets) > 1 else 'socket'} of its own"
    files = len({each.path for each in own})
    yield f"{files:,} of its own files"
    yield f"{system:,} of the system and the runtime"


def _shown(strays: Sequence[Access]) -> tuple[Stray, ...]:
    return tuple(Stray(each.deed, _short(_line(each.path)), each.in_vain) for each in strays)


def _line(path: str) -> str:
    return path.translate(BREAKS)


def _short(path: str) -> str:
    return path if len(path) <= LONG else f"{path[: LONG // 2]} … {path[-LONG // 2 :]}"
