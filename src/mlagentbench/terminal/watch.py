"""`watch`: the progress of a batch, a run or a folder of runs, read from its files only."""

import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from rich.console import Console

from mlagentbench.errors import UsageError
from mlagentbench.runner.batch.batch_status import BatchFollower, BatchStatus
from mlagentbench.terminal.progress import progress_display, status_table

POLL_INTERVAL_S = 1.0
MAX_POLL_LOAD = 1 / 20  # of the time is spent on reading
PIPE_WIDTH = 200  # characters


def poll_status(folder: Path, once: bool) -> Iterator[BatchStatus]:
    """Yield the status repeatedly until nothing is running any more."""
    follower = BatchFollower(folder)
    while True:
        started = time.monotonic()
        status = follower.refresh()
        if not status.runs:
            raise UsageError(f"No runs found in {folder}")
        yield status
        if once or not status.running:
            return
        time.sleep(max(POLL_INTERVAL_S, (time.monotonic() - started) / MAX_POLL_LOAD))


def watch_folder(folder: Path, once: bool) -> None:
    """Display the status until nothing is running; then print the last status with all runs."""
    last = None
    with suppress(KeyboardInterrupt), progress_display() as display:
        for last in poll_status(folder, once):
            if not once:
                display(last)
    if last:
        console = Console(
            width=None if sys.stdout.isatty() else PIPE_WIDTH, soft_wrap=False, markup=False, highlight=False
        )
        console.print(status_table(last, max_rows=len(last.runs)))
