"""What changed between two states, as text."""

from collections.abc import Callable, Iterator
from difflib import unified_diff
from io import StringIO

from mlagentbench.workspace.manifest import Entry, State
from mlagentbench.workspace.paths import shown, shown_size

LARGEST = 256 << 10  # bytes of a file
PAIRS = 4_000_000  # lines times lines: beyond, finding the difference can take minutes

Content = Callable[[str, Entry], bytes]


def difference(old: State, new: State, old_content: Content, new_content: Content, cap: int, pairs: int = PAIRS) -> str:
    """A unified diff of the text files; other changes are one line each."""
    text: list[str] = []
    left = cap
    for path in sorted(path for path in old.keys() | new.keys() if old.get(path) != new.get(path)):
        before, after = old.get(path), new.get(path)
        lines = _unified(path, _text(path, before, old_content), _text(path, after, new_content), pairs)
        for line in lines if lines is not None else [f"{shown(path)}: {_told(before)} -> {_told(after)}\n"]:
            left -= len(line)
            if left < 0:
                return "".join([*text, "... (cut off)\n"])
            text.append(line)
    return "".join(text)


def _unified(path: str, before: str | None, after: str | None, pairs: int) -> Iterator[str] | None:
    if before is None or after is None or before == after:
        return None
    old, new = list(StringIO(before, newline="\n")), list(StringIO(after, newline="\n"))
    if len(old) * len(new) > pairs:
        return None
    name = shown(path)
    return _ended(unified_diff(old, new, f"a/{name}", f"b/{name}"))


def _ended(lines: Iterator[str]) -> Iterator[str]:
    for line in lines:
        yield line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"


def _text(path: str, entry: Entry | None, content: Content) -> str | None:
    if entry is None:
        return ""
    if entry.kind != "file" or entry.size > LARGEST:
        return None
    data = content(path, entry)
    try:
        return None if b"\0" in data else data.decode()
    except UnicodeDecodeError:
        return None


def _told(entry: Entry | None) -> str:
    match entry:
        case None:
            return "nothing"
        case Entry(kind="file"):
            return f"file, {shown_size(entry.size)}, mode {entry.mode:o}"
        case Entry(kind="folder"):
            return f"folder, mode {entry.mode:o}"
    return f"link to {shown(entry.target)}"
