"""One run on one node of a cluster: it works as on any machine, and what is new in its folder is sent back."""

import os
import socket
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from time import monotonic, sleep
from typing import Any

import ray

from mlagentbench.errors import Fault, UsageError
from mlagentbench.home import scratch
from mlagentbench.locks import held
from mlagentbench.runner.batch.cargo import Cargo, settle
from mlagentbench.runner.batch.job import Job
from mlagentbench.runner.batch.local import Local
from mlagentbench.runner.batch.parcels import Parcel, Sender, put
from mlagentbench.sandbox.gpu import numbered
from mlagentbench.words import say

LOOK = 2.0  # seconds between two looks at what is new
GRACE = 20.0  # seconds for a run to stop
LEASE = 120.0  # seconds after which a file system has let go the locks of a node that is gone


def work(cargo: Cargo, state: list[Any], freight: dict[str, list[Any]], bell: Any) -> Iterator[Parcel | str]:
    """Go on with a job as far as it comes: first the name of the node, to say that it begins, and then parcels."""
    yield ray.get_runtime_context().get_node_id()
    try:
        gpu = numbered(ray.get_runtime_context().get_accelerator_ids()["GPU"])
        setup = settle(cargo, {name: _contents(refs) for name, refs in freight.items()}, say)
        with _place(cargo) as place, _job(cargo) as job:
            for parcel in _contents(state)():
                for piece in parcel:
                    put(place, piece)
            local = Local(place.parent, {job.setting: setup})
            sender = None if cargo.shared else Sender(place)
            yield from _follow(local, lambda: local.work(job, place, gpu, cargo.apart), sender, cargo.ticket, bell)
    except (UsageError, Fault, OSError) as error:
        kind = UsageError if isinstance(error, UsageError) else Fault
        raise kind(f"{socket.gethostname()}: {error}") from error


def _follow(local: Local, go_on: Callable[[], None], sender: Sender | None, ticket: str, bell: Any) -> Iterator[Parcel]:
    """Let it run, and tell what is new, until it ends or the bell rings."""
    ended, troubles = Event(), list[BaseException]()

    def go() -> None:
        try:
            go_on()
        except BaseException as error:  # noqa: BLE001 - raised again where it is heard
            troubles.append(error)
        finally:
            ended.set()

    if sender:
        sender.acknowledge()
    rung = bell.wait.remote(ticket)
    rung.future().add_done_callback(lambda _: local.stop())  # also when whoever would ring it is gone
    Thread(target=go, daemon=True).start()
    try:
        while not ended.wait(LOOK):
            yield from (sender.news() if sender else ())
            yield ()
    finally:
        local.stop()
        if not ended.wait(GRACE):
            os._exit(1)  # whatever does not stop must not go on under the next job of this process
        ray.cancel(rung)
    yield from (sender.news() if sender else ())
    if troubles:
        raise troubles[0]


def _contents(refs: list[Any]) -> Callable[[], Iterable[Any]]:
    """What lies in Ray's store, one after another."""
    return lambda: (ray.get(ref) for ref in refs)


@contextmanager
def _place(cargo: Cargo) -> Iterator[Path]:
    """Where the run lies while it lasts; on a shared path only one at a time can hold it."""
    if not cargo.shared:
        with scratch() as folder:
            yield folder / cargo.job.name
        return
    out = Path(cargo.shared)
    if not held(out / "batch.lock"):
        raise UsageError(f"{out} is not seen here, or not its locks: go on without --shared")
    place, deadline = out / cargo.job.name, monotonic() + LEASE
    while held(place / "run.lock") and monotonic() < deadline:
        sleep(1)
    yield place


@contextmanager
def _job(cargo: Cargo) -> Iterator[Job]:
    """The job with its agent's file where it now lies."""
    if not cargo.agent:
        yield cargo.job
        return
    with scratch() as folder:
        file = folder / Path(cargo.job.who.agent).name
        file.write_bytes(cargo.agent)
        yield cargo.job.but(who=cargo.job.who.but(agent=str(file)))
