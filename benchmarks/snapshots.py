"""How long snapshots take and how much disk they use: `python benchmarks/snapshots.py [--small]`."""

import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from mlagentbench.workspace.store import Store

SCALE = 20 if "--small" in sys.argv else 1


def fill(folder: Path, files: int, size: int, text: bool) -> None:
    words = random.Random(0).choices([f"{n / 7:.4f}" for n in range(20_000)], k=200_000)
    for n in range(files):
        if n % 100 == 0:
            (folder / f"part{n // 100}").mkdir(parents=True)
        content = (f"{n}," + ",".join(words[n % 1000 :])).encode()[:size] if text else os.urandom(size)
        (folder / f"part{n // 100}" / f"{n}.csv").write_bytes(content)


def seconds(deed: Callable[[], object]) -> float:
    started = time.perf_counter()
    deed()
    return time.perf_counter() - started


def disk(folder: Path) -> float:
    return sum(path.stat().st_blocks for path in folder.rglob("*")) * 512 / 1e6


def row(what: str, took: float, limit: float | None, megabytes: float | None = None) -> None:
    grown = f"{megabytes:9.1f} MB" if megabytes is not None else ""
    print(
        f"{what:52}{took * 1000:9.1f} ms{f'{limit * 1000:9.0f} ms' if limit else '':>13}{grown:>13}",
        flush=True,
    )


def settle() -> None:
    time.sleep(0.05)  # past the tick in which files were written, as an agent's thinking is


def gigabyte(place: Path, text: bool) -> None:
    workspace, snapshots = place / "workspace", place / "snapshots"
    fill(workspace, 5000 // SCALE, 200_000, text)
    settle()
    store = Store(snapshots, workspace)
    kind = "text" if text else "random"
    row(
        f"first snapshot, 1 GB of {kind} in 5,000 files",
        seconds(lambda: store.snapshot(0)),
        1.5,
        disk(snapshots),
    )
    shutil.rmtree(snapshots)
    store = Store(snapshots, workspace)
    row("the same again, in memory touched before", seconds(lambda: store.snapshot(0)), 1.5)
    before = disk(snapshots)
    (workspace / "part0" / "0.csv").write_bytes(b"changed")
    row("after one small change", seconds(lambda: store.snapshot(1)), 0.06, disk(snapshots) - before)
    settle()
    row("nothing changed", seconds(lambda: store.snapshot(2)), 0.06)
    row("state of a step", seconds(lambda: store.state(1)), None)
    row("restore in place, one file differs", seconds(lambda: store.restore(0, workspace)), None)
    row("snapshot after it", seconds(lambda: store.snapshot(3)), None)
    row("restore elsewhere, all of it", seconds(lambda: store.restore(0, place / "other")), None)
    row("the same again, only verified", seconds(lambda: store.restore(0, place / "other")), None)
    row("check of every object", seconds(store.check), None)


def many_files(place: Path) -> None:
    workspace = place / "workspace"
    fill(workspace, 20_000 // SCALE, 100, text=True)
    settle()
    store = Store(place / "snapshots", workspace)
    row("first snapshot, 20,000 small files", seconds(lambda: store.snapshot(0)), None)
    row("20,000 unchanged files", min(seconds(lambda: store.snapshot(1)) for _ in range(5)), 0.2)


def many_steps(place: Path) -> None:
    workspace = place / "workspace"
    fill(workspace, 200, 10_000, text=True)
    store = Store(place / "snapshots", workspace)
    store.snapshot(0)
    before, took = disk(place / "snapshots"), []
    for step in range(1, 1001):
        (workspace / "train.py").write_text(f"print({step})\n")
        took.append(seconds(lambda step=step: store.snapshot(step)))
    row("mean of steps 1 to 100", sum(took[:100]) / 100, None)
    row("mean of steps 901 to 1,000", sum(took[-100:]) / 100, None, disk(place / "snapshots") - before)
    row("state after 1,000 steps", seconds(lambda: store.state(1000)), None)


def main() -> None:
    print(f"{'':52}{'took':>12}{'limit':>13}{'disk':>13}")
    deeds = (lambda p: gigabyte(p, False), lambda p: gigabyte(p, True), many_files, many_steps)
    for deed in deeds:
        with tempfile.TemporaryDirectory() as place:
            deed(Path(place))


if __name__ == "__main__":
    main()
