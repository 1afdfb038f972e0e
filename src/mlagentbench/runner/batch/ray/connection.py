"""The way to a Ray cluster, and what it has room for."""

import logging
import os
import secrets
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from pydantic import Field, ValidationError

from mlagentbench.errors import UsageError
from mlagentbench.formatting import print_progress
from mlagentbench.records import BYTES_PER_GB, Record
from mlagentbench.runner.batch.orchestrator import RunnerFactory
from mlagentbench.task import describe_validation_error

# Nothing is told to Ray's makers, and CUDA_VISIBLE_DEVICES is left alone where a run has no GPU.
RAY_ENVIRONMENT = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
CONNECT_TIMEOUT_S = 5  # seconds for a node to take a connection
OBJECT_STORE_BYTES = 512 << 20  # bytes of shared memory for what is on its way


class RunResources(Record):
    """What Ray sets aside for each run; memory is that of its scripts, unless told otherwise."""

    cpus: float = Field(gt=0, default=1.0)
    gpus: float = Field(ge=0, default=0.0)
    memory_gb: float | None = Field(gt=0, default=None)

    def to_ray(self, memory_gb: float = 0.0) -> dict[str, float]:
        """By the names that Ray has for them."""
        return {
            "CPU": self.cpus,
            "GPU": self.gpus,
            "memory": int((self.memory_gb or memory_gb) * BYTES_PER_GB),
        }


@contextmanager
def connect(address: str = "") -> Iterator[None]:
    """A part of the cluster at this address, or of one of our own on this machine alone."""
    address = address or os.environ.get("RAY_ADDRESS") or "local"
    for name, value in {**RAY_ENVIRONMENT, **(_create_auth_token() if address == "local" else {})}.items():
        os.environ.setdefault(name, value)
    if address.startswith("ray://"):
        raise UsageError(
            "start the batch on a node of the cluster, and not through ray://; docs/scale.md tells how"
        )
    _check_port_open(address)
    try:
        import ray
    except ImportError as error:
        raise UsageError("--on ray needs Ray: pip install 'mlagentbench[ray]'") from error
    own: dict[str, Any] = (
        {"include_dashboard": False, "object_store_memory": OBJECT_STORE_BYTES} if address == "local" else {}
    )
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, **own)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise UsageError(
            f"no Ray cluster answers at {address}: {str(error).strip().partition(chr(10))[0]}"
        ) from error
    try:
        yield
    finally:
        ray.shutdown()


def _check_port_open(address: str) -> None:
    """Try the port of HOST:PORT: where nobody listens, Ray itself would wait for minutes."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_TIMEOUT_S).close()
    except (OSError, OverflowError) as error:
        raise UsageError(f"no Ray cluster answers at {address}: {error}") from error


def _create_auth_token() -> dict[str, str]:
    """What only we and our own cluster know; left to itself, Ray keeps one in a file that anybody may read."""
    return {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}


def list_alive_nodes() -> dict[str, dict[str, Any]]:
    """What those nodes have that Ray takes for alive."""
    import ray

    known: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
    return {node["NodeID"]: node["Resources"] for node in known if node["Alive"]}


def count_runs_that_fit(resources: dict[str, float]) -> int:
    """How many runs that need so much the cluster has room for, were it empty."""
    wanted = {name: need for name, need in resources.items() if need}
    return sum(
        min(int(node.get(name, 0) / need) for name, need in wanted.items())
        for node in list_alive_nodes().values()
    )


@contextmanager
def connect_runner(
    address: str, shared: bool, requested: dict[str, float], jobs: int | None
) -> Iterator[tuple[RunnerFactory, list[str]]]:
    """The cluster as a batch sees it: who runs jobs, and slots; Ray queues what is more than it has room for."""
    try:
        needs = RunResources.model_validate(requested)
    except ValidationError as error:
        raise UsageError(f"what is set aside per run: {describe_validation_error(error)}") from error
    with connect(address):
        from mlagentbench.runner.batch.ray.cluster import RayRunner

        slots = [""] * (jobs or max(count_runs_that_fit(needs.to_ray()), 1))
        yield partial(RayRunner, run_resources=needs, shared=shared, progress=print_progress), slots
