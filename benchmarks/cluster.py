"""What Ray adds to a run once it is warm: the same runs in threads of one process and on Ray on this machine.

    python benchmarks/cluster.py [--json]

Exits with 1 if a figure is over its limit. Runs are made one after another, so that what is added to each is seen.
"""

import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from overhead import Figure, report

from mlagentbench.records import AgentSpec
from mlagentbench.runner.batch.job import Job
from mlagentbench.runner.batch.local_runner import JobRunner, LocalRunner, prepare_setups
from mlagentbench.runner.batch.ray.connection import RunResources, connect

TOY = str(Path(__file__).parents[1] / "tests" / "toy")
RUNS, WARM, STEPS, PARCELS = 25, 4, 10, 1000
MODEL = "\n=====\n".join(
    [
        'Action: Execute Script\nAction Input: {"script_name": "train.py"}',
        *['Action: Write File\nAction Input: {"file_name": "note", "content": "x"}'] * (STEPS - 2),
        'Action: Final Answer\nAction Input: {"final_answer": "done"}',
    ]
)


def quiet(line: object) -> None:
    pass


def taken(runner: JobRunner, jobs: list[Job]) -> list[float]:
    """Seconds of each run, the first few aside."""
    times = []
    for job in jobs:
        started = time.perf_counter()
        place = runner.run(job, "")
        times.append(time.perf_counter() - started)
        assert (place / "result.json").is_file(), place
    return times[WARM:]


def parcels() -> float:
    """Processor seconds that one parcel costs whoever hears of it."""
    import ray

    def empty() -> Iterator[tuple[()]]:
        for _ in range(PARCELS):
            yield ()

    stream: Any = ray.remote(num_returns="streaming")(empty).remote()
    ray.get(next(stream))
    before = time.process_time()
    for ref in stream:
        ray.get(ref)
    return (time.process_time() - before) / (PARCELS - 1)


def measure() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory(prefix="mlagentbench-cluster-") as name, connect("local"):
        yield from measured(Path(name))


def measured(folder: Path) -> Iterator[Figure]:
    import ray

    from mlagentbench.runner.batch.ray.cluster import RayRunner

    (folder / "script").write_text(MODEL)
    who = AgentSpec(agent="act", model=f"scripted:{folder / 'script'}")
    jobs = [Job(task=TOY, agent_spec=who, seed=seed) for seed in range(RUNS + WARM)]
    setups = prepare_setups(jobs, quiet)
    bare = ray.remote(lambda: None)
    pauses = []
    for _ in range(RUNS + WARM):
        started = time.perf_counter()
        ray.get(bare.remote())
        pauses.append(time.perf_counter() - started)
    task = statistics.median(pauses[WARM:]) * 1000
    here = taken(LocalRunner(folder / "here", setups), jobs)
    there = taken(RayRunner(folder / "there", setups, (), RunResources(), False, quiet), jobs)
    added = (statistics.median(there) - statistics.median(here)) * 1000
    yield Figure(f"a run of {STEPS} steps, graded, in a thread", statistics.median(here) * 1000, "ms", 3000)
    yield Figure("the same on warm Ray", statistics.median(there) * 1000, "ms", 3100)
    yield Figure("what Ray adds to a run", added, "ms", 100, task, "a bare Ray task")
    worst = (sorted(there)[-2] - sorted(here)[-2]) * 1000
    yield Figure("the same, second slowest of each", worst, "ms", 300)
    yield Figure("processor time of the batch for each parcel", parcels() * 1000, "ms", 5)


if __name__ == "__main__":
    sys.exit(report(measure(), "--json" in sys.argv))
