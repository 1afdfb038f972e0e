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
from mlagentbench.formatting import print_progress
from mlagentbench.runner.batch.job import Job
from mlagentbench.runner.batch.local_runner import LocalRunner
from mlagentbench.runner.batch.ray.folder_sync import Chunk, FolderSender, write_part
from mlagentbench.runner.batch.ray.payload import JobPayload, install_payload
from mlagentbench.sandbox.gpu import gpus_from_cuda_ordinals
from mlagentbench.system.cache import temporary_dir
from mlagentbench.system.lock import is_locked

SEND_INTERVAL_S = 2.0  # seconds between two looks at what is new
STOP_GRACE_S = 20.0  # seconds for a run to stop
LOCK_LEASE_S = 120.0  # seconds after which a file system has let go the locks of a node that is gone


def run_on_node(
    cargo: JobPayload, state: list[Any], freight: dict[str, list[Any]], bell: Any
) -> Iterator[Chunk | str]:
    """Go on with a job as far as it comes: first the name of the node, to say that it begins, and then parcels."""
    yield ray.get_runtime_context().get_node_id()
    try:
        gpu = gpus_from_cuda_ordinals(ray.get_runtime_context().get_accelerator_ids()["GPU"])
        setup = install_payload(
            cargo, {name: _open_refs(refs) for name, refs in freight.items()}, print_progress
        )
        with _run_path(cargo) as place, _job_with_agent_file(cargo) as job:
            for parcel in _open_refs(state)():
                for piece in parcel:
                    write_part(place, piece)
            local = LocalRunner(place.parent, {job.setup_key: setup})
            sender = None if cargo.shared_folder else FolderSender(place)
            yield from _run_and_stream(
                local,
                lambda: local.run_in_folder(job, place, gpu, cargo.in_subprocess),
                sender,
                cargo.attempt_id,
                bell,
            )
    except (UsageError, Fault, OSError) as error:
        kind = UsageError if isinstance(error, UsageError) else Fault
        raise kind(f"{socket.gethostname()}: {error}") from error


def _run_and_stream(
    local: LocalRunner, go_on: Callable[[], None], sender: FolderSender | None, ticket: str, bell: Any
) -> Iterator[Chunk]:
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
        sender.mark_all_sent()
    rung = bell.wait.remote(ticket)
    rung.future().add_done_callback(lambda _: local.stop())  # also when whoever would ring it is gone
    Thread(target=go, daemon=True).start()
    try:
        while not ended.wait(SEND_INTERVAL_S):
            yield from (sender.read_new_chunks() if sender else ())
            yield ()
    finally:
        local.stop()
        if not ended.wait(STOP_GRACE_S):
            os._exit(1)  # whatever does not stop must not go on under the next job of this process
        ray.cancel(rung)
    yield from (sender.read_new_chunks() if sender else ())
    if troubles:
        raise troubles[0]


def _open_refs(refs: list[Any]) -> Callable[[], Iterable[Any]]:
    """What lies in Ray's store, one after another."""
    return lambda: (ray.get(ref) for ref in refs)


@contextmanager
def _run_path(cargo: JobPayload) -> Iterator[Path]:
    """Where the run lies while it lasts; on a shared path only one at a time can hold it."""
    if not cargo.shared_folder:
        with temporary_dir() as folder:
            yield folder / cargo.job.name
        return
    out = Path(cargo.shared_folder)
    if not is_locked(out / "batch.lock"):
        raise UsageError(f"{out} is not seen here, or not its locks: go on without --shared")
    place, deadline = out / cargo.job.name, monotonic() + LOCK_LEASE_S
    while is_locked(place / "run.lock") and monotonic() < deadline:
        sleep(1)
    yield place


@contextmanager
def _job_with_agent_file(cargo: JobPayload) -> Iterator[Job]:
    """The job with its agent's file where it now lies."""
    if not cargo.agent_code:
        yield cargo.job
        return
    with temporary_dir() as folder:
        file = folder / Path(cargo.job.agent_spec.agent).name
        file.write_bytes(cargo.agent_code)
        yield cargo.job.replace(who=cargo.job.agent_spec.replace(agent=str(file)))
