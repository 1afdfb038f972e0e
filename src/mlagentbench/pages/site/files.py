"""Files of a report: whole or not at all, and only if they changed."""

from pathlib import Path


def write_if_changed(path: Path, data: bytes) -> None:
    """Put a file where it belongs; one that says the same already keeps its time."""
    if path.is_file() and path.read_bytes() == data:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.part")
    partial.write_bytes(data)
    partial.replace(path)
