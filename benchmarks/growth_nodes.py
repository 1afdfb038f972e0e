"""The axis nodes of growth.py: batches on real nodes of Ray, and on simulated ones.

Real: every node is a set of processes of Ray with a loopback address of its own and slots for a few runs. The
runs wait most of their time, so that nodes that share a machine hardly compete for its cores.

Simulated: scheduler, threads, batch folder and everything else of the batch's process are real. Only Ray is
replaced: each run receives what a run on the single real node sent, at the recorded times, and the process
spends as much processor time as Ray does in it: once for the batch, and for each run. These two are
calibrated on one and two real nodes, so three real nodes test the simulation.
"""

import os
import pickle
import secrets
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from threading import Event, Lock
from typing import TYPE_CHECKING, Any

from mlagentbench.runner.batch.job import Job
from mlagentbench.runner.batch.orchestrator import BatchOutcome, RunnerFactory, run_batch
from mlagentbench.runner.batch.plan import Plan
from mlagentbench.runner.setup import Setup
from mlagentbench.system.spawn import die_with_parent

if TYPE_CHECKING:
    from mlagentbench.runner.batch.ray.folder_sync import Chunk

TOY = str(Path(__file__).parents[1] / "tests" / "toy")
SLOTS_PER_NODE, SCRIPT_S = 4, 8
RUNS_PER_NODE = 5 * SLOTS_PER_NODE
START_TIMEOUT_S, END_TIMEOUT_S = 180, 30
HEAD_IP = "127.0.0.2"  # Ray replaces 127.0.0.1 by the machine's outer address
TOKEN = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
ACTIONS = """Action: Execute Script
Action Input: {{"script_name": "train.py"}}
=====
Action: Write File
Action Input: {{"file_name": "wait.py", "content": "import time; time.sleep({seconds})"}}
=====
Action: Execute Script
Action Input: {{"script_name": "wait.py"}}
=====
Action: Final Answer
Action Input: {{"final_answer": "done"}}"""
# The seconds until each chunk of a run arrived, and the chunk.
Timeline = list[tuple[float, "Chunk"]]


def ignore(line: object) -> None:
    pass


def find_free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HEAD_IP, 0))
        return int(probe.getsockname()[1])


@contextmanager
def start_nodes(count: int) -> Iterator[str]:
    """Start nodes of Ray, one after another, because two may choose the same ports.

    Yields:
        The address of the cluster.
    """
    address = f"{HEAD_IP}:{find_free_port()}"
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp") as session, ExitStack() as stack:
        for number in range(count):
            stack.enter_context(_start_node(f"127.0.0.{number + 2}", address, Path(session)))
        yield address


@contextmanager
def _start_node(ip: str, address: str, session: Path) -> Iterator[None]:
    port = address.partition(":")[2]
    role = ["--head", f"--port={port}", "--include-dashboard=false"]
    options = [
        *(role if ip == HEAD_IP else [f"--address={address}"]),
        f"--node-ip-address={ip}",
        f"--num-cpus={SLOTS_PER_NODE}",
        "--num-gpus=0",
        "--memory=64000000000",  # not what limits the runs
        "--object-store-memory=100000000",
        "--disable-usage-stats",
        "--include-log-monitor=false",
        f"--temp-dir={session}",
        f"--dashboard-agent-listen-port={find_free_port()}",
        "--block",
    ]
    env = {**os.environ, **TOKEN, "RAY_enable_worker_prestart": "0", "RAY_raylet_start_wait_time_s": "90"}
    log = session / f"{ip}.txt"
    with log.open("w") as output:
        command = [sys.executable, "-m", "ray.scripts.scripts", "start", *options]
        node = subprocess.Popen(
            die_with_parent(command), stdout=output, stderr=output, env=env, start_new_session=True
        )
    try:
        deadline = time.monotonic() + START_TIMEOUT_S
        while "--block" not in log.read_text():  # in the last line of its output
            if node.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"Node {ip} did not start:\n{log.read_text()}")
            time.sleep(0.2)
        yield
    finally:
        node.terminate()
        with suppress(subprocess.TimeoutExpired):
            node.wait(END_TIMEOUT_S)
        with suppress(ProcessLookupError):
            os.killpg(node.pid, signal.SIGKILL)
        node.wait()


def create_plan(folder: Path, seconds: int, runs: int) -> Plan:
    script = folder / f"script-{seconds}"
    script.write_text(ACTIONS.format(seconds=seconds))
    model = f"scripted:{script}"
    return Plan.model_validate({"tasks": [TOY], "agents": ["act"], "models": [model], "repetitions": runs})


