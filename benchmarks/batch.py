"""What many runs at once cost the harness, and what runs cost that only wait or are done.

    python benchmarks/batch.py [--json]

Exits with 1 if a figure is over its limit. Every part is a process of its own, because its memory is asked for.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from overhead import Figure, report

from mlagentbench.runner.batch.batch_status import BatchFollower
from mlagentbench.runner.batch.folder import BatchFolder, BatchRecord
from mlagentbench.runner.batch.job import Job
from mlagentbench.runner.batch.orchestrator import assign_gpus_to_slots, run_batch
from mlagentbench.runner.batch.plan import Plan
from mlagentbench.runner.batch.scheduler import Scheduler
from mlagentbench.runner.folder import RunFolder

TOY = str(Path(__file__).parents[1] / "tests" / "toy")
RUNS, STEPS, QUEUED = 100, 50, 1000
LEAST = 300  # steps a second


def quiet(line: object) -> None:
    pass


def memory(what: str) -> float:
    """MB of this process: VmRSS now, VmHWM at most."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(what)) / 1024


def crowd(folder: Path) -> Iterator[Figure]:
    """Many runs at once, each with a model that answers at once and wants to write a file."""
    write = 'Action: Write File\nAction Input: {{"file_name": "note.txt", "content": "note {}"}}'
    said = [write.format(number) for number in range(STEPS)]
    answer = "id,value\\n" + "".join(f"{number},1\\n" for number in range(10))
    said[0] = (
        said[0].replace("note.txt", "submission.csv").replace("note 0", answer)
    )  # so that there is a grade
    (folder / "script").write_text("\n=====\n".join(said))
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
    ended = run_batch(folder / "crowd", plan, assign_gpus_to_slots(RUNS, ""), quiet, quiet)
    assert (
        all(result.steps == STEPS and result.valid for result in ended.results) and len(ended.results) == RUNS
    )
    places = [Path(result.folder) for result in ended.results]
    began = min((place / "run.json").stat().st_mtime for place in places)
    last = max((place / "trace.jsonl").stat().st_mtime for place in places)
    rate = RUNS * STEPS / (last - began)
    what = f"{RUNS} runs at once of {STEPS} steps: {rate:.0f} steps/s, one in"
    yield Figure(what, 1000 / rate, "ms", 1000 / LEAST)
    yield Figure("memory of the harness meanwhile", memory("VmHWM"), "MB", 400)
    whole = max((place / "result.json").stat().st_mtime for place in places) - began
    yield Figure("the same with grading, for each run", whole / RUNS * 1000, "ms", 3000)


class Pretending:
    """A runner that takes no time: it puts a result where one belongs."""

    def __init__(self, out: Path, spec: str, result: str) -> None:
        self.out, self.spec, self.result = out, spec, result

    def run(self, job: Job, gpu: str) -> Path:
        place = self.out / job.name
        place.mkdir()
        (place / "run.json").write_text(self.spec)
        (place / "result.json").write_text(self.result)
        return place

    def stop(self) -> None:
        pass


def queue(folder: Path) -> Iterator[Figure]:
    """What a job costs besides its run: planned, queued, handed out, its result read and counted."""
    plan = Plan.model_validate({"tasks": [TOY], "agents": ["nothing"]})
    done = run_batch(folder / "one", plan, [""], quiet, quiet).results[0]
    spec = RunFolder(Path(done.folder)).spec.model_dump_json()
    before, started = memory("VmRSS"), time.perf_counter()
    plan = plan.replace(repetitions=QUEUED)
    jobs = plan.expand_jobs()
    out = folder / "many"
    out.mkdir()
    BatchFolder(out).write_record(BatchRecord(plan=plan, jobs=tuple(jobs)))
    batch = Scheduler(
        BatchFollower(out),
        plan,
        Pretending(out, spec, done.model_dump_json(exclude={"folder"})),
        ["", ""],
        quiet,
        quiet,
    )
    for job in jobs:
        batch.add(job)
    batch.run()
    assert batch.status.totals.done == QUEUED
    took = (time.perf_counter() - started) / QUEUED
    grown = (memory("VmHWM") - before) / QUEUED
    yield Figure(f"a job among {QUEUED:,}, besides its run", took * 1000, "ms", 50)
    yield Figure("memory for each of them", grown * 1024, "kB", 50)
    yield from finished(out)


def finished(out: Path) -> Iterator[Figure]:
    """A whole process that finds that there is nothing to do."""
    command = [sys.executable, "-m", "mlagentbench", "batch", "--out", str(out)]
    bare = timed([sys.executable, "-m", "mlagentbench", "--help"])
    (out / "index.sqlite").unlink(missing_ok=True)
    yield Figure(f"{QUEUED:,} finished runs found finished, no index", timed(command), "s", 2, bare, "--help")
    yield Figure(f"{QUEUED:,} finished runs found finished", timed(command), "s", 2, bare, "--help")


def timed(command: list[str]) -> float:
    started = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    return time.perf_counter() - started


def start(folder: Path) -> Iterator[Figure]:
    """From the command to its first run."""
    bare = timed([sys.executable, "-m", "mlagentbench", "--help"])
    taken = []
    for number in range(5):
        out = folder / f"start-{number}"
        began = time.time()
        words = ["--task", TOY, "--agent", "nothing", "--repetitions", "2", "--out", str(out)]
        subprocess.run(
            [sys.executable, "-m", "mlagentbench", "batch", *words], check=True, capture_output=True
        )
        taken.append(min(path.stat().st_mtime for path in out.glob("*/run.json")) - began)
    yield Figure("start of a batch, up to its first run", sorted(taken)[2], "s", 1, bare, "--help")


PARTS = {"crowd": crowd, "queue": queue, "start": start}


def measure() -> Iterator[Figure]:
    for part in PARTS:
        done = subprocess.run([sys.executable, __file__, "--part", part], stdout=subprocess.PIPE, check=True)
        yield from (Figure(**each) for each in json.loads(done.stdout))


def main() -> int:
    if "--part" in sys.argv:
        with tempfile.TemporaryDirectory(prefix="mlagentbench-batch-") as name:
            found = [vars(figure) for figure in PARTS[sys.argv[-1]](Path(name))]
        print(json.dumps(found))
        return 0
    return report(measure(), "--json" in sys.argv)


if __name__ == "__main__":
    sys.exit(main())
