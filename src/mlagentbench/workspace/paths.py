"""Paths as agents write them, and the glob patterns that make some of them read-only."""

from collections.abc import Iterable
from fnmatch import fnmatchcase

from mlagentbench.errors import ActionError

SANDBOX_FOLDER = "workspace"  # the workspace is /workspace inside the sandbox
MAX_FOLDER_DEPTH = 64
MAX_PATH_BYTES = 4000  # programs of the agent cannot use longer paths either: the kernel's limit is 4096

Parts = tuple[str, ...]


def normalize_path(given_path: str) -> str:
    """Return a path relative to the workspace, without `.` and `..`; the workspace itself is the empty path.

    Raises:
        ActionError: If the path is empty, malformed, too long or outside the workspace.
    """
    if not given_path:
        raise ActionError("the path is empty")
    if "\0" in given_path:
        raise ActionError(f"{format_path(given_path)} is not a path: it contains a NUL byte")
    try:
        length = len(given_path.encode("utf-8", "surrogateescape"))
    except UnicodeEncodeError as error:
        raise ActionError(f"{format_path(given_path)} is not a path: it cannot be encoded") from error
    parts = _resolve_dots(given_path)
    if given_path.startswith("/") and parts is not None:
        parts = parts[1:] if parts[:1] == [SANDBOX_FOLDER] else None
    if parts is None:
        raise ActionError(f"{format_path(given_path)} is outside the workspace")
    if length > MAX_PATH_BYTES or len(parts) > MAX_FOLDER_DEPTH:
        raise ActionError(f"{format_path(given_path)} is too long for a path")
    return "/".join(parts)


def _resolve_dots(given_path: str) -> list[str] | None:
    parts: list[str] = []
    for part in given_path.split("/"):
        if part == "..":
            if not parts:
                return None
            parts.pop()
        elif part not in ("", "."):
            parts.append(part)
    return parts


def format_path(path: str, max_chars: int = 200) -> str:
    """Format a path for people and models: on one line, with unprintable characters escaped."""
    text = path if len(path) <= max_chars else f"{path[:max_chars]}…"
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def format_size(size: int) -> str:
    """Format a number of bytes for people: 1.2 kB."""
    if size < 1000:
        return f"{size} B"
    power = min(len(f"{size:d}") - 1, 15) // 3
    return f"{size / 1000**power:.1f} {('kB', 'MB', 'GB', 'TB', 'PB')[power - 1]}"


class PathPatterns:
    """Glob patterns that match paths and everything below them, so `data/` and `data/**` are the same."""

    def __init__(self, patterns: Iterable[str]) -> None:
        self._patterns = [_split(pattern) for pattern in patterns]
        self.may_match_in_subfolder = any(len(p) > 1 or p == ("**",) for p in self._patterns)

    def matches(self, path: str) -> bool:
        """Tell whether a normalized path, or a folder above it, matches a pattern."""
        parts = tuple(path.split("/")) if path else ()
        prefixes = [parts[:n] for n in range(1, len(parts) + 1)]
        return any(_match(prefix, pattern) for pattern in self._patterns for prefix in prefixes)

    def names_path_below(self, path: str) -> bool:
        """Tell whether a pattern literally names something below `path`."""
        parts = tuple(path.split("/")) if path else ()
        return any(len(parts) < len(p) and parts == p[: len(parts)] for p in self._patterns)

    def may_match_below(self, path: str) -> bool:
        """Tell whether something inside the folder `path` could match; if not, the folder can be skipped."""
        parts = tuple(path.split("/")) if path else ()
        return any(_may_match_below(parts, pattern) for pattern in self._patterns)


def _split(pattern: str) -> Parts:
    parts = [part for part in pattern.split("/") if part not in ("", ".")]
    while len(parts) > 1 and parts[-1] == "**":
        parts.pop()
    return tuple(parts)


def _match(parts: Parts, pattern: Parts) -> bool:
    if not pattern:
        return not parts
    if pattern[0] == "**":
        return any(_match(parts[n:], pattern[1:]) for n in range(len(parts) + 1))
    return bool(parts) and fnmatchcase(parts[0], pattern[0]) and _match(parts[1:], pattern[1:])


def _may_match_below(parts: Parts, pattern: Parts) -> bool:
    if not parts or not pattern:
        return bool(pattern)
    if pattern[0] == "**":
        return True
    return fnmatchcase(parts[0], pattern[0]) and _may_match_below(parts[1:], pattern[1:])
