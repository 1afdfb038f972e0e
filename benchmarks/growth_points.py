"""The points of growth.py on one machine: each measures a run or a batch of one size.

Each adds the wall-clock and the processor time of a step or run, beside a lower bound that is measured in
turns with it (`floor_cpu_ms`), and for the first snapshot that of copying all files by hand (`copy_cpu_s`).
"""

import os
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from measured_process import MB
from overhead import BareRecorder, hash_and_copy, walk

from mlagentbench.environment.environment import Environment
from mlagentbench.records import AgentSpec, Call, Limits
from mlagentbench.runner.batch.orchestrator import assign_gpus_to_slots, run_batch
from mlagentbench.runner.batch.plan import Plan
from mlagentbench.runner.folder import RunFolder
from mlagentbench.runner.run import open_environment, populate_workspace
from mlagentbench.runner.setup import prepare_setup

TOY = str(Path(__file__).parents[1] / "tests" / "toy")
LIMITS = Limits(steps=100_000, files=1_000_000, disk_gb=100, history_gb=200)
TIMED_STEPS = 20  # of a point; for the axis steps, the last 100
FILE_MB = 16  # of a file of the axis bytes, at most


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


def time_operation(operation: Callable[[], object]) -> tuple[float, float]:
    """Milliseconds of wall-clock and of processor time of this process."""
    started, started_cpu = time.perf_counter(), time.process_time()
    operation()
    return (time.perf_counter() - started) * 1000, (time.process_time() - started_cpu) * 1000


def write_note(env: Environment) -> None:
    """The step that is measured: it writes a small file."""
    content = f"note {len(env.steps)}"
    env.step(Call(action="Write File", args={"file_name": "note.txt", "content": content}))
    assert not env.steps[-1].failed and not env.steps[-1].notes, env.steps[-1].observation


def time_steps(env: Environment, count: int, floor: Callable[[], object], figures: dict[str, Any]) -> None:
    """Steps, each followed by the lower bound."""
    steps, floors = [], []
    for _ in range(count):
        steps.append(time_operation(lambda: write_note(env)))
        floors.append(time_operation(floor)[1])
    figures["each_ms"], figures["each_cpu_ms"] = map(statistics.median, zip(*steps, strict=True))
    figures["floor_cpu_ms"] = statistics.median(floors)


def measure_steps(count: int, folder: Path, figures: dict[str, Any]) -> None:
    timed = min(count, 100)
    with open_run(folder) as env:
        for _ in range(count - timed):
            write_note(env)
        time_steps(env, timed, BareRecorder(folder / "bare").write, figures)
        assert len(env.steps) == count


def measure_steps_in_workspace(folder: Path, sizes: list[int], figures: dict[str, Any]) -> None:
    """Fill a workspace with files of these sizes, then take steps; the first one stores all files."""
    with open_run(folder) as env:
        root = env.context.workspace.root
        filled = root / "filled"
        for number, size in enumerate(sizes):
            path = filled / f"{number % 100:02d}" / f"{number}.bin"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(os.urandom(size))
        first_ms, first_cpu_ms = time_operation(lambda: write_note(env))
        figures["first_s"], figures["first_cpu_s"] = first_ms / 1000, first_cpu_ms / 1000
        bare = folder / "bare"
        figures["copy_cpu_s"] = time_operation(lambda: hash_and_copy(filled, bare))[1] / 1000
        write_note(env)  # reads again what was written in the same tick of the clock
        time_steps(env, TIMED_STEPS, lambda: walk(str(root)), figures)
        stored = len(env.context.store.state(len(env.steps)))
        assert stored >= len(sizes), f"{stored} files in the snapshot"


def measure_files(count: int, folder: Path, figures: dict[str, Any]) -> None:
    measure_steps_in_workspace(folder, [100] * count, figures)


def measure_bytes(megabytes: int, folder: Path, figures: dict[str, Any]) -> None:
    whole, rest = divmod(megabytes, FILE_MB)
    measure_steps_in_workspace(folder, [FILE_MB * MB] * whole + [rest * MB] * bool(rest), figures)


def measure_runs(count: int, folder: Path, figures: dict[str, Any]) -> None:
    plan = Plan.model_validate({"tasks": [TOY], "agents": ["baseline"], "repetitions": count})
    started, started_cpu = time.perf_counter(), time.process_time()
    outcome = run_batch(folder / "batch", plan, assign_gpus_to_slots(None, ""), ignore, ignore)
    figures["each_ms"] = (time.perf_counter() - started) / count * 1000
    figures["each_cpu_ms"] = (time.process_time() - started_cpu) / count * 1000  # of this process alone
    assert len(outcome.results) == count and all(result.valid for result in outcome.results)
