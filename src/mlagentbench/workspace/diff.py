"""Formats the difference between two states of a workspace as text."""

from collections.abc import Callable, Iterable, Iterator
from difflib import unified_diff
from io import StringIO

from mlagentbench.workspace.manifest import Entry, State
from mlagentbench.workspace.paths import format_path, format_size

MAX_DIFF_FILE_BYTES = 256 << 10
MAX_LINE_PAIRS = 4_000_000  # lines times lines: with more, computing the diff can take minutes

ReadContent = Callable[[str, Entry], bytes]


def format_diff(
    old: State,
    new: State,
    old_content: ReadContent,
    new_content: ReadContent,
    max_chars: int,
    max_line_pairs: int = MAX_LINE_PAIRS,
) -> str:
    """Return a unified diff of the text files, and one line for each other change."""
    text: list[str] = []
    chars_left = max_chars
    for path in sorted(path for path in old.keys() | new.keys() if old.get(path) != new.get(path)):
        before, after = old.get(path), new.get(path)
        old_text, new_text = _decode_text(path, before, old_content), _decode_text(path, after, new_content)
        lines: Iterable[str] | None = _diff_file(path, old_text, new_text, max_line_pairs)
        if lines is None:
            lines = [f"{format_path(path)}: {_describe_entry(before)} -> {_describe_entry(after)}\n"]
        for line in lines:
            chars_left -= len(line)
            if chars_left < 0:
                return "".join([*text, "... (cut off)\n"])
            text.append(line)
    return "".join(text)


def _diff_file(path: str, before: str | None, after: str | None, max_line_pairs: int) -> Iterator[str] | None:
    if before is None or after is None or before == after:
        return None
    old, new = list(StringIO(before, newline="\n")), list(StringIO(after, newline="\n"))
    if len(old) * len(new) > max_line_pairs:
        return None
    name = format_path(path)
    return _mark_missing_newlines(unified_diff(old, new, f"a/{name}", f"b/{name}"))


def _mark_missing_newlines(lines: Iterator[str]) -> Iterator[str]:
    for line in lines:
        yield line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"


def _decode_text(path: str, entry: Entry | None, read_content: ReadContent) -> str | None:
    if entry is None:
        return ""
    if entry.kind != "file" or entry.size > MAX_DIFF_FILE_BYTES:
        return None
    data = read_content(path, entry)
    try:
        return None if b"\0" in data else data.decode()
    except UnicodeDecodeError:
        return None


def _describe_entry(entry: Entry | None) -> str:
    match entry:
        case None:
            return "nothing"
        case Entry(kind="file"):
            return f"file, {format_size(entry.size)}, mode {entry.mode:o}"
        case Entry(kind="folder"):
            return f"folder, mode {entry.mode:o}"
    return f"link to {format_path(entry.target)}"
