"""Measures what many concurrent runs cost the harness, and what queued and finished runs cost.

    python benchmarks/batch.py [--json]

Exits with 1 if a figure is over its limit. Every part is its own process, because its memory is measured.
"""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from overhead import BareRecorder, Figure, median_seconds, report

from mlagentbench.runner.batch.batch_status import BatchFollower
from mlagentbench.runner.batch.folder import BatchFolder, BatchRecord
from mlagentbench.runner.batch.job import Job
from mlagentbench.runner.batch.orchestrator import assign_gpus_to_slots, run_batch
from mlagentbench.runner.batch.plan import Plan
from mlagentbench.runner.batch.scheduler import Scheduler
from mlagentbench.runner.folder import RunFolder

TOY = str(Path(__file__).parents[1] / "tests" / "toy")
RUNS, STEPS, QUEUED_JOBS = 100, 50, 1000
MIN_STEPS_PER_S, MAX_MEMORY_MB = 500, 150

READ_RUNS = """
import json, sys
from pathlib import Path
for path in Path(sys.argv[1]).glob("*/r*.json"):
    json.loads(path.read_text())
"""


def ignore(line: object) -> None:
    pass


def process_memory_mb(field: str) -> float:
    """Memory of this process: VmRSS now, VmHWM at its peak."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) / 1024


def measure_concurrent_runs(folder: Path) -> Iterator[Figure]:
    """Many concurrent runs, each with a model that replies at once and writes a file."""
    write = 'Action: Write File\nAction Input: {{"file_name": "note.txt", "content": "note {}"}}'
    replies = [write.format(number) for number in range(STEPS)]
    answer = "id,value\\n" + "".join(f"{number},1\\n" for number in range(10))
    replies[0] = (
        replies[0].replace("note.txt", "submission.csv").replace("note 0", answer)
    )  # so that there is a grade
    (folder / "script").write_text("\n=====\n".join(replies))
    model = f"scripted:{folder / 'script'}"
    plan = Plan.model_validate(
        {
            "tasks": [TOY],
            "agents": ["act"],
            "models": [model],
            "repetitions": RUNS,
            "limits": {"steps": STEPS},
        }
    )
    imported_mb, started_cpu = process_memory_mb("VmHWM"), time.process_time()
    outcome = run_batch(folder / "concurrent", plan, assign_gpus_to_slots(RUNS, ""), ignore, ignore)
    cpu_ms = (time.process_time() - started_cpu) / RUNS / STEPS * 1000
    assert (
        all(result.steps == STEPS and result.valid for result in outcome.results)
        and len(outcome.results) == RUNS
    )
    folders = [Path(result.folder) for result in outcome.results]
    started_at = min((folder / "run.json").stat().st_mtime for folder in folders)
    last = max((folder / "trace.jsonl").stat().st_mtime for folder in folders)
    rate = RUNS * STEPS / (last - started_at)
    title = f"{RUNS} concurrent runs of {STEPS} steps: {rate:.0f} steps/s, one in"
    memory = process_memory_mb("VmHWM")
    bare, started_cpu = BareRecorder(folder / "bare"), time.process_time()
    bare_ms = median_seconds(bare.write, 200) * 1000
    bare_cpu_ms = (time.process_time() - started_cpu) / 200 * 1000
    name = "the same files and lines, written by hand"
    yield Figure(title, 1000 / rate, "ms", 1000 / MIN_STEPS_PER_S, bare_ms, name)
    title = "processor time of each step, with its share of the run"
    yield Figure(title, cpu_ms, "ms", 1000 / MIN_STEPS_PER_S, bare_cpu_ms, name)
    title = "memory of the harness meanwhile"
    yield Figure(title, memory, "MB", MAX_MEMORY_MB, imported_mb, "the process before the batch")
    total = max((folder / "result.json").stat().st_mtime for folder in folders) - started_at
    name = "the files of its steps"
    yield Figure("the same with grading, per run", total / RUNS * 1000, "ms", 3000, STEPS * bare_ms, name)


class InstantRunner:
    """A runner that takes no time: it only writes a result."""

    def __init__(self, out: Path, spec: str, result: str) -> None:
        self.out, self.spec, self.result = out, spec, result

    def run(self, job: Job, gpu: str) -> Path:
        folder = self.out / job.name
        folder.mkdir()
        (folder / "run.json").write_text(self.spec)
        (folder / "result.json").write_text(self.result)
        return folder

    def stop(self) -> None:
        pass


def measure_queue(folder: Path) -> Iterator[Figure]:
    """The cost of a job besides its run: planning, queueing, scheduling, reading and counting its result."""
    plan = Plan.model_validate({"tasks": [TOY], "agents": ["nothing"]})
    done = run_batch(folder / "one", plan, [""], ignore, ignore).results[0]
    spec = RunFolder(Path(done.folder)).spec.model_dump_json()
    before, started = process_memory_mb("VmRSS"), time.perf_counter()
    plan = plan.replace(repetitions=QUEUED_JOBS)
    jobs = plan.expand_jobs()
    out = folder / "many"
    out.mkdir()
    BatchFolder(out).write_record(BatchRecord(plan=plan, jobs=tuple(jobs)))
    batch = Scheduler(
        BatchFollower(out),
        plan,
        InstantRunner(out, spec, done.model_dump_json(exclude={"folder"})),
        ["", ""],
        ignore,
        ignore,
    )
    for job in jobs:
        batch.add(job)
    batch.run()
    assert batch.status.totals.done == QUEUED_JOBS
    took = (time.perf_counter() - started) / QUEUED_JOBS
    grown = (process_memory_mb("VmHWM") - before) / QUEUED_JOBS
    bare_out = folder / "bare"
    bare_out.mkdir()
    instant = InstantRunner(bare_out, spec, done.model_dump_json(exclude={"folder"}))
    waiting = iter(jobs)
    bare_ms = median_seconds(lambda: instant.run(next(waiting), ""), 200) * 1000
    title = f"a job among {QUEUED_JOBS:,}, besides its run"
    yield Figure(title, took * 1000, "ms", 50, bare_ms, "the two files of a run, written by hand")
    job_kb = len(jobs[0].model_dump_json()) / 1024
    yield Figure("memory per job", grown * 1024, "kB", 50, job_kb, "the job as JSON")
    yield from measure_finished_batch(out)


def measure_finished_batch(out: Path) -> Iterator[Figure]:
    """A whole process that finds nothing to do."""
    command = [sys.executable, "-m", "mlagentbench", "batch", "--out", str(out)]
    (out / "index.sqlite").unlink(missing_ok=True)
    for state in (", no index", ""):
        bare = time_command([sys.executable, "-c", READ_RUNS, str(out)])
        title, name = (
            f"{QUEUED_JOBS:,} finished runs recognized{state}",
            "a Python that reads their two files",
        )
        yield Figure(title, time_command(command), "s", 2, bare, name)


def time_command(command: list[str]) -> float:
    started = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    return time.perf_counter() - started


def measure_start(folder: Path) -> Iterator[Figure]:
    """From the command to the start of its first run."""
    seconds, bare = [], []
    for number in range(5):
        out = folder / f"start-{number}"
        bare.append(time_command([sys.executable, "-c", "pass"]))
        started_at = time.time()
        options = ["--task", TOY, "--agent", "nothing", "--repetitions", "2", "--out", str(out)]
        time_command([sys.executable, "-m", "mlagentbench", "batch", *options])
        seconds.append(min(path.stat().st_mtime for path in out.glob("*/run.json")) - started_at)
    title = "start of a batch, up to its first run"
    yield Figure(title, statistics.median(seconds), "s", 1, statistics.median(bare), "python -c pass")
    seconds, bare = [], []
    for number in range(5):
        out = folder / f"run-{number}"
        bare.append(time_command([sys.executable, "-c", "pass"]))
        started_at = time.time()
        options = ["--agent", "baseline", "--steps", "1", "--out", str(out)]
        time_command([sys.executable, "-m", "mlagentbench", "run", TOY, *options])
        step = RunFolder(out).steps()[0]
        seconds.append((out / "trace.jsonl").stat().st_mtime - step.seconds - started_at)
    title = "start of a run, up to its first step"
    yield Figure(title, statistics.median(seconds), "s", 1, statistics.median(bare), "python -c pass")


PARTS = {"concurrent": measure_concurrent_runs, "queue": measure_queue, "start": measure_start}


def measure() -> Iterator[Figure]:
    for part in PARTS:
        done = subprocess.run([sys.executable, __file__, "--part", part], stdout=subprocess.PIPE, check=True)
        yield from (Figure(**figure) for figure in json.loads(done.stdout))


def main() -> int:
    if "--part" in sys.argv:
        with tempfile.TemporaryDirectory(prefix="mlagentbench-batch-") as name:
            figures = [vars(figure) for figure in PARTS[sys.argv[-1]](Path(name))]
        print(json.dumps(figures))
        return 0
    return report(measure(), "--json" in sys.argv)


if __name__ == "__main__":
    sys.exit(main())
