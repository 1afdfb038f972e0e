"""Runs jobs on a Ray cluster, one task a run: Ray queues and places them, and carries what they send back."""

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

MAX_CONSECUTIVE_NODE_LOSSES = 3  # nodes that are lost under a run which does not come a step further
MAX_WAITING_RUNS = 100_000  # runs that wait for the bell
NODE_CHECK_INTERVAL_S = 10.0  # seconds after which it is asked whether a node is still there


class StopSignal:
    """Tells runs on other machines that it is time to stop."""

    def __init__(self) -> None:
        self._events: dict[str, asyncio.Event] = defaultdict(asyncio.Event)

    async def wait(self, attempt_id: str) -> None:
        """Until it rings."""
        try:
            await self._events[attempt_id].wait()
        finally:
            self._events.pop(attempt_id, None)

    async def send(self, attempt_id: str) -> None:
        """For one of them."""
        self._events[attempt_id].set()


class NodeLost(RayError):
    """The node of a run counts as dead, and nothing more is heard of it; its connection may stay open for long."""


class RemoteAttempt:
    """One try of a job, the node that it is on, and what it sends."""

    def __init__(self, ticket: str, parcels: Any) -> None:
        self.attempt_id, self.chunk_refs, self.node_id = ticket, parcels, ""

    def receive_chunks(self) -> Iterator[Chunk]:
        """Parcel by parcel, as they come; the first is empty, and says that it has begun."""
        self.node_id = ray.get(next(self.chunk_refs))
        yield ()
        while True:
            while not ray.wait([self.chunk_refs], timeout=NODE_CHECK_INTERVAL_S)[0]:
                if self.node_id not in list_alive_nodes():
                    raise NodeLost("nothing is heard of it, and its node counts as dead")
            try:
                yield ray.get(next(self.chunk_refs))
            except StopIteration:
                return


