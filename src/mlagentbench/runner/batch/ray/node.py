"""Executes one run on a node of a Ray cluster, and streams what is new in its folder back to the batch."""

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

SEND_INTERVAL_S = 2.0
STOP_GRACE_S = 20.0
LOCK_LEASE_S = 120.0  # after this time, network file systems have released the locks of a lost node


def run_on_node(
    payload: JobPayload, state: list[Any], archives: dict[str, list[Any]], stop_signal: Any
) -> Iterator[Chunk | str]:
    """Start or resume a job on this node. This is the Ray task.

    Args:
        payload: The job.
        state: References to the chunks of the run folder so far; empty for a new run.
        archives: References to the archives of the payload, by name.
        stop_signal: The StopSignal actor.

    Yields:
        First the id of this node, to report that the job has started. Then chunks of the run folder; an empty
        chunk means that nothing is new.
    """
    yield ray.get_runtime_context().get_node_id()
    try:
        gpu = gpus_from_cuda_ordinals(ray.get_runtime_context().get_accelerator_ids()["GPU"])
        archive_readers = {name: _make_ref_reader(refs) for name, refs in archives.items()}
        setup = install_payload(payload, archive_readers, print_progress)
        with _run_path(payload) as path, _job_with_agent_file(payload) as job:
            for chunk in _make_ref_reader(state)():
                for part in chunk:
                    write_part(path, part)
            runner = LocalRunner(path.parent, {job.setup_key: setup})
            sender = None if payload.shared_folder else FolderSender(path)
            yield from _run_and_stream(
                runner,
                lambda: runner.run_in_folder(job, path, gpu, payload.in_subprocess),
                sender,
                lambda: stop_signal.wait.remote(payload.attempt_id),
            )
    except (UsageError, Fault, OSError) as error:
        error_type = UsageError if isinstance(error, UsageError) else Fault
        raise error_type(f"{socket.gethostname()}: {error}") from error


def _run_and_stream(
    runner: LocalRunner,
    execute: Callable[[], None],
    sender: FolderSender | None,
    wait_for_stop: Callable[[], Any],
) -> Iterator[Chunk]:
    """Call `execute` in a thread and yield what is new until it returns or stop is requested."""
    finished, errors = Event(), list[BaseException]()

    def work() -> None:
        try:
            execute()
        except BaseException as error:  # noqa: BLE001 - raised again below, in the thread of the Ray task
            errors.append(error)
        finally:
            finished.set()

    if sender:
        sender.mark_all_sent()
    stop_requested = wait_for_stop()
    # The callback also runs if the actor is gone, which means that the batch has died.
    stop_requested.future().add_done_callback(lambda _: runner.stop())
    Thread(target=work, daemon=True).start()
    try:
        while not finished.wait(SEND_INTERVAL_S):
            yield from (sender.read_new_chunks() if sender else ())
            yield ()
    finally:
        runner.stop()
        if not finished.wait(STOP_GRACE_S):
            os._exit(1)  # a run that does not stop must not continue during the next job of this process
        ray.cancel(stop_requested)
    yield from (sender.read_new_chunks() if sender else ())
    if errors:
        raise errors[0]


def _make_ref_reader(refs: list[Any]) -> Callable[[], Iterable[Any]]:
    """A function that fetches the objects from Ray's store, one after another."""
    return lambda: (ray.get(ref) for ref in refs)


@contextmanager
def _run_path(payload: JobPayload) -> Iterator[Path]:
    """The run folder on this node: a temporary one, or the one in the shared batch folder."""
    if not payload.shared_folder:
        with temporary_dir() as folder:
            yield folder / payload.job.name
        return
    out = Path(payload.shared_folder)
    if not is_locked(out / "batch.lock"):
        raise UsageError(f"This node does not see {out} or its locks. Resume the batch without --shared.")
    path, deadline = out / payload.job.name, monotonic() + LOCK_LEASE_S
    while is_locked(path / "run.lock") and monotonic() < deadline:
        sleep(1)
    yield path


@contextmanager
def _job_with_agent_file(payload: JobPayload) -> Iterator[Job]:
    """The job, with the agent's file written to this node."""
    if not payload.agent_code:
        yield payload.job
        return
    with temporary_dir() as folder:
        agent_spec = payload.job.agent_spec
        file = folder / Path(agent_spec.agent).name
        file.write_bytes(payload.agent_code)
        yield payload.job.replace(agent_spec=agent_spec.replace(agent=str(file)))
