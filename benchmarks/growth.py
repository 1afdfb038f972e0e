"""Measures how the cost of a run grows, and draws a plot for each axis.

    python benchmarks/growth.py [steps files bytes runs] [--quick] [--out DIR]

steps: a run of 10 to 10,000 steps that write a file. files: a step in a workspace of 10 to 100,000 files.
bytes: a step in a workspace of 1 MB to 10 GB of random data. runs: a batch of 10 to 10,000 runs with their
grading. Every point has a process of its own. 10 GB need 20 GB of free disk space. --quick leaves out the
largest points. AXIS.svg and AXIS.json go to DIR.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import Any

from measured_process import MB, report_usage, run_measured

from mlagentbench.environment.environment import Environment
from mlagentbench.records import AgentSpec, Call, Limits
from mlagentbench.runner.batch.orchestrator import assign_gpus_to_slots, run_batch
from mlagentbench.runner.batch.plan import Plan
from mlagentbench.runner.folder import RunFolder
from mlagentbench.runner.run import open_environment, populate_workspace
from mlagentbench.runner.setup import prepare_setup

ROOT = Path(__file__).parents[1]
TOY = str(ROOT / "tests" / "toy")
OUT = ROOT / "docs" / "images" / "scale"
LIMITS = Limits(steps=100_000, files=1_000_000, disk_gb=100, history_gb=200)
STEPS_PER_POINT = 20
FILE_MB = 16  # of a file of the axis bytes, at most
# Each axis: its points, the largest one of --quick, and its name in the plot.
AXES = {
    "steps": ([10, 100, 1000, 10_000], 1000, "steps of a run"),
    "files": ([10, 100, 1000, 10_000, 100_000], 10_000, "files in the workspace"),
    "bytes": ([1, 10, 100, 1000, 10_000], 1000, "MB in the workspace"),
    "runs": ([10, 100, 1000, 10_000], 100, "runs of a batch"),
}


def ignore(line: object) -> None:
    pass


@contextmanager
def open_run(folder: Path) -> Iterator[Environment]:
    setup = prepare_setup(TOY, "open", "bwrap", ignore)
    spec = setup.create_run_spec(AgentSpec(agent="benchmark"), 0, LIMITS)
    env = open_environment(setup, RunFolder.create(folder / "run", spec))
    try:
        populate_workspace(env, setup)
        yield env
    finally:
        env.close()


def time_step(env: Environment) -> float:
    """Milliseconds of a step that writes a file."""
    content = f"note {len(env.steps)}"
    started = time.perf_counter()
    env.step(Call(action="Write File", args={"file_name": "note.txt", "content": content}))
    milliseconds = (time.perf_counter() - started) * 1000
    assert not env.steps[-1].failed and not env.steps[-1].notes, env.steps[-1].observation
    return milliseconds


def measure_steps(count: int, folder: Path, figures: dict[str, Any]) -> None:
    with open_run(folder) as env:
        times = [time_step(env) for _ in range(count)]
        assert len(env.steps) == count
    figures["each_ms"] = statistics.median(times[-100:])


def measure_steps_in_workspace(folder: Path, sizes: list[int], figures: dict[str, Any]) -> None:
    """Fill a workspace with files of these sizes, then take steps; the first one stores all files."""
    with open_run(folder) as env:
        root = env.context.workspace.root
        for number, size in enumerate(sizes):
            path = root / "filled" / f"{number % 100:02d}" / f"{number}.bin"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(os.urandom(size))
        figures["first_s"] = time_step(env) / 1000
        time_step(env)  # reads again what was written in the same tick of the clock
        figures["each_ms"] = statistics.median(time_step(env) for _ in range(STEPS_PER_POINT))
        stored = len(env.context.store.state(len(env.steps)))
        assert stored >= len(sizes), f"{stored} files in the snapshot"


def measure_files(count: int, folder: Path, figures: dict[str, Any]) -> None:
    measure_steps_in_workspace(folder, [100] * count, figures)


def measure_bytes(megabytes: int, folder: Path, figures: dict[str, Any]) -> None:
    whole, rest = divmod(megabytes, FILE_MB)
    measure_steps_in_workspace(folder, [FILE_MB * MB] * whole + [rest * MB] * bool(rest), figures)


def measure_runs(count: int, folder: Path, figures: dict[str, Any]) -> None:
    plan = Plan.model_validate({"tasks": [TOY], "agents": ["baseline"], "repetitions": count})
    started = time.perf_counter()
    outcome = run_batch(folder / "batch", plan, assign_gpus_to_slots(None, ""), ignore, ignore)
    figures["each_ms"] = (time.perf_counter() - started) / count * 1000
    assert len(outcome.results) == count and all(result.valid for result in outcome.results)


MEASUREMENTS: dict[str, Callable[[int, Path, dict[str, Any]], None]] = {
    "steps": measure_steps,
    "files": measure_files,
    "bytes": measure_bytes,
    "runs": measure_runs,
}


def measure_axis(axis: str, quick: bool) -> list[dict[str, Any]]:
    sizes, quick_limit, name = AXES[axis]
    points = []
    for size in sizes:
        if quick and size > quick_limit:
            continue
        point = {axis: size, **run_measured(__file__, "--point", axis, size), "load": os.getloadavg()[0]}
        points.append(point)
        figures = ", ".join(f"{key} {value:.3g}" for key, value in point.items() if key != axis)
        print(f"{size:>7,} {name}: {figures}", flush=True)
    return points


def draw(axis: str, points: list[dict[str, Any]], path: Path) -> None:
    """Draw the time of a step or run, and the memory and writes of the whole process."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    matplotlib.rcParams.update({"svg.hashsalt": axis, "svg.fonttype": "none", "font.size": 9})
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(8, 3), layout="constrained")
    sizes = [point[axis] for point in points]
    each = "a run, with grading" if axis == "runs" else "a step that writes a file"
    left.plot(sizes, [point["each_ms"] for point in points], "o-", label=f"{each} (ms)")
    if "first_s" in points[0]:
        left.plot(sizes, [point["first_s"] for point in points], "s--", label="the first snapshot (s)")
    right.plot(sizes, [point["memory_mb"] for point in points], "o-", label="memory of the harness (MB)")
    right.plot(sizes, [point["written_mb"] for point in points], "s--", label="written to disk (MB)")
    for panel in (left, right):
        panel.set(xscale="log", yscale="log", xlabel=AXES[axis][2])
        panel.grid(alpha=0.3)
        panel.legend(frameon=False)
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("axes", nargs="*", metavar="AXIS", help=", ".join(AXES))
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--point", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.point:
        axis, size = args.point
        figures: dict[str, Any] = {}
        with tempfile.TemporaryDirectory(prefix="mlagentbench-growth-") as name, report_usage(figures):
            MEASUREMENTS[axis](int(size), Path(name), figures)
        return 0
    if unknown := set(args.axes) - set(AXES):
        parser.error(f"No such axis: {', '.join(sorted(unknown))}. Available: {', '.join(AXES)}.")
    args.out.mkdir(parents=True, exist_ok=True)
    for axis in args.axes or AXES:
        points = measure_axis(axis, args.quick)
        record = {"date": date.today().isoformat(), "cores": os.cpu_count(), "points": points}
        (args.out / f"{axis}.json").write_text(json.dumps(record, indent=1) + "\n")
        draw(axis, points, args.out / f"{axis}.svg")
    return 0


if __name__ == "__main__":
    sys.exit(main())
