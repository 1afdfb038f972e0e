"""Describes errors in code of a task or plugin: only by the lines that its author wrote."""

import traceback
from pathlib import Path
from traceback import FrameSummary, StackSummary, TracebackException

from mlagentbench.errors import UsageError


def locate_error(error: BaseException, folder: Path) -> str:
    """Format an error in one line, with the last line of the code in `folder` that was running."""
    error = _unwrap(error)
    message = " ".join(f"{type(error).__name__}: {error}".split())
    frames = _own_frames(traceback.extract_tb(error.__traceback__), folder)
    if not frames or isinstance(error, SyntaxError):  # a syntax error says where it is
        return message
    return f"{message} ({Path(frames[-1].filename).name}, line {frames[-1].lineno})"


def format_own_traceback(error: BaseException, folder: Path) -> str:
    """Format a traceback without the frames of files outside `folder`."""
    formatted: TracebackException | None = TracebackException.from_exception(_unwrap(error))
    first = formatted
    seen = set[int]()
    while formatted is not None and id(formatted) not in seen:
        seen.add(id(formatted))
        formatted.stack = StackSummary.from_list(_own_frames(formatted.stack, folder))
        formatted = formatted.__cause__ or formatted.__context__
    return "".join(first.format()) if first else ""


def _unwrap(error: BaseException) -> BaseException:
    """The error of the author's code behind the one that reports that it cannot be imported."""
    while isinstance(error, UsageError) and error.__cause__ is not None:
        error = error.__cause__
    return error


def _own_frames(frames: StackSummary, folder: Path) -> list[FrameSummary]:
    return [frame for frame in frames if Path(frame.filename).is_relative_to(folder)]
