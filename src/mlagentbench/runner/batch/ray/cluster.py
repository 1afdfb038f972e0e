"""Runs jobs on a Ray cluster.

Each run is one Ray task. Ray queues the tasks, places them on nodes and streams back what they yield.
"""

import asyncio
import secrets
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from threading import Lock
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError, TaskCancelledError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from mlagentbench.errors import BenchError, Fault, UsageError
from mlagentbench.records import BYTES_PER_GB
from mlagentbench.runner.batch.job import Job
from mlagentbench.runner.batch.local_runner import record_process_death
from mlagentbench.runner.batch.ray.connection import RunResources, count_runs_that_fit, list_alive_nodes
from mlagentbench.runner.batch.ray.folder_sync import Chunk, FolderSender, write_part
from mlagentbench.runner.batch.ray.node import run_on_node
from mlagentbench.runner.batch.ray.payload import (
    JobPayload,
    find_folders_to_send,
    pack_folder,
    read_agent_code,
)
from mlagentbench.runner.folder import RunFolder
from mlagentbench.runner.setup import Setup
from mlagentbench.system.progress import ProgressCallback
from mlagentbench.system.stop_token import StopToken

MAX_CONSECUTIVE_NODE_LOSSES = 3  # of one run, without a new step in between
MAX_WAITING_RUNS = 100_000  # that can wait for the stop signal at the same time
NODE_CHECK_INTERVAL_S = 10.0  # of silence, before each check whether the node is alive


class StopSignal:
    """An actor on the batch's node that runs on other nodes wait for."""

    def __init__(self) -> None:
        self._events: dict[str, asyncio.Event] = defaultdict(asyncio.Event)

    async def wait(self, attempt_id: str) -> None:
        """Wait until this attempt is asked to stop."""
        try:
            await self._events[attempt_id].wait()
        finally:
            self._events.pop(attempt_id, None)

    async def send(self, attempt_id: str) -> None:
        """Ask one attempt to stop."""
        self._events[attempt_id].set()


class NodeLost(RayError):
    """Ray considers the node of a run dead. Its connection may stay open for a long time."""


class RemoteAttempt:
    """One attempt of a job on some node."""

    def __init__(self, attempt_id: str, chunk_refs: Any) -> None:
        self.attempt_id, self.chunk_refs = attempt_id, chunk_refs
        self.node_id = ""  # once the attempt has started

    def receive_chunks(self) -> Iterator[Chunk]:
        """Yield chunks as they arrive. The first one is empty and means that the attempt has started."""
        self.node_id = ray.get(next(self.chunk_refs))
        yield ()
        while True:
            while not ray.wait([self.chunk_refs], timeout=NODE_CHECK_INTERVAL_S)[0]:
                if self.node_id not in list_alive_nodes():
                    raise NodeLost("The node sends nothing and is not alive")
            try:
                yield ray.get(next(self.chunk_refs))
            except StopIteration:
                return


