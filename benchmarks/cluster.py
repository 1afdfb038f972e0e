"""Measures what warm Ray adds to a run: the same runs in threads of one process and on Ray on this machine.

    python benchmarks/cluster.py [--json]

Exits with 1 if a figure is over its limit. The runs are sequential, to show what is added to each of them.
"""

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from overhead import Figure, median_seconds, report

from mlagentbench.records import AgentSpec
from mlagentbench.runner.batch.job import Job
from mlagentbench.runner.batch.local_runner import JobRunner, LocalRunner, prepare_setups
from mlagentbench.runner.batch.ray.connection import RunResources, connect

TOY = str(Path(__file__).parents[1] / "tests" / "toy")
RUNS, WARMUP_RUNS, STEPS, CHUNKS = 25, 4, 10, 1000
MODEL = "\n=====\n".join(
    [
        'Action: Execute Script\nAction Input: {"script_name": "train.py"}',
        *['Action: Write File\nAction Input: {"file_name": "note", "content": "x"}'] * (STEPS - 2),
        'Action: Final Answer\nAction Input: {"final_answer": "done"}',
    ]
)


def ignore(line: object) -> None:
    pass


def time_runs(runner: JobRunner, jobs: list[Job]) -> list[float]:
    """Seconds of each run, without the warm-up runs."""
    seconds = []
    for job in jobs:
        started = time.perf_counter()
        run_folder = runner.run(job, "")
        seconds.append(time.perf_counter() - started)
        assert (run_folder / "result.json").is_file(), run_folder
    return seconds[WARMUP_RUNS:]


def measure_chunk_cost() -> float:
    """CPU seconds that one streamed chunk costs the receiver."""
    import ray

    def empty() -> Iterator[tuple[()]]:
        for _ in range(CHUNKS):
            yield ()

    stream: Any = ray.remote(num_returns="streaming")(empty).remote()
    ray.get(next(stream))
    before = time.process_time()
    for ref in stream:
        ray.get(ref)
    return (time.process_time() - before) / (CHUNKS - 1)


def measure() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory(prefix="mlagentbench-cluster-") as name, connect("local"):
        yield from measure_in(Path(name))


def measure_in(folder: Path) -> Iterator[Figure]:
    import ray

    from mlagentbench.runner.batch.ray.cluster import RayRunner

    (folder / "script").write_text(MODEL)
    agent_spec = AgentSpec(agent="act", model=f"scripted:{folder / 'script'}")
    jobs = [Job(task=TOY, agent_spec=agent_spec, seed=seed) for seed in range(RUNS + WARMUP_RUNS)]
    setups = prepare_setups(jobs, ignore)
    empty_task = ray.remote(lambda: None)
    task_seconds = []
    for _ in range(RUNS + WARMUP_RUNS):
        started = time.perf_counter()
        ray.get(empty_task.remote())
        task_seconds.append(time.perf_counter() - started)
    task = statistics.median(task_seconds[WARMUP_RUNS:]) * 1000
    local_seconds = time_runs(LocalRunner(folder / "local", setups), jobs)
    ray_seconds = time_runs(RayRunner(folder / "ray", setups, (), RunResources(), False, ignore), jobs)
    local_ms, ray_ms = statistics.median(local_seconds) * 1000, statistics.median(ray_seconds) * 1000
    python_ms = median_seconds(partial(subprocess.run, [sys.executable, "-c", "pass"], check=True), 20) * 1000
    title = f"a run of {STEPS} steps, graded, in a thread"
    yield Figure(title, local_ms, "ms", 3000, 2 * python_ms, "two times python -c pass: script and grader")
    yield Figure("the same on warm Ray", ray_ms, "ms", 3100, local_ms, "the run in a thread")
    yield Figure("added to a run by Ray", ray_ms - local_ms, "ms", 100, task, "an empty Ray task")
    added_worst_ms = (sorted(ray_seconds)[-2] - sorted(local_seconds)[-2]) * 1000
    worst_task = sorted(task_seconds[WARMUP_RUNS:])[-2] * 1000
    title = "the same, second slowest of each"
    yield Figure(title, added_worst_ms, "ms", 300, worst_task, "an empty Ray task")
    yield Figure("CPU time of the batch per chunk", measure_chunk_cost() * 1000, "ms", 5)


if __name__ == "__main__":
    sys.exit(report(measure(), "--json" in sys.argv))
