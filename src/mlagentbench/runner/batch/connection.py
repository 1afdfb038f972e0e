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
from mlagentbench.records import GB, Record
from mlagentbench.runner.batch.conduct import Machines
from mlagentbench.task import explain
from mlagentbench.words import say

# Nothing is told to Ray's makers, and CUDA_VISIBLE_DEVICES is left alone where a run has no GPU.
SETTINGS = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
REACH = 5  # seconds for a node to take a connection
STORE = 512 << 20  # bytes of shared memory for what is on its way


class Needs(Record):
    """What Ray sets aside for each run; memory is that of its scripts, unless told otherwise."""

    cpus: float = Field(gt=0, default=1.0)
    gpus: float = Field(ge=0, default=0.0)
    memory_gb: float | None = Field(gt=0, default=None)

    def resources(self, memory_gb: float = 0.0) -> dict[str, float]:
        """By the names that Ray has for them."""
        return {"CPU": self.cpus, "GPU": self.gpus, "memory": int((self.memory_gb or memory_gb) * GB)}


@contextmanager
def connected(address: str = "") -> Iterator[None]:
    """A part of the cluster at this address, or of one of our own on this machine alone."""
    address = address or os.environ.get("RAY_ADDRESS") or "local"
    for name, value in {**SETTINGS, **(_secret() if address == "local" else {})}.items():
        os.environ.setdefault(name, value)
    if address.startswith("ray://"):
        raise UsageError("start the batch on a node of the cluster, and not through ray://; docs/scale.md tells how")
    _reach(address)
    try:
        import ray
    except ImportError as error:
        raise UsageError("--on ray needs Ray: pip install 'mlagentbench[ray]'") from error
    own: dict[str, Any] = {"include_dashboard": False, "object_store_memory": STORE} if address == "local" else {}
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, **own)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise UsageError(f"no Ray cluster answers at {address}: {str(error).strip().partition(chr(10))[0]}") from error
    try:
        yield
    finally:
        ray.shutdown()


def _reach(address: str) -> None:
    """Try the port of HOST:PORT: where nobody listens, Ray itself would wait for minutes."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=REACH).close()
    except (OSError, OverflowError) as error:
        raise UsageError(f"no Ray cluster answers at {address}: {error}") from error


def _secret() -> dict[str, str]:
    """What only we and our own cluster know; left to itself, Ray keeps one in a file that anybody may read."""
    return {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}


def nodes() -> dict[str, dict[str, Any]]:
    """What those nodes have that Ray takes for alive."""
    import ray

    known: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
    return {node["NodeID"]: node["Resources"] for node in known if node["Alive"]}


def room(resources: dict[str, float]) -> int:
    """How many runs that need so much the cluster has room for, were it empty."""
    wanted = {name: need for name, need in resources.items() if need}
    return sum(min(int(node.get(name, 0) / need) for name, need in wanted.items()) for node in nodes().values())


@contextmanager
def machines_of(
    address: str, shared: bool, asked: dict[str, float], jobs: int | None
) -> Iterator[tuple[Machines, list[str]]]:
    """The cluster as a batch sees it: who runs jobs, and slots; Ray queues what is more than it has room for."""
    try:
        needs = Needs.model_validate(asked)
    except ValidationError as error:
        raise UsageError(f"what is set aside per run: {explain(error)}") from error
    with connected(address):
        from mlagentbench.runner.batch.cluster import Cluster

        slots = [""] * (jobs or max(room(needs.resources()), 1))
        yield partial(Cluster, needs=needs, shared=shared, say=say), slots
