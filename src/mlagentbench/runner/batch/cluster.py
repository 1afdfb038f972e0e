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
from mlagentbench.preparation.download import Say
from mlagentbench.records import GB
from mlagentbench.runner.batch.cargo import Cargo, agent_of, folders, pack
from mlagentbench.runner.batch.connection import Needs, nodes, room
from mlagentbench.runner.batch.job import Job
from mlagentbench.runner.batch.local import note_death
from mlagentbench.runner.batch.node import work
from mlagentbench.runner.batch.parcels import Parcel, Sender, put
from mlagentbench.runner.folder import RunFolder
from mlagentbench.runner.setup import Setup
from mlagentbench.stopping import Stopping

IN_A_ROW = 3  # nodes that are lost under a run which does not come a step further
MANY = 100_000  # runs that wait for the bell
SILENCE = 10.0  # seconds after which it is asked whether a node is still there


class Bell:
    """Tells runs on other machines that it is time to stop."""

    def __init__(self) -> None:
        self._events: dict[str, asyncio.Event] = defaultdict(asyncio.Event)

    async def wait(self, ticket: str) -> None:
        """Until it rings."""
        try:
            await self._events[ticket].wait()
        finally:
            self._events.pop(ticket, None)

    async def ring(self, ticket: str) -> None:
        """For one of them."""
        self._events[ticket].set()


class CutOff(RayError):
    """The node of a run counts as dead, and nothing more is heard of it; its connection may stay open for long."""


class Flight:
    """One try of a job, the node that it is on, and what it sends."""

    def __init__(self, ticket: str, parcels: Any) -> None:
        self.ticket, self.parcels, self.node = ticket, parcels, ""

    def news(self) -> Iterator[Parcel]:
        """Parcel by parcel, as they come; the first is empty, and says that it has begun."""
        self.node = ray.get(next(self.parcels))
        yield ()
        while True:
            while not ray.wait([self.parcels], timeout=SILENCE)[0]:
                if self.node not in nodes():
                    raise CutOff("nothing is heard of it, and its node counts as dead")
            try:
                yield ray.get(next(self.parcels))
            except StopIteration:
                return


class Cluster:
    """Only this process writes into the batch's folder, and only what the latest try of a run sends.

    A node that is cut off and goes on by itself can do no harm: nobody listens to it. On a path that all nodes see,
    the run's lock has the same effect.
    """

    def __init__(
        self, out: Path, setups: dict[str, Setup], suspects: Iterable[str], needs: Needs, shared: bool, say: Say
    ) -> None:
        self.out, self.setups, self.suspects = out, setups, set(suspects)
        self.needs, self.shared, self.say = needs, str(out.resolve()) if shared else "", say
        self._hashes = {name: setup.hashes for name, setup in setups.items()}
        self._task = ray.remote(num_returns="streaming", max_retries=0)(work)
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        kind: Any = ray.remote(Bell)
        self._bell = kind.options(num_cpus=0, max_concurrency=MANY, scheduling_strategy=here).remote()
        self._freight: dict[str, dict[str, list[Any]]] = {}
        self._flights: dict[str, Flight] = {}
        self._stopped = False
        self._lock, self._packing = Lock(), Lock()

    def run(self, job: Job, gpu: str) -> Path:
        """Through lost nodes, as long as it comes further from one to the next."""
        place = self.out / job.name
        lost, come = 0, -1
        while not self._stopped:
            try:
                self._try(job, place)
                break
            except TaskCancelledError:
                break
            except RayTaskError as error:
                raise _reason(error) from error
            except RayError as error:
                before, come = come, _length(place / "trace.jsonl")
                lost = lost + 1 if come == before else 1
                self.suspects.add(job.name)
                if (place / "result.json").is_file():
                    break
                if lost == IN_A_ROW:
                    _give_up(place, f"its node or its process was lost {lost} times in a row: {_line(error)}")
                    break
        return place

    def stop(self) -> None:
        """Those that wait for a node are called back; the others hear the bell."""
        with self._lock:
            self._stopped = True
            flights = list(self._flights.values())
        for flight in flights:
            self._call_back(flight)

    def _call_back(self, flight: Flight) -> None:
        if flight.node:
            self._bell.ring.remote(flight.ticket)
        else:
            ray.cancel(flight.parcels)

    def _try(self, job: Job, place: Path) -> None:
        state = [] if self.shared else self._state(place)
        flight = self._send(job, state)
        try:
            self._receive(flight, place)
        except RayError:
            raise
        except BaseException:  # nothing more of it can be kept here
            ray.cancel(flight.parcels)
            raise
        finally:
            with self._lock:
                del self._flights[job.name]

    def _state(self, place: Path) -> list[Any]:
        """What there is of the run, for the node to go on with."""
        if not (place / "run.json").is_file():
            return []
        folder = RunFolder(place)
        with folder.lock():
            folder.set_aside()
            return [ray.put(parcel) for parcel in Sender(place).news()]

    def _send(self, job: Job, state: list[Any]) -> Flight:
        setup, ticket = self.setups[job.setting], secrets.token_hex(8)
        cargo = Cargo(
            ticket=ticket,
            job=job,
            hashes=self._hashes[job.setting],
            baseline=setup.baseline,
            agent=agent_of(job),
            apart=job.name in self.suspects,
            shared=self.shared,
        )
        resources = self.needs.resources(job.limits.get("memory_gb", setup.task.config.limits.memory_gb))
        placed = self._task.options(
            num_cpus=resources["CPU"], num_gpus=resources["GPU"], memory=resources["memory"], name=job.name
        )
        freight = self._packed(job, setup, resources)
        with self._lock:
            flight = Flight(ticket, placed.remote(cargo, state, freight, self._bell))
            self._flights[job.name] = flight
            if self._stopped:
                self._call_back(flight)
        return flight

    def _packed(self, job: Job, setup: Setup, resources: dict[str, float]) -> dict[str, list[Any]]:
        """What all jobs of a setting take along, packed once; if there is no room for them, that is said once, too."""
        with self._packing:
            if job.setting not in self._freight:
                if not room(resources):
                    told = f"{self.needs.cpus:g} CPUs, {self.needs.gpus:g} GPUs and {resources['memory'] / GB:g} GB"
                    self.say(f"no node has {told} for a run of {setup.task.name}; it waits until one joins")
                found = folders(job, setup)
                self._freight[job.setting] = {name: [*map(ray.put, pack(path))] for name, path in found.items()}
            return self._freight[job.setting]

    def _receive(self, flight: Flight, place: Path) -> None:
        """Put what comes where it belongs; the run's lock tells that it goes on."""
        stopping: Stopping | None = None
        with ExitStack() as holding:
            for parcel in flight.news():
                for piece in parcel:
                    put(place, piece)
                with self._lock:
                    if self._stopped or (stopping and stopping.asked):
                        self._call_back(flight)
                if not self.shared and not stopping and (place / "run.json").is_file():
                    holding.enter_context(RunFolder(place).lock())
                    stopping = Stopping(place)


def _length(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


def _reason(error: RayTaskError) -> BenchError:
    """What a node complains of, without the way that it took."""
    cause = error.cause
    if isinstance(cause, UsageError):
        return UsageError(str(cause))
    return Fault(str(cause) if isinstance(cause, Fault) else f"{type(cause).__name__}: {cause}")


def _line(error: RayError) -> str:
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"


def _give_up(place: Path, trouble: str) -> None:
    if not (place / "run.json").is_file():
        raise Fault(trouble)
    note_death(place, trouble)