def run_plan(folder: Path, plan: Plan, factory: RunnerFactory, nodes: int, figures: dict[str, Any]) -> None:
    """Run a batch that uses every slot of the nodes, and add what it cost its own process."""
    started, started_cpu = time.perf_counter(), time.process_time()
    outcome = run_batch(folder, plan, [""] * nodes * SLOTS_PER_NODE, ignore, ignore, factory)
    seconds, cpu_s = time.perf_counter() - started, time.process_time() - started_cpu
    runs = len(outcome.results)
    check_outcome(outcome, plan)
    figures["runs_per_s"] = runs / seconds
    figures["each_cpu_ms"] = cpu_s / runs * 1000


def check_outcome(outcome: BatchOutcome, plan: Plan) -> None:
    if len(outcome.results) != plan.repetitions or not all(result.valid for result in outcome.results):
        raise SystemExit(f"{len(outcome.results)} results: {outcome.stop_reason} {outcome.errors}")


def measure_nodes(nodes: int, folder: Path, figures: dict[str, Any]) -> None:
    """A batch on real nodes. If there is one node, it also records what arrived, and when."""
    from mlagentbench.runner.batch.ray.connection import RunResources, connect

    recording = Path(figures.pop("recording"))
    os.environ.update(TOKEN)
    with start_nodes(nodes) as address, connect(address):
        from mlagentbench.runner.batch.ray.cluster import RayRunner, RemoteAttempt

        timelines: list[Timeline] = []

        class RecordingAttempt(RemoteAttempt):
            def receive_chunks(self) -> Iterator["Chunk"]:
                started, timeline = time.monotonic(), list[tuple[float, "Chunk"]]()
                for chunk in super().receive_chunks():
                    timeline.append((time.monotonic() - started, chunk))
                    yield chunk
                timelines.append(timeline)

        class RecordingRunner(RayRunner):
            def _submit(self, job: Job, state: list[Any]) -> RemoteAttempt:
                attempt = super()._submit(job, state)
                return RecordingAttempt(attempt.attempt_id, attempt.chunk_refs)

        def create_runner(out: Path, setups: dict[str, Setup], suspects: set[str]) -> RayRunner:
            return RecordingRunner(out, setups, suspects, RunResources(), False, ignore)

        warm_up = create_plan(folder, 1, nodes * SLOTS_PER_NODE)  # starts the processes of Ray's workers
        run_plan(folder / "warm-up", warm_up, create_runner, nodes, {})
        timelines.clear()
        plan = create_plan(folder, SCRIPT_S, nodes * RUNS_PER_NODE)
        run_plan(folder / "batch", plan, create_runner, nodes, figures)
        figures["run_s"] = statistics.median(timeline[-1][0] for timeline in timelines)
        figures["chunks"] = statistics.mean(map(len, timelines))
        if nodes == 1:
            recording.write_bytes(pickle.dumps(timelines))


def measure_simulated_nodes(nodes: int, folder: Path, figures: dict[str, Any]) -> None:
    """A batch whose runs are repetitions of the recorded ones."""
    from mlagentbench.runner.batch.ray.cluster import RayRunner, RemoteAttempt

    timelines: list[Timeline] = pickle.loads(Path(figures.pop("recording")).read_bytes())
    batch_cpu_s, run_cpu_s = (float(figures.pop(f"ray_{part}_cpu_s")) for part in ("batch", "run"))

    class SimulatedAttempt(RemoteAttempt):
        def __init__(self, timeline: Timeline) -> None:
            super().__init__("", None)
            self.timeline = timeline

        def receive_chunks(self) -> Iterator["Chunk"]:
            started = time.monotonic()
            for arrival_s, chunk in self.timeline:
                Event().wait(max(started + arrival_s - time.monotonic(), 0))
                spend_cpu(run_cpu_s / len(self.timeline))
                yield chunk

    class SimulatedRunner(RayRunner):
        def __init__(self, out: Path, setups: Mapping[str, Setup], suspects: set[str]) -> None:
            self.out, self.crash_suspects, self.shared_folder = out, suspects, ""
            self._attempts, self._stopped = {}, False
            self._lock = Lock()
            spend_cpu(batch_cpu_s)

        def _submit(self, job: Job, state: list[Any]) -> RemoteAttempt:
            attempt = SimulatedAttempt(timelines[job.seed % len(timelines)])
            with self._lock:
                self._attempts[job.name] = attempt
            return attempt

    plan = create_plan(folder, SCRIPT_S, nodes * RUNS_PER_NODE)
    run_plan(folder / "batch", plan, SimulatedRunner, nodes, figures)


def spend_cpu(seconds: float) -> None:
    """Use the processor, as Ray does in the real batch."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass
