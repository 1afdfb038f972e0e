"""The end of the output of the step that is in progress."""

from contextlib import suppress
from pathlib import Path

from mlagentbench.sandbox.output import CommandOutput

MAX_TAIL_BYTES = 4000


def find_running_output(run_path: Path) -> Path | None:
    """Return the output file that was written after the last recorded step, if there is one."""
    trace_ns = _modified_ns(run_path / "trace.jsonl")
    newest = max((run_path / "outputs").glob("*.txt"), key=_modified_ns, default=None)
    return newest if newest and _modified_ns(newest) > trace_ns else None


def read_running_output(run_path: Path) -> str:
    """Return the end of the output of the current step; empty if it has none."""
    path, tail = find_running_output(run_path), CommandOutput()
    if path:
        with suppress(OSError), path.open("rb") as file:
            file.seek(max(path.stat().st_size - MAX_TAIL_BYTES, 0))
            tail.write(file.read(MAX_TAIL_BYTES))
    return tail.text.strip()


def _modified_ns(path: Path) -> int:
    with suppress(OSError):
        return path.stat().st_mtime_ns
    return 0
