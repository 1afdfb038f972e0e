"""Proves every task sound: nothing and the baseline never succeed, the reference always does. Prints a table.

    python benchmarks/prove.py [TASK ...] [--seeds 5] [--edition open] [--out FOLDER]

Runs that take over a minute are made with one seed only. With --out the runs are kept, and what is finished there is
not made again. Exits with 1 if a task is not sound.
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
from mlagentbench.records import Result
from mlagentbench.runner.folder import RunFolder
from mlagentbench.runner.setup import Setup, prepare_setup
from mlagentbench.runner.start import start_run
from mlagentbench.system.hardware import detect_hardware
from mlagentbench.task import Task

MINUTE = 60
TUNER = {"steps": 10, "hours": 0.02}  # it shall show that something can be gained, not how much
HEADS = (
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


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def trial(setup: Setup, agent: str, seed: int, limits: dict[str, Any], out: Path) -> Result:
    """One run, or the one that is there already."""
    place = out / f"{setup.task.name}.{agent}.s{seed}"
    known = RunFolder(place).result if (place / "result.json").is_file() else None
    if known and known.hashes != setup.hashes:
        raise UsageError(f"{place} was made of something else; choose another --out")
    return known or start_run(setup, agent, place, seed, limits)


def trials(
    setup: Setup, agent: str, seeds: int, out: Path, limits: dict[str, Any] | None = None
) -> list[Result]:
    """Runs with several seeds, or with one if that takes long."""
    found: list[Result] = []
    for seed in range(seeds):
        last = trial(setup, agent, seed, limits or {}, out)
        found.append(last)
        said = f"score {format_score(last.score)}, {'success' if last.success else 'no success'} {last.note}"
        say(
            f"{setup.task.name}: {agent}, seed {seed}: {said}, {last.seconds:.1f} s + {last.grading_seconds:.1f} s"
        )
        if last.seconds + last.grading_seconds > MINUTE:
            break
    return found


def shown(results: list[Result]) -> str:
    scores = [result.score for result in results if result.score is not None]
    if not scores:
        return "invalid"
    spread = f" ± {format_score(statistics.stdev(scores))}" if len(scores) > 1 else ""
    return format_score(statistics.mean(scores)) + spread


def successes(results: list[Result]) -> str:
    return f"{sum(result.success for result in results)}/{len(results)}"


def prove(name: str, edition: str, seeds: int, out: Path) -> tuple[tuple[str, ...], bool]:
    """One row of the table, and whether the task is sound."""
    setup = prepare_setup(name, edition, "bwrap", say)
    known = setup.task.edition(edition).baseline
    nothing = trials(setup, "nothing", 1, out)
    baseline = trials(setup, "baseline", seeds, out)
    tuner = trials(setup, "tuner", 1, out, TUNER)
    reference = trials(setup, "reference", seeds, out)
    everyone = {"nothing": nothing, "baseline": baseline, "tuner": tuner, "reference": reference}
    row = (
        name,
        f"{format_score(known.mean)} ± {format_score(known.sd)} (n = {known.n})" if known else "not measured",
        *(shown(results) for results in everyone.values()),
        format_percent(statistics.mean(result.improvement or 0.0 for result in reference)),
        ", ".join(successes(results) for results in everyone.values()),
        ", ".join(f"{statistics.mean(r.seconds for r in results):.0f}" for results in everyone.values()),
        f"{max(r.grading_seconds for results in everyone.values() for r in results):.0f}",
    )
    lost = any(result.success for result in nothing + baseline)
    return row, not lost and all(result.success for result in reference)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tasks", nargs="*", default=Task.names())
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--edition", default="open")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    started = time.monotonic()
    rows, unsound = [], []
    with tempfile.TemporaryDirectory(prefix="mlagentbench-prove-") as folder:
        for name in given.tasks:
            row, sound = prove(name, given.edition, given.seeds, given.out or Path(folder))
            rows.append(row)
            unsound += [] if sound else [name]
    print("| " + " | ".join(HEADS) + " |\n|" + "---|" * len(HEADS))
    for row in rows:
        print("| " + " | ".join(row) + " |")
    machine = detect_hardware()
    print(f"\n{machine.cores} cores, {machine.cpu}; {(time.monotonic() - started) / 60:.0f} minutes in all.")
    print("Success and seconds: nothing, baseline, tuner, reference. Grading: seconds, at most.")
    for name in unsound:
        say(f"{name} is NOT sound")
    return 1 if unsound else 0


if __name__ == "__main__":
    sys.exit(main())
