"""One line of progress for whoever started a long operation."""

from collections.abc import Callable

ProgressCallback = Callable[[str], None]


def ignore_progress(line: str) -> None:
    """A ProgressCallback for callers that show nothing."""
