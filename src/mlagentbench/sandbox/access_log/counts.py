"""How often each path was tried in each way, and how often in vain; bounded, whatever the command does."""

from mlagentbench.sandbox.access_log.expected_paths import OVERFLOW_NAME, expected_prefix, is_local_address

MAX_PATHS, MAX_TOTAL_PATH_CHARS = (
    10_000,
    2**20,
)  # distinct paths, and characters of them; for foreign ones as many again


class AccessCounts:
    """What was tried since the last look."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str], list[int]] = {}
        self._capacity = {True: [MAX_PATHS, MAX_TOTAL_PATH_CHARS], False: [MAX_PATHS, MAX_TOTAL_PATH_CHARS]}

    def add(self, path: str, mode: str, refused: bool) -> None:
        """One try more."""
        if (path, mode) not in self._counts:
            path = self._fit_path(path)
        count = self._counts.setdefault((path, mode), [0, 0])
        count[0] += 1
        count[1] += refused

    def _fit_path(self, path: str) -> str:
        """The path if there is room for it; a flood of ordinary ones takes no room from foreign ones."""
        place = expected_prefix(path)
        room = self._capacity[bool(place) or is_local_address(path)]
        if room[0] <= 0 or room[1] < len(path):
            return (
                f"{path.partition(':')[0]}:{OVERFLOW_NAME}" if path[:1] != "/" else f"{place}/{OVERFLOW_NAME}"
            )
        room[0] -= 1
        room[1] -= len(path)
        return path

    def rows(self) -> list[list[object]]:
        """All of it: path, mode, count, refused."""
        return [[_escape_undecodable(path), mode, *count] for (path, mode), count in self._counts.items()]


def _escape_undecodable(path: str) -> str:
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