class RayRunner:
    """Only this process writes into the batch's folder, and only what the latest try of a run sends.

    A node that is cut off and goes on by itself can do no harm: nobody listens to it. On a path that all nodes see,
    the run's lock has the same effect.
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
        self.run_resources, self.shared_folder, self.progress = (
            run_resources,
            str(out.resolve()) if shared else "",
            progress,
        )
        self._hashes = {name: setup.hashes for name, setup in setups.items()}
        self._task = ray.remote(num_returns="streaming", max_retries=0)(run_on_node)
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        kind: Any = ray.remote(StopSignal)
        self._bell = kind.options(
            num_cpus=0, max_concurrency=MAX_WAITING_RUNS, scheduling_strategy=here
        ).remote()
        self._freight: dict[str, dict[str, list[Any]]] = {}
        self._flights: dict[str, RemoteAttempt] = {}
        self._stopped = False
        self._lock, self._packing = Lock(), Lock()

    def run(self, job: Job, gpu: str) -> Path:
        """Through lost nodes, as long as it comes further from one to the next."""
        place = self.out / job.name
        lost, come = 0, -1
        while not self._stopped:
            try:
                self._run_attempt(job, place)
                break
            except TaskCancelledError:
                break
            except RayTaskError as error:
                raise _unwrap_error(error) from error
            except RayError as error:
                before, come = come, _file_size(place / "trace.jsonl")
                lost = lost + 1 if come == before else 1
                self.crash_suspects.add(job.name)
                if (place / "result.json").is_file():
                    break
                if lost == MAX_CONSECUTIVE_NODE_LOSSES:
                    _record_node_loss(
                        place,
                        f"its node or its process was lost {lost} times in a row: {_summarize_ray_error(error)}",
                    )
                    break
        return place

    def stop(self) -> None:
        """Those that wait for a node are called back; the others hear the bell."""
        with self._lock:
            self._stopped = True
            flights = list(self._flights.values())
        for flight in flights:
            self._stop_attempt(flight)

    def _stop_attempt(self, flight: RemoteAttempt) -> None:
        if flight.node_id:
            self._bell.ring.remote(flight.attempt_id)
        else:
            ray.cancel(flight.chunk_refs)

    def _run_attempt(self, job: Job, place: Path) -> None:
        state = [] if self.shared_folder else self._read_run_state(place)
        flight = self._submit(job, state)
        try:
            self._receive(flight, place)
        except RayError:
            raise
        except BaseException:  # nothing more of it can be kept here
            ray.cancel(flight.chunk_refs)
            raise
        finally:
            with self._lock:
                del self._flights[job.name]

    def _read_run_state(self, place: Path) -> list[Any]:
        """What there is of the run, for the node to go on with."""
        if not (place / "run.json").is_file():
            return []
        folder = RunFolder(place)
        with folder.lock():
            folder.archive_result()
            return [ray.put(parcel) for parcel in FolderSender(place).read_new_chunks()]

    def _submit(self, job: Job, state: list[Any]) -> RemoteAttempt:
        setup, ticket = self.setups[job.setup_key], secrets.token_hex(8)
        cargo = JobPayload(
            attempt_id=ticket,
            job=job,
            hashes=self._hashes[job.setup_key],
            baseline=setup.baseline,
            agent_code=read_agent_code(job),
            in_subprocess=job.name in self.crash_suspects,
            shared_folder=self.shared_folder,
        )
        resources = self.run_resources.to_ray(job.limits.get("memory_gb", setup.task.config.limits.memory_gb))
        placed = self._task.options(
            num_cpus=resources["CPU"], num_gpus=resources["GPU"], memory=resources["memory"], name=job.name
        )
        freight = self._pack_archives(job, setup, resources)
        with self._lock:
            flight = RemoteAttempt(ticket, placed.remote(cargo, state, freight, self._bell))
            self._flights[job.name] = flight
            if self._stopped:
                self._stop_attempt(flight)
        return flight

    def _pack_archives(self, job: Job, setup: Setup, resources: dict[str, float]) -> dict[str, list[Any]]:
        """What all jobs of a setting take along, packed once; if there is no room for them, that is said once, too."""
        with self._packing:
            if job.setup_key not in self._freight:
                if not count_runs_that_fit(resources):
                    told = f"{self.run_resources.cpus:g} CPUs, {self.run_resources.gpus:g} GPUs and {resources['memory'] / BYTES_PER_GB:g} GB"
                    self.progress(
                        f"no node has {told} for a run of {setup.task.name}; it waits until one joins"
                    )
                found = find_folders_to_send(job, setup)
                self._freight[job.setup_key] = {
                    name: [*map(ray.put, pack_folder(path))] for name, path in found.items()
                }
            return self._freight[job.setup_key]

    def _receive(self, flight: RemoteAttempt, place: Path) -> None:
        """Put what comes where it belongs; the run's lock tells that it goes on."""
        stopping: StopToken | None = None
        with ExitStack() as holding:
            for parcel in flight.receive_chunks():
                for piece in parcel:
                    write_part(place, piece)
                with self._lock:
                    if self._stopped or (stopping and stopping.requested):
                        self._stop_attempt(flight)
                if not self.shared_folder and not stopping and (place / "run.json").is_file():
                    holding.enter_context(RunFolder(place).lock())
                    stopping = StopToken(place)


def _file_size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


def _unwrap_error(error: RayTaskError) -> BenchError:
    """What a node complains of, without the way that it took."""
    cause = error.cause
    if isinstance(cause, UsageError):
        return UsageError(str(cause))
    return Fault(str(cause) if isinstance(cause, Fault) else f"{type(cause).__name__}: {cause}")


def _summarize_ray_error(error: RayError) -> str:
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"


def _record_node_loss(place: Path, trouble: str) -> None:
    if not (place / "run.json").is_file():
        raise Fault(trouble)
    record_process_death(place, trouble)
