"""Validates every task: nothing and the baseline never succeed, the reference always does. Prints a table.

    python benchmarks/prove.py [TASK ...] [--seeds 5] [--edition open] [--out FOLDER]

Runs that take over a minute use one seed only. With --out the runs are kept, and finished ones are not
repeated. Exits with 1 if a task is not valid.
"""

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from mlagentbench.errors import UsageError
from mlagentbench.formatting import format_percent, format_score
from mlagentbench.records import Baseline, Result
from mlagentbench.runner.folder import RunFolder
from mlagentbench.runner.setup import Setup, prepare_setup
from mlagentbench.runner.start import start_run
from mlagentbench.system.hardware import detect_hardware
from mlagentbench.task import Task

SLOW_RUN_S = 60
TUNER_LIMITS = {"steps": 10, "hours": 0.02}  # enough to show that an improvement is possible
COLUMNS = (
    "task",
    "baseline",
    "nothing",
    "baseline agent",
    "tuner",
    "reference",
    "improvement",
    "success",
    "seconds",
    "grading",
)


def print_progress(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def run_once(setup: Setup, agent: str, seed: int, limits: dict[str, Any], out: Path) -> Result:
    """Run an agent once, or return the result of an earlier run."""
    folder = out / f"{setup.task.name}.{agent}.s{seed}"
    earlier = RunFolder(folder).result if (folder / "result.json").is_file() else None
    if earlier and earlier.hashes != setup.hashes:
        raise UsageError(f"{folder} was run with other task, data or code versions. Choose another --out.")
    return earlier or start_run(setup, agent, folder, seed, limits)


def run_seeds(
    setup: Setup, agent: str, seeds: int, out: Path, limits: dict[str, Any] | None = None
) -> list[Result]:
    """Run an agent with several seeds, or with one if a run is slow."""
    results: list[Result] = []
    for seed in range(seeds):
        result = run_once(setup, agent, seed, limits or {}, out)
        results.append(result)
        verdict = "success" if result.success else "no success"
        outcome = f"score {format_score(result.score)}, {verdict} {result.note}"
        seconds = f"{result.seconds:.1f} s + {result.grading_seconds:.1f} s"
        print_progress(f"{setup.task.name}: {agent}, seed {seed}: {outcome}, {seconds}")
        if result.seconds + result.grading_seconds > SLOW_RUN_S:
            break
    return results


def format_scores(results: list[Result]) -> str:
    scores = [result.score for result in results if result.score is not None]
    if not scores:
        return "invalid"
    spread = f" ± {format_score(statistics.stdev(scores))}" if len(scores) > 1 else ""
    return format_score(statistics.mean(scores)) + spread


def format_successes(results: list[Result]) -> str:
    return f"{sum(result.success for result in results)}/{len(results)}"


def _format_baseline(baseline: Baseline | None) -> str:
    if baseline is None:
        return "not measured"
    return f"{format_score(baseline.mean)} ± {format_score(baseline.sd)} (n = {baseline.n})"


def validate_task(name: str, edition: str, seeds: int, out: Path) -> tuple[tuple[str, ...], bool]:
    """Return one row of the table, and whether the task is valid."""
    setup = prepare_setup(name, edition, "bwrap", print_progress)
    nothing = run_seeds(setup, "nothing", 1, out)
    baseline = run_seeds(setup, "baseline", seeds, out)
    tuner = run_seeds(setup, "tuner", 1, out, TUNER_LIMITS)
    reference = run_seeds(setup, "reference", seeds, out)
    by_agent = {"nothing": nothing, "baseline": baseline, "tuner": tuner, "reference": reference}
    row = (
        name,
        _format_baseline(setup.task.edition(edition).levels.starter),
        *(format_scores(results) for results in by_agent.values()),
        format_percent(statistics.mean(result.improvement or 0.0 for result in reference)),
        ", ".join(format_successes(results) for results in by_agent.values()),
        ", ".join(f"{statistics.mean(r.seconds for r in results):.0f}" for results in by_agent.values()),
        f"{max(r.grading_seconds for results in by_agent.values() for r in results):.0f}",
    )
    floor_succeeds = any(result.success for result in nothing + baseline)
    return row, not floor_succeeds and all(result.success for result in reference)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tasks", nargs="*", default=Task.names())
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--edition", default="open")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    started = time.monotonic()
    rows, invalid = [], []
    with tempfile.TemporaryDirectory(prefix="mlagentbench-prove-") as folder:
        for name in args.tasks:
            row, is_valid = validate_task(name, args.edition, args.seeds, args.out or Path(folder))
            rows.append(row)
            invalid += [] if is_valid else [name]
    print("| " + " | ".join(COLUMNS) + " |\n|" + "---|" * len(COLUMNS))
    for row in rows:
        print("| " + " | ".join(row) + " |")
    machine = detect_hardware()
    print(
        f"\n{machine.cores} cores, {machine.cpu}; {(time.monotonic() - started) / 60:.0f} minutes in total."
    )
    print("Success and seconds: nothing, baseline, tuner, reference. Grading: maximum seconds.")
    for name in invalid:
        print_progress(f"{name} is NOT valid")
    return 1 if invalid else 0


if __name__ == "__main__":
    sys.exit(main())
