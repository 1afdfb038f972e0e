"""The file and socket accesses of a step; routine accesses, such as Python's own, are only counted."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from mlagentbench.analysis.runs import Run
from mlagentbench.pages.viewer.excerpts import Excerpt, make_excerpt, rendered_size, size_cap
from mlagentbench.sandbox.access_log.expected_paths import PRIVATE_PATHS, expected_prefix
from mlagentbench.sandbox.access_log.records import Access, unexpected_accesses

MAX_ACCESS_BYTES = 200_000  # of all collapsed access lists in a page
MAX_EXPANDED_ACCESSES = 6  # unexpected accesses of one step that are always visible
MAX_PATH_CHARS = 160  # of a path that is always visible
# Without this, a path with a line break could look like two paths.
LINE_BREAK_SYMBOLS = str.maketrans({"\n": "␊", "\r": "␍", "\t": "␉"})


class UnexpectedAccessView(NamedTuple):
    """A file or socket that a well-behaved command has no reason to use."""

    operation: str
    path: str
    refused: bool


class StepAccessView(NamedTuple):
    """The unexpected accesses of one step, and a summary and a list of all others."""

    unexpected: tuple[UnexpectedAccessView, ...]
    summary: str
    rest: Excerpt


class UnexpectedAccessCounts(NamedTuple):
    """Unexpected accesses of a whole run, and the steps that attempted them."""

    attempted: int
    allowed: int
    steps: tuple[int, ...]


class _ClassifiedAccesses(NamedTuple):
    unexpected: Sequence[Access]
    rest: str
    summary: str


def count_unexpected_accesses(run: Run) -> UnexpectedAccessCounts:
    """Count the unexpected accesses of all steps."""
    by_step = {
        number: unexpected
        for number, accesses in run.accesses.items()
        if (unexpected := unexpected_accesses(accesses))
    }
    allowed = sum(not access.always_refused for accesses in by_step.values() for access in accesses)
    return UnexpectedAccessCounts(sum(map(len, by_step.values())), allowed, tuple(by_step))


def view_accesses(run: Run, after: int, budget: float) -> dict[int, StepAccessView]:
    """The accesses of all steps after `after` that have any, within a budget of bytes."""
    by_step = {number: _classify(accesses) for number, accesses in run.accesses.items() if number > after}
    cap = size_cap((rendered_size(step.rest) for step in by_step.values()), budget)
    return {
        number: StepAccessView(_view_unexpected(step.unexpected), step.summary, make_excerpt(step.rest, cap))
        for number, step in by_step.items()
    }


def _classify(accesses: Sequence[Access]) -> _ClassifiedAccesses:
    # Successful accesses come first.
    unexpected = sorted(unexpected_accesses(accesses), key=lambda access: access.always_refused)
    unexpected_set = set(unexpected)
    expected = [access for access in accesses if access not in unexpected_set]
    sockets = [access for access in expected if not access.path.startswith("/")]
    private = [access for access in expected if expected_prefix(access.path) in PRIVATE_PATHS]
    system = len({access.path for access in expected}) - len({access.path for access in (*sockets, *private)})
    collapsed = unexpected[MAX_EXPANDED_ACCESSES:]
    rest = "".join(
        f"{access.summary}  {_escape_line_breaks(access.path)}\n"
        for access in (*collapsed, *sockets, *private)
    )
    summary = ", ".join(_count_phrases(collapsed, sockets, private, system))
    return _ClassifiedAccesses(unexpected[:MAX_EXPANDED_ACCESSES], rest, summary)


def _count_phrases(
    collapsed: Sequence[Access], sockets: Sequence[Access], private: Sequence[Access], system: int
) -> Iterator[str]:
    if collapsed:
        yield f"{len(collapsed):,} more unexpected"
    if sockets:
        yield f"{len(sockets):,} local {'sockets' if len(sockets) > 1 else 'socket'}"
    files = len({access.path for access in private})
    yield f"{files:,} of the agent's own files"
    yield f"{system:,} files of the system and the runtime"


def _view_unexpected(accesses: Sequence[Access]) -> tuple[UnexpectedAccessView, ...]:
    return tuple(
        UnexpectedAccessView(
            access.summary, _shorten_path(_escape_line_breaks(access.path)), access.always_refused
        )
        for access in accesses
    )


def _escape_line_breaks(path: str) -> str:
    return path.translate(LINE_BREAK_SYMBOLS)


def _shorten_path(path: str) -> str:
    if len(path) <= MAX_PATH_CHARS:
        return path
    half = MAX_PATH_CHARS // 2
    return f"{path[:half]} … {path[-half:]}"
