"""Counts accesses and refusals by path and mode; the size is bounded, whatever the command does."""

from mlagentbench.sandbox.access_log.expected_paths import OVERFLOW_NAME, expected_prefix, is_local_address

# Distinct paths, and characters of all paths together. Unexpected paths have the same capacity again.
MAX_PATHS, MAX_TOTAL_PATH_CHARS = 10_000, 2**20


class AccessCounts:
    """Accesses since the counts were last taken."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str], list[int]] = {}
        # What is left of paths and characters, for expected (True) and unexpected (False) paths.
        self._capacity = {True: [MAX_PATHS, MAX_TOTAL_PATH_CHARS], False: [MAX_PATHS, MAX_TOTAL_PATH_CHARS]}

    def add(self, path: str, mode: str, refused: bool) -> None:
        """Count one access."""
        if (path, mode) not in self._counts:
            path = self._fit_path(path)
        count = self._counts.setdefault((path, mode), [0, 0])
        count[0] += 1
        count[1] += refused

    def _fit_path(self, path: str) -> str:
        """Return the path if there is capacity for it, else a placeholder for its folder or address family.

        A flood of expected paths does not reduce the capacity for unexpected ones.
        """
        prefix = expected_prefix(path)
        capacity = self._capacity[bool(prefix) or is_local_address(path)]
        if capacity[0] <= 0 or capacity[1] < len(path):
            is_file = path.startswith("/")
            return f"{prefix}/{OVERFLOW_NAME}" if is_file else f"{path.partition(':')[0]}:{OVERFLOW_NAME}"
        capacity[0] -= 1
        capacity[1] -= len(path)
        return path

    def rows(self) -> list[list[object]]:
        """All counts, each as path, mode, count, refused."""
        return [[_escape_undecodable(path), mode, *count] for (path, mode), count in self._counts.items()]


def _escape_undecodable(path: str) -> str:
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
