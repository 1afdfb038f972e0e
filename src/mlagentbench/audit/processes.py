"""Finds out whether a process started by an attack still runs on the host."""

from contextlib import suppress
from pathlib import Path


def is_process_running(token: str) -> bool:
    """Whether a process of this machine has the token in its command line."""
    return any(
        token.encode() in _read_cmdline(path) for path in Path("/proc").iterdir() if path.name.isdigit()
    )


def _read_cmdline(process: Path) -> bytes:
    with suppress(OSError):
        return (process / "cmdline").read_bytes()
    return b""
