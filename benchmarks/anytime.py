"""Measures the time to grade every step of many house-price runs in which every step changes the submission.

    python benchmarks/anytime.py [--runs 20] [--steps 50] [--json]

Exits with 1 if this takes over 8 s, if a submission is graded more than once, or if grading one of them alone
takes over 300 ms in a process that has graded before. The processor time is that of this process and of all
graders; unlike the seconds, it hardly depends on other work on the machine.
"""

import argparse
import json
import os
import resource
import tempfile
import time
from pathlib import Path

import numpy as np
from overhead import median_seconds

from mlagentbench.analysis.anytime import grade_steps, read_step_grades
from mlagentbench.analysis.runs import Run, read_runs
from mlagentbench.environment.environment import Environment
from mlagentbench.grading.forking_grader import ForkingGrader
from mlagentbench.grading.grade import grade
from mlagentbench.grading.grader_pool import shared_pool
from mlagentbench.grading.grader_process import grade_submission, load_grader
from mlagentbench.records import AgentSpec, Call, Limits
from mlagentbench.runner.folder import RunFolder
from mlagentbench.runner.run import open_environment, populate_workspace
from mlagentbench.runner.setup import Setup, prepare_setup

MAX_SECONDS, MAX_SINGLE_SECONDS = 8.0, 0.3


def create_run(setup: Setup, folder: Path, steps: int, seed: int) -> None:
    """Create a run that submits different prices at every step."""
    run = RunFolder.create(
        folder, setup.create_run_spec(AgentSpec(agent="benchmark"), seed, Limits(steps=steps))
    )
    env: Environment = open_environment(setup, run)
    ids = [line.partition(",")[0] for line in (setup.data.public / "test.csv").read_text().splitlines()[1:]]
    random = np.random.default_rng(seed)
    try:
        populate_workspace(env, setup)
        for _ in range(steps):
            prices = random.uniform(5e4, 5e5, len(ids))
            rows = "".join(f"{id},{price:.2f}\n" for id, price in zip(ids, prices, strict=True))
            env.step(
                Call(
                    action="Write File",
                    args={"file_name": "submission.csv", "content": f"Id,SalePrice\n{rows}"},
                )
            )
    finally:
        env.close()


def measure_bare_grading(setup: Setup, run: Run) -> float:
    """Milliseconds of grade.py for one submission, in this process and without isolation: the lower bound."""
    grader = load_grader(setup.task.folder)
    store = run.folder.open_store(setup.data, writable=False)
    with tempfile.TemporaryDirectory() as name:
        submission = Path(name, "submission.csv")
        store.export(1, "submission.csv", submission)
        return median_seconds(lambda: grade_submission(grader, submission, setup.data.private), 50) * 1000


def measure_processor_seconds() -> float:
    """The processor time of this process, and of its children that have ended."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


class GraderCounter:
    """Counts the calls of the grader."""

    def __init__(self) -> None:
        self.calls = 0
        self._count("grade")
        self._count("grade_entry")

    def _count(self, name: str) -> None:
        original = getattr(ForkingGrader, name)

        def counted(*args: object) -> object:
            self.calls += 1
            return original(*args)

        setattr(ForkingGrader, name, counted)


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("--runs", type=int, default=20)
    options.add_argument("--steps", type=int, default=50)
    options.add_argument("--json", action="store_true")
    args = options.parse_args()
    setup, cores = prepare_setup("house-price", "open", "bwrap", print), len(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as folder_name:
        for seed in range(args.runs):
            create_run(setup, Path(folder_name, f"run-{seed}"), args.steps, seed)
        runs, counter = read_runs([Path(folder_name)]), GraderCounter()
        started, started_cpu = time.perf_counter(), measure_processor_seconds()
        faults = grade_steps(runs, print)
        seconds = time.perf_counter() - started
        shared_pool().close()  # what its processes used counts once they have ended
        cpu_seconds = measure_processor_seconds() - started_cpu
        grades = [grade for run in runs for grade in read_step_grades(run)]
        distinct = len({grade.key for grade in grades})
        bare_ms = measure_bare_grading(setup, runs[0])
        store = runs[0].folder.open_store(setup.data, writable=False)
        single_seconds = []
        for _ in range(2):
            started = time.perf_counter()
            single_grade = grade(setup.task, setup.data, store, 1, setup.sandbox)
            single_seconds.append(time.perf_counter() - started)
            assert single_grade.score == read_step_grades(runs[0])[1].score
    figures = {
        "runs": args.runs,
        "steps": args.steps,
        "cores": cores,
        "graded_steps": len(grades),
        "distinct_submissions": distinct,
        "graded_submissions": counter.calls,
        "seconds": round(seconds, 2),
        "milliseconds_per_submission": round(1000 * seconds / distinct, 2),
        "milliseconds_of_processor_time_per_submission": round(1000 * cpu_seconds / distinct, 2),
        "milliseconds_of_grade_py_alone": round(bare_ms, 2),
        "ratio_on_one_core": round(1000 * seconds / distinct * cores / bare_ms, 2),
        "milliseconds_first_grading": round(1000 * single_seconds[0], 1),
        "milliseconds_single_grading": round(1000 * single_seconds[1], 1),
        "good": seconds <= MAX_SECONDS
        and single_seconds[1] <= MAX_SINGLE_SECONDS
        and counter.calls == distinct
        and not faults,
    }
    print(
        json.dumps(figures, indent=2)
        if args.json
        else "\n".join(f"{k.replace('_', ' ')}: {v}" for k, v in figures.items())
    )
    return 0 if figures["good"] else 1


if __name__ == "__main__":
    raise SystemExit(main())