class RayRunner:
    """Runs jobs on a Ray cluster.

    Only this process writes into the batch folder, and only what the latest attempt of a run sends. A node
    that lost its connection and continues can do no harm, because what it sends is not received. In a shared
    folder, the lock of the run has the same effect.
    """

    def __init__(
        self,
        out: Path,
        setups: dict[str, Setup],
        crash_suspects: Iterable[str],
        run_resources: RunResources,
        shared: bool,
        progress: ProgressCallback,
    ) -> None:
        self.out, self.setups, self.crash_suspects = out, setups, set(crash_suspects)
        self.run_resources, self.progress = run_resources, progress
        self.shared_folder = str(out.resolve()) if shared else ""
        self._hashes = {key: setup.hashes for key, setup in setups.items()}
        self._remote_function = ray.remote(num_returns="streaming", max_retries=0)(run_on_node)
        this_node = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        actor_class: Any = ray.remote(StopSignal)
        self._stop_signal = actor_class.options(
            num_cpus=0, max_concurrency=MAX_WAITING_RUNS, scheduling_strategy=this_node
        ).remote()
        self._archives: dict[str, dict[str, list[Any]]] = {}  # references to blocks, by setup key and name
        self._attempts: dict[str, RemoteAttempt] = {}  # in progress, by job name
        self._stopped = False
        self._lock, self._packing_lock = Lock(), Lock()

    def run(self, job: Job, gpu: str) -> Path:
        """Run a job. After the loss of a node it continues on another one, as long as it makes progress."""
        path = self.out / job.name
        losses, trace_size = 0, -1
        while not self._stopped:
            try:
                self._run_attempt(job, path)
                break
            except TaskCancelledError:
                break
            except RayTaskError as error:
                raise _unwrap_error(error) from error
            except RayError as error:
                previous_size, trace_size = trace_size, _file_size(path / "trace.jsonl")
                losses = losses + 1 if trace_size == previous_size else 1
                self.crash_suspects.add(job.name)
                if (path / "result.json").is_file():
                    break
                if losses == MAX_CONSECUTIVE_NODE_LOSSES:
                    reason = _summarize_ray_error(error)
                    _record_node_loss(path, f"The node or process was lost {losses} times in a row: {reason}")
                    break
        return path

    def stop(self) -> None:
        """Cancel the attempts that wait for a node, and send the stop signal to the others."""
        with self._lock:
            self._stopped = True
            attempts = list(self._attempts.values())
        for attempt in attempts:
            self._stop_attempt(attempt)

    def _stop_attempt(self, attempt: RemoteAttempt) -> None:
        if attempt.node_id:
            self._stop_signal.send.remote(attempt.attempt_id)
        else:
            ray.cancel(attempt.chunk_refs)

    def _run_attempt(self, job: Job, path: Path) -> None:
        state = [] if self.shared_folder else self._read_run_state(path)
        attempt = self._submit(job, state)
        try:
            self._receive(attempt, path)
        except RayError:
            raise
        except BaseException:  # this process cannot store what the attempt sends, so it must not continue
            ray.cancel(attempt.chunk_refs)
            raise
        finally:
            with self._lock:
                del self._attempts[job.name]

    def _read_run_state(self, path: Path) -> list[Any]:
        """Put the run folder into Ray's store, so that a node can resume the run."""
        if not (path / "run.json").is_file():
            return []
        folder = RunFolder(path)
        with folder.lock():
            folder.archive_result()
            return [ray.put(chunk) for chunk in FolderSender(path).read_new_chunks()]

    def _submit(self, job: Job, state: list[Any]) -> RemoteAttempt:
        setup, attempt_id = self.setups[job.setup_key], secrets.token_hex(8)
        payload = JobPayload(
            attempt_id=attempt_id,
            job=job,
            hashes=self._hashes[job.setup_key],
            levels=setup.levels,
            agent_code=read_agent_code(job),
            in_subprocess=job.name in self.crash_suspects,
            shared_folder=self.shared_folder,
        )
        resources = self.run_resources.to_ray(job.limits.get("memory_gb", setup.task.config.limits.memory_gb))
        task = self._remote_function.options(
            num_cpus=resources["CPU"], num_gpus=resources["GPU"], memory=resources["memory"], name=job.name
        )
        archives = self._pack_archives(job, setup, resources)
        with self._lock:
            attempt = RemoteAttempt(attempt_id, task.remote(payload, state, archives, self._stop_signal))
            self._attempts[job.name] = attempt
            if self._stopped:
                self._stop_attempt(attempt)
        return attempt

    def _pack_archives(self, job: Job, setup: Setup, resources: dict[str, float]) -> dict[str, list[Any]]:
        """Pack what jobs of this setup need, once for each setup key; report if no node is large enough."""
        with self._packing_lock:
            if job.setup_key not in self._archives:
                if not count_runs_that_fit(resources):
                    cpus, gpus = self.run_resources.cpus, self.run_resources.gpus
                    memory_gb = resources["memory"] / BYTES_PER_GB
                    self.progress(
                        f"No node has {cpus:g} CPUs, {gpus:g} GPUs and {memory_gb:g} GB for a run of"
                        f" {setup.task.name}. It waits until one joins the cluster."
                    )
                folders = find_folders_to_send(job, setup)
                self._archives[job.setup_key] = {
                    name: [*map(ray.put, pack_folder(folder))] for name, folder in folders.items()
                }
            return self._archives[job.setup_key]

    def _receive(self, attempt: RemoteAttempt, path: Path) -> None:
        """Write the received chunks; the lock of the run shows that it is in progress."""
        stop_token: StopToken | None = None
        with ExitStack() as stack:
            for chunk in attempt.receive_chunks():
                for part in chunk:
                    write_part(path, part)
                with self._lock:
                    if self._stopped or (stop_token and stop_token.requested):
                        self._stop_attempt(attempt)
                if not self.shared_folder and not stop_token and (path / "run.json").is_file():
                    stack.enter_context(RunFolder(path).lock())
                    stop_token = StopToken(path)


def _file_size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


def _unwrap_error(error: RayTaskError) -> BenchError:
    """The error that the node raised, without Ray's traceback."""
    cause = error.cause
    if isinstance(cause, UsageError):
        return UsageError(str(cause))
    return Fault(str(cause) if isinstance(cause, Fault) else f"{type(cause).__name__}: {cause}")


def _summarize_ray_error(error: RayError) -> str:
    first_line = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {first_line}"


def _record_node_loss(path: Path, note: str) -> None:
    if not (path / "run.json").is_file():
        raise Fault(note)
    record_process_death(path, note)
