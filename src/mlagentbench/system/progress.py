"""The callback to which long operations report their progress."""

from collections.abc import Callable

ProgressCallback = Callable[[str], None]


def ignore_progress(line: str) -> None:
    """A ProgressCallback for callers that show nothing."""
