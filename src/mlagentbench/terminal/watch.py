"""`watch`: a batch, a run or a folder of runs as it goes on, from its files alone."""

import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from rich.console import Console

from mlagentbench.errors import UsageError
from mlagentbench.runner.batch.batch_status import BatchFollower, BatchStatus
from mlagentbench.terminal.progress import progress_display, status_table

REFRESH_INTERVAL_S = 1.0  # seconds


def poll_views(folder: Path, once: bool) -> Iterator[BatchStatus]:
    """One look after another, until nothing goes on there any more."""
    survey = BatchFollower(folder)
    while True:
        started = time.monotonic()
        view = survey.refresh()
        if not view.runs:
            raise UsageError(f"no run lies in {folder}")
        yield view
        if once or not view.running:
            return
        time.sleep(max(REFRESH_INTERVAL_S, 20 * (time.monotonic() - started)))


def watch_folder(folder: Path, once: bool) -> None:
    """Draw each look, and leave the last one standing, with all its runs."""
    last = None
    with suppress(KeyboardInterrupt), progress_display() as show:
        for last in poll_views(folder, once):
            if not once:
                show(last)
    if last:
        width = None if sys.stdout.isatty() else 200
        everything = last.replace(going=False)
        Console(width=width, soft_wrap=False, markup=False, highlight=False).print(
            status_table(everything, 10**6)
        )
