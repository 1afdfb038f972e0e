"""`watch`: a batch, a run or a folder of runs as it goes on, from its files alone."""

import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from rich.console import Console

from mlagentbench.errors import UsageError
from mlagentbench.runner.batch.survey import Survey, View
from mlagentbench.terminal.progress import drawing, table

EVERY = 1.0  # seconds


def looks(folder: Path, once: bool) -> Iterator[View]:
    """One look after another, until nothing goes on there any more."""
    survey = Survey(folder)
    while True:
        started = time.monotonic()
        view = survey.look()
        if not view.standings:
            raise UsageError(f"no run lies in {folder}")
        yield view
        if once or not view.going:
            return
        time.sleep(max(EVERY, 20 * (time.monotonic() - started)))


def show_all(folder: Path, once: bool) -> None:
    """Draw each look, and leave the last one standing, with all its runs."""
    last = None
    with suppress(KeyboardInterrupt), drawing() as show:
        for last in looks(folder, once):
            if not once:
                show(last)
    if last:
        width = None if sys.stdout.isatty() else 200
        everything = last.but(going=False)
        Console(width=width, soft_wrap=False, markup=False, highlight=False).print(table(everything, 10**6))
