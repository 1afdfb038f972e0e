"""Write a file so that readers see all of it or none of it."""

import os
import threading
from contextlib import suppress
from pathlib import Path

PARTIAL_SUFFIX = ".part"  # what a killed process leaves behind ends in this, and can be deleted


def write_atomic(path: Path, content: str | bytes, *, exclusive: bool = False) -> None:
    """Write `content` to `path` in one step.

    Args:
        path: The file to create or replace. Its folder must exist.
        content: Text is encoded as UTF-8; characters that UTF-8 cannot encode are escaped.
        exclusive: Refuse to replace an existing file.

    Raises:
        FileExistsError: `exclusive` is set and `path` exists.
        OSError: The file cannot be written. Nothing is left behind.
    """
    data = content.encode("utf-8", "backslashreplace") if isinstance(content, str) else content
    partial = partial_path(path)
    try:
        partial.write_bytes(data)
        move_into_place(partial, path, exclusive=exclusive)
    finally:
        with suppress(OSError):
            partial.unlink(missing_ok=True)


def partial_path(path: Path) -> Path:
    """Return a path next to `path` for its unfinished content, unique to this thread of this process."""
    return path.with_name(f"{path.name}.{os.getpid()}-{threading.get_ident()}{PARTIAL_SUFFIX}")


def move_into_place(partial: Path, path: Path, *, exclusive: bool = False) -> None:
    """Give finished content its name; with `exclusive`, raise FileExistsError if the name is taken."""
    if exclusive:
        os.link(partial, path)
        partial.unlink()
    else:
        partial.replace(path)
