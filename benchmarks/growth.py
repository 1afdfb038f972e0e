"""Measures how the cost of a run grows, and draws a plot for each axis.

    python benchmarks/growth.py [steps files bytes runs nodes] [--quick] [--rounds N] [--out DIR]
    python benchmarks/growth.py --draw [--out DIR]

steps: a run of 10 to 10,000 steps that write a file. files: a step in a workspace of 10 to 100,000 files.
bytes: a step in a workspace of 1 MB to 10 GB of random data. runs: a batch of 10 to 10,000 runs with their
grading. nodes: batches on 1 to 3 nodes of Ray, and simulated ones on up to 100 (see growth_nodes.py).

Every point has a process of its own. Points are measured in several rounds, the largest ones of files, bytes
and runs once. 10 GB need 30 GB of free disk space. --quick leaves out the largest points. AXIS.svg and
AXIS.json go to DIR; --draw draws them again from AXIS.json.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

from growth_nodes import RUNS_PER_NODE, measure_nodes, measure_simulated_nodes
from growth_plots import AXIS_TITLES, describe_simulation_error, draw_axis
from growth_points import measure_bytes, measure_files, measure_runs, measure_steps
from measured_process import report_usage, run_measured

OUT = Path(__file__).parents[1] / "docs" / "images" / "scale"
# Each axis: its points, and the largest one of --quick.
AXES: dict[str, tuple[list[int], int]] = {
    "steps": ([10, 100, 1000, 10_000], 1000),
    "files": ([10, 100, 1000, 10_000, 100_000], 10_000),
    "bytes": ([1, 10, 100, 1000, 10_000], 1000),
    "runs": ([10, 100, 1000, 3000, 10_000], 100),
    "nodes": ([1, 2, 3], 2),
}
SLOW_AXES = ("files", "bytes", "runs")
SIMULATED_NODES = [1, 2, 3, 10, 30, 100]
CALIBRATION = ("recording", "ray_batch_cpu_s", "ray_run_cpu_s")
Point = dict[str, Any]
MEASUREMENTS: dict[str, Callable[[int, Path, Point], None]] = {
    "steps": measure_steps,
    "files": measure_files,
    "bytes": measure_bytes,
    "runs": measure_runs,
    "nodes": measure_nodes,
    "simulated_nodes": measure_simulated_nodes,
}


def measure_point(axis: str, size: int, *calibration: object) -> Point:
    """Measure a point in a process of its own."""
    point = {axis: size, **run_measured(__file__, "--point", axis, size, *calibration)}
    point["load"] = os.getloadavg()[0]
    figures = ", ".join(f"{key} {value:.3g}" for key, value in point.items() if key != axis)
    print(f"{size:>7,} {axis}: {figures}", flush=True)
    return point


def measure_axis(axis: str, quick: bool, rounds: int) -> list[Point]:
    """The points of an axis. Every round measures each of them, but a slow largest one only once."""
    sizes, quick_limit = AXES[axis]
    sizes = [size for size in sizes if not quick or size <= quick_limit]
    points = []
    for number in range(rounds):
        last = -1 if number and axis in SLOW_AXES else None
        points += [measure_point(axis, size) for size in sizes[:last]]
    return sorted(points, key=lambda point: int(point[axis]))


def measure_nodes_axis(quick: bool, rounds: int, folder: Path) -> list[Point]:
    """Real nodes, then simulated ones that repeat what a single real node sent."""
    sizes, quick_limit = AXES["nodes"]
    sizes = [size for size in sizes if not quick or size <= quick_limit]
    recording = folder / "recording"
    points = [measure_point("nodes", size, recording) for _ in range(rounds) for size in sizes]
    return points + simulate_nodes(points, quick, rounds, recording)


def simulate_nodes(points: list[Point], quick: bool, rounds: int, recording: Path) -> list[Point]:
    """Calibrate on one and two real nodes, then simulate them and more."""
    without_ray = [
        measure_point("simulated_nodes", size, recording, 0, 0) for _ in range(rounds) for size in (1, 2)
    ]
    # What Ray needs in the process of the batch: once for a batch of this duration, and for each run.
    (runs, one), (more_runs, two) = (
        (count, median_cpu_s("nodes", nodes, points) - median_cpu_s("simulated_nodes", nodes, without_ray))
        for nodes, count in ((1, RUNS_PER_NODE), (2, 2 * RUNS_PER_NODE))
    )
    run_cpu_s = max(two - one, 0) / (more_runs - runs)
    batch_cpu_s = max(one - runs * run_cpu_s, 0)
    print(
        f"Ray: {batch_cpu_s:.3f} s of processor time, and {run_cpu_s * 1000:.1f} ms for each run", flush=True
    )
    simulated = []
    for number in range(rounds):
        for size in SIMULATED_NODES[: 3 if number or quick else None]:
            point = measure_point("simulated_nodes", size, recording, batch_cpu_s, run_cpu_s)
            simulated.append({**point, "ray_batch_cpu_s": batch_cpu_s, "ray_run_cpu_s": run_cpu_s})
    return simulated


def median_cpu_s(key: str, nodes: int, points: list[Point]) -> float:
    """The processor time of the process of the batch with this number of nodes."""
    each = statistics.median(float(point["each_cpu_ms"]) for point in points if point.get(key) == nodes)
    return each / 1000 * nodes * RUNS_PER_NODE


def measure_in_this_process(axis: str, size: int, calibration: list[str]) -> None:
    figures: Point = dict(zip(CALIBRATION, calibration, strict=False))
    with tempfile.TemporaryDirectory(prefix="mlagentbench-growth-") as name, report_usage(figures):
        MEASUREMENTS[axis](size, Path(name), figures)


def draw_all(out: Path, axes: list[str]) -> None:
    for axis in axes:
        if not (out / f"{axis}.json").is_file():
            continue
        points = json.loads((out / f"{axis}.json").read_text())["points"]
        draw_axis(axis, points, out / f"{axis}.svg")
        if axis == "nodes":
            print("\n".join(describe_simulation_error(points)))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("axes", nargs="*", metavar="AXIS", help=", ".join(AXES))
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--draw", action="store_true", help="measure nothing")
    parser.add_argument("--point", nargs="+", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.point:
        measure_in_this_process(args.point[0], int(args.point[1]), args.point[2:])
        return 0
    if unknown := set(args.axes) - set(AXES):
        parser.error(f"No such axis: {', '.join(sorted(unknown))}. Available: {', '.join(AXES)}.")
    args.out.mkdir(parents=True, exist_ok=True)
    for axis in [] if args.draw else args.axes or AXES:
        if axis == "nodes":
            with tempfile.TemporaryDirectory(prefix="mlagentbench-growth-") as name:
                points = measure_nodes_axis(args.quick, args.rounds, Path(name))
        else:
            points = measure_axis(axis, args.quick, args.rounds)
        record = {"date": date.today().isoformat(), "cores": os.cpu_count(), "points": points}
        (args.out / f"{axis}.json").write_text(json.dumps(record, indent=1) + "\n")
    draw_all(args.out, args.axes or list(AXIS_TITLES))
    return 0


if __name__ == "__main__":
    sys.exit(main())
