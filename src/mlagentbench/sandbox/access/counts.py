"""How often each path was tried in each way, and how often in vain; bounded, whatever the command does."""

from mlagentbench.sandbox.access.places import OTHERS, is_near, place_of

MOST, LONGEST = 10_000, 2**20  # distinct paths, and characters of them; for foreign ones as many again


class Counts:
    """What was tried since the last look."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], list[int]] = {}
        self._room = {True: [MOST, LONGEST], False: [MOST, LONGEST]}

    def add(self, path: str, mode: str, refused: bool) -> None:
        """One try more."""
        if (path, mode) not in self._found:
            path = self._fitting(path)
        count = self._found.setdefault((path, mode), [0, 0])
        count[0] += 1
        count[1] += refused

    def _fitting(self, path: str) -> str:
        """The path if there is room for it; a flood of ordinary ones takes no room from foreign ones."""
        place = place_of(path)
        room = self._room[bool(place) or is_near(path)]
        if room[0] <= 0 or room[1] < len(path):
            return f"{path.partition(':')[0]}:{OTHERS}" if path[:1] != "/" else f"{place}/{OTHERS}"
        room[0] -= 1
        room[1] -= len(path)
        return path

    def rows(self) -> list[list[object]]:
        """All of it: path, mode, count, refused."""
        return [[_printable(path), mode, *count] for (path, mode), count in self._found.items()]


def _printable(path: str) -> str:
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
