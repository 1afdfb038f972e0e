"""Connects to a Ray cluster and finds out how many runs fit on it."""

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
from mlagentbench.system.extras import install_command
from mlagentbench.task import describe_validation_error

# No usage statistics, and no change of CUDA_VISIBLE_DEVICES for runs without a GPU.
RAY_ENVIRONMENT = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
CONNECT_TIMEOUT_S = 5
OBJECT_STORE_BYTES = 512 << 20  # of shared memory, for data in transit; only in a cluster that we start


class RunResources(Record):
    """The resources that Ray reserves for each run; by default, as much memory as its scripts may use."""

    cpus: float = Field(gt=0, default=1.0)
    gpus: float = Field(ge=0, default=0.0)
    memory_gb: float | None = Field(gt=0, default=None)

    def to_ray(self, memory_gb: float = 0.0) -> dict[str, float]:
        """Convert to Ray's names and units."""
        return {
            "CPU": self.cpus,
            "GPU": self.gpus,
            "memory": int((self.memory_gb or memory_gb) * BYTES_PER_GB),
        }


@contextmanager
def connect(address: str = "") -> Iterator[None]:
    """Connect to a cluster.

    Args:
        address: HOST:PORT or "auto". By default $RAY_ADDRESS, else a new cluster on this machine alone.
    """
    address = address or os.environ.get("RAY_ADDRESS") or "local"
    for name, value in {**RAY_ENVIRONMENT, **(_create_auth_token() if address == "local" else {})}.items():
        os.environ.setdefault(name, value)
    if address.startswith("ray://"):
        raise UsageError(
            "ray:// addresses are not supported. Start the batch on a node of the cluster:"
            " see docs/guides/batches.md."
        )
    _check_port_open(address)
    try:
        import ray
    except ImportError as error:
        raise UsageError(f"--on ray needs Ray. Install it: {install_command('ray')}") from error
    settings: dict[str, Any] = {}
    if address == "local":
        settings = {"include_dashboard": False, "object_store_memory": OBJECT_STORE_BYTES}
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, **settings)
    except (ConnectionError, RuntimeError, ValueError) as error:
        first_line = str(error).strip().partition("\n")[0]
        raise UsageError(f"No Ray cluster at {address}: {first_line}") from error
    try:
        yield
    finally:
        ray.shutdown()


def _check_port_open(address: str) -> None:
    """Try to connect to HOST:PORT first: if nothing listens there, Ray itself waits for minutes."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_TIMEOUT_S).close()
    except (OSError, OverflowError) as error:
        raise UsageError(f"No Ray cluster at {address}: {error}") from error


def _create_auth_token() -> dict[str, str]:
    """Create a token for our own cluster. By default, Ray stores one in a file that every user can read."""
    return {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}


def list_alive_nodes() -> dict[str, dict[str, Any]]:
    """List the resources of all nodes that Ray considers alive, by node id."""
    import ray

    nodes: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
    return {node["NodeID"]: node["Resources"] for node in nodes if node["Alive"]}


def count_runs_that_fit(resources: dict[str, float]) -> int:
    """Count how many runs with these resources fit on the cluster when it is empty."""
    needed = {name: amount for name, amount in resources.items() if amount}
    return sum(
        min(int(node.get(name, 0) / amount) for name, amount in needed.items())
        for node in list_alive_nodes().values()
    )


@contextmanager
def connect_runner(
    address: str, shared: bool, requested: dict[str, float], jobs: int | None
) -> Iterator[tuple[RunnerFactory, list[str]]]:
    """Connect to a cluster, and yield a runner factory and the slots for `run_batch`.

    Args:
        address: See `connect`.
        shared: Whether all nodes see the batch folder under the same path.
        requested: Fields of `RunResources`.
        jobs: The number of slots; by default, as many runs as fit. Ray queues runs that do not fit.
    """
    try:
        run_resources = RunResources.model_validate(requested)
    except ValidationError as error:
        raise UsageError(f"Resources per run: {describe_validation_error(error)}") from error
    with connect(address):
        from mlagentbench.runner.batch.ray.cluster import RayRunner

        slots = [""] * (jobs or max(count_runs_that_fit(run_resources.to_ray()), 1))
        yield partial(RayRunner, run_resources=run_resources, shared=shared, progress=print_progress), slots
