"""Writing the files of a report."""

from pathlib import Path

from mlagentbench.system.atomic_write import write_atomic


def write_if_changed(path: Path, data: bytes) -> None:
    """Write a file atomically; a file with the same content keeps its modification time."""
    if path.is_file() and path.read_bytes() == data:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, data)
