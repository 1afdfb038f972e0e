"""Which sandbox, and as which user."""

import os

from blake3 import blake3

from mlagentbench.errors import UsageError
from mlagentbench.sandbox.base import Sandbox

SANDBOX_NAMES = ("bwrap", "podman", "podman:IMAGE", "docker", "docker:IMAGE", "none")
FIRST_UID, UID_COUNT = 1_900_000_000, 1_000_000  # above what distributions and containers hand out


def create_sandbox(name: str, gpu: str = "") -> Sandbox:
    """The sandbox called `name`, with these GPUs; a machine that lacks it gets a sentence that says what to install."""
    if name == "bwrap":
        from mlagentbench.sandbox.bwrap import BubblewrapSandbox

        return BubblewrapSandbox(gpu)
    if name == "none":
        from mlagentbench.sandbox.none import NoSandbox

        return NoSandbox(gpu)
    engine, _, image = name.partition(":")
    if engine in ("podman", "docker"):
        from mlagentbench.sandbox.containers import ContainerSandbox

        return ContainerSandbox(engine, image, gpu)
    raise UsageError(f"no sandbox {name!r}; there are: {', '.join(SANDBOX_NAMES)}")


def choose_unprivileged_uid(purpose: str) -> int | None:
    """The user that commands run as when we are root: one for each run, so that runs cannot touch each other."""
    if os.geteuid() != 0:
        return None
    return FIRST_UID + int.from_bytes(blake3(purpose.encode()).digest(length=4)) % UID_COUNT
