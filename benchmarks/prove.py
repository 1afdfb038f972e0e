"""Validates every task: its levels are in order, and only better work succeeds. Prints a table.

    python benchmarks/prove.py [TASK ...] [--seeds 5] [--edition open] [--out FOLDER]

Runs, all in the sandbox:
- `baseline` from the starter, and `nothing` from each start: none may succeed;
- `tuner` from the starter, for comparison;
- `baseline` from the reference, which runs the unchanged reference: it must succeed when it is compared with
  the starter, and must not when it is compared with itself;
- `expert` from the reference: it must succeed, and must not when it is compared with itself and the ceiling.

Runs that take over a minute use one seed only. With --out the runs are kept, and finished ones are not
repeated. Exits with 1 if a task is not valid.
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from mlagentbench.errors import UsageError
from mlagentbench.formatting import format_score
from mlagentbench.grading.verdict import compute_verdict, judge_score
from mlagentbench.levels import SIGNIFICANCE_LEVEL
from mlagentbench.records import STARTS, AgentSpec, Baseline, Better, Levels, Limits, Result, Start
from mlagentbench.runner.folder import RunFolder
from mlagentbench.runner.setup import Setup, prepare_setup
from mlagentbench.runner.start import start_run
from mlagentbench.system.hardware import detect_hardware
from mlagentbench.task import Task

SLOW_RUN_S = 60
TUNER_LIMITS = {"steps": 10, "hours": 0.02}  # enough to show that an improvement is possible
COLUMNS = (
    "task",
    "starter",
    "tuner",
    "reference",
    "expert",
    "ceiling",
    "progress of tuner, reference, expert",
    "successes",
    "seconds",
    "grading",
)


def print_progress(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def run_once(setup: Setup, agent: str, seed: int, limits: dict[str, Any], out: Path) -> Result:
    """Run an agent once, or return the result of an earlier run."""
    start = "" if setup.start == "starter" else f".from-{setup.start}"
    folder = out / f"{setup.task.name}.{agent}{start}.s{seed}"
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
        who = f"{agent} from the {setup.start}, seed {seed}"
        print_progress(f"{setup.task.name}: {who}: {outcome}, {seconds}")
        if result.seconds + result.grading_seconds > SLOW_RUN_S:
            break
    return results


def find_disorder(levels: Levels, better: Better) -> Iterator[str]:
    """Say which levels are missing, or not better than the one below beyond noise."""
    for lower, higher in pairwise(STARTS):
        below, above = levels.solution(lower), levels.solution(higher)
        if below is None or above is None:
            yield f"{lower} or {higher} was not measured"
        elif compute_verdict(above.mean, below, better).p_value >= SIGNIFICANCE_LEVEL:
            yield f"the {higher} is not better than the {lower} beyond noise"
    if levels.expert and levels.ceiling:
        room = compute_verdict(levels.ceiling.score, levels.expert, better).improvement
        if room is not None and room < 0:
            yield "the expert is better than the ceiling"


def succeeds_from(result: Result, setup: Setup, start: Start) -> bool:
    """Whether this score would be a success in a run from another start."""
    if result.score is None:
        return False
    spec = setup.create_run_spec(AgentSpec(agent="baseline"), 0, Limits())
    verdict = judge_score(result.score, spec.replace(start=start, baseline=setup.levels.solution(start)))
    return bool(verdict and verdict.success)


def format_scores(results: list[Result]) -> str:
    scores = [result.score for result in results if result.score is not None]
    if not scores:
        return "invalid"
    spread = f" ± {format_score(statistics.stdev(scores))}" if len(scores) > 1 else ""
    return format_score(statistics.mean(scores)) + spread


def format_level(level: Baseline | None) -> str:
    if level is None:
        return "not measured"
    return f"{format_score(level.mean)} ± {format_score(level.sd)} (n = {level.n})"


def mean_progress(results: list[Result]) -> str:
    values = [result.progress for result in results if result.progress is not None]
    return f"{statistics.mean(values):.0%}" if values else "-"


def validate_task(name: str, edition: str, seeds: int, out: Path) -> tuple[tuple[str, ...], list[str]]:
    """Return one row of the table, and what is wrong with the task."""
    starter, reference, expert = (
        prepare_setup(name, edition, "bwrap", print_progress, start=start) for start in STARTS
    )
    nothing = [run_once(setup, "nothing", 0, {}, out) for setup in (starter, reference, expert)]
    baselines = run_seeds(starter, "baseline", seeds, out)
    tuner = run_seeds(starter, "tuner", 1, out, TUNER_LIMITS)
    references = run_seeds(reference, "baseline", seeds, out)
    experts = run_seeds(reference, "expert", seeds, out)
    expected = {
        "nothing": ([result.success is True for result in nothing], False),
        "baseline": ([result.success is True for result in baselines], False),
        "reference": ([succeeds_from(result, starter, "starter") for result in references], True),
        "reference from the reference": ([result.success is True for result in references], False),
        "expert from the reference": ([result.success is True for result in experts], True),
        "expert from the expert": ([succeeds_from(result, expert, "expert") for result in experts], False),
    }
    problems = list(find_disorder(starter.levels, starter.task.config.better))
    for who, (successes, wanted) in expected.items():
        if any(success != wanted for success in successes):
            problems.append(f"{who}: {sum(successes)} of {len(successes)} succeed")
    groups = {"baseline": baselines, "tuner": tuner, "reference": references, "expert": experts}
    ceiling = starter.levels.ceiling
    row = (
        name,
        f"{format_level(starter.levels.starter)}; here {format_scores(baselines)}",
        format_scores(tuner),
        f"{format_level(starter.levels.reference)}; here {format_scores(references)}",
        f"{format_level(starter.levels.expert)}; here {format_scores(experts)}",
        format_score(ceiling.score) if ceiling else "none",
        ", ".join(mean_progress(results) for results in (tuner, references, experts)),
        ", ".join(f"{sum(successes)}/{len(successes)}" for successes, _ in expected.values()),
        ", ".join(f"{statistics.mean(r.seconds for r in results):.0f}" for results in groups.values()),
        f"{max(r.grading_seconds for results in groups.values() for r in results):.0f}",
    )
    return row, problems


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
    rows, problems = [], []
    with tempfile.TemporaryDirectory(prefix="mlagentbench-prove-") as folder:
        for name in args.tasks:
            row, found = validate_task(name, args.edition, args.seeds, args.out or Path(folder))
            rows.append(row)
            problems += [f"{name} is NOT valid: {problem}" for problem in found]
    print("| " + " | ".join(COLUMNS) + " |\n|" + "---|" * len(COLUMNS))
    for row in rows:
        print("| " + " | ".join(row) + " |")
    machine = detect_hardware()
    print(
        f"\n{machine.cores} cores, {machine.cpu}; {(time.monotonic() - started) / 60:.0f} minutes in total."
    )
    print(
        "Levels: task.toml; here: these runs. Seconds: baseline, tuner, reference, expert. Grading: maximum."
    )
    print(
        "Successes: nothing, baseline, reference (from the starter, from itself), expert (from the reference,"
        " from itself); must be none, none, all, none, all, none."
    )
    for problem in problems:
        print_progress(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
