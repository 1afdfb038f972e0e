"""The output of a command: its start and end for the agent, and all of it (up to a maximum) on disk."""

import re
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

HEAD_BYTES = TAIL_BYTES = 8_000
MAX_OUTPUT_FILE_BYTES = 64 * 2**20
CONTROL_SEQUENCE = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]"
)
UNDECODABLE = re.compile("\ufffd+")


class CommandOutput:
    """Collects bytes as they arrive, and keeps only the first and the last of them in memory."""

    def __init__(self, path: Path | None = None, max_file_bytes: int = MAX_OUTPUT_FILE_BYTES) -> None:
        self.size_bytes = 0
        self._head = bytearray()
        self._tail = bytearray()
        self._max_file_bytes = max_file_bytes
        self._file: BinaryIO | None = path.open("wb", buffering=0) if path else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        if self._file:
            self._file.close()

    def write(self, data: bytes) -> None:
        """Add bytes that were just read from the pipe."""
        if self._file and self.size_bytes < self._max_file_bytes:
            self._file.write(data[: self._max_file_bytes - self.size_bytes])
        self.size_bytes += len(data)
        if head_bytes_left := HEAD_BYTES - len(self._head):
            self._head += data[:head_bytes_left]
            data = data[head_bytes_left:]
        self._tail += data
        if len(self._tail) > 2 * TAIL_BYTES:
            del self._tail[:-TAIL_BYTES]

    @property
    def text(self) -> str:
        """The text that the agent sees."""
        return self.text_since(0)

    def text_since(self, start: int) -> str:
        """The start and the end of what came after the first `start` bytes."""
        tail = self._tail[-TAIL_BYTES:]
        before_tail = self.size_bytes - len(tail)
        head, tail = self._head[start:], tail[max(start - before_tail, 0) :]
        omitted = self.size_bytes - start - len(head) - len(tail)
        if not omitted:
            return _to_readable_text(head + tail)
        marker = f"[... {omitted:,} bytes left out ...]"
        return f"{_to_readable_text(head)}\n{marker}\n{_to_readable_text(tail)}"

    @property
    def last_line(self) -> str:
        """The last line that is not empty, to show progress."""
        lines = _to_readable_text(self._tail[-400:] or self._head[-400:]).split("\n")
        return next((line for line in reversed(lines) if line.strip()), "")


def _to_readable_text(data: bytes | bytearray) -> str:
    """Text as a terminal would show it, without control sequences; progress bars keep their last state."""
    text = UNDECODABLE.sub(
        "\ufffd", CONTROL_SEQUENCE.sub("", data.decode("utf-8", "replace").replace("\r\n", "\n"))
    )
    return "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))
