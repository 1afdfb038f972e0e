"""Selects the sandbox by name, and the user that commands run as."""

import os
from pathlib import Path

from blake3 import blake3

from mlagentbench.discovery import installed_plugins, load_class
from mlagentbench.errors import UsageError
from mlagentbench.sandbox.base import Sandbox

SANDBOX_NAMES = ("auto", "bwrap", "landlock", "podman", "podman:IMAGE", "docker", "docker:IMAGE", "none")
FIRST_UID, UID_COUNT = 1_900_000_000, 1_000_000  # above what distributions and container engines assign


def create_sandbox(name: str, gpu: str = "") -> Sandbox:
    """Create the sandbox called `name`.

    Args:
        name: One of `SANDBOX_NAMES`, where IMAGE is an image name or the path of a root file system, or a
            sandbox of another package. "auto" is the strongest that works on this machine, but not "none".
        gpu: GPUs that commands may use: "", "all", or comma-separated device numbers.

    Raises:
        UsageError: There is no such sandbox, or its program is not installed; the message says what to do.
    """
    if name == "auto":
        from mlagentbench.sandbox.trial import choose_sandbox_name

        name = choose_sandbox_name(gpu)
    if name == "bwrap":
        from mlagentbench.sandbox.bwrap import BubblewrapSandbox

        return BubblewrapSandbox(gpu)
    if name == "landlock":
        from mlagentbench.sandbox.landlock.sandbox import LandlockSandbox

        return LandlockSandbox(gpu)
    if name == "none":
        from mlagentbench.sandbox.none import NoSandbox

        return NoSandbox(gpu)
    engine, _, image = name.partition(":")
    if engine in ("podman", "docker"):
        from mlagentbench.sandbox.containers import ContainerSandbox

        return ContainerSandbox(engine, image, gpu)
    if name in installed_plugins("sandboxes"):
        return load_class("sandboxes", name, Sandbox)(gpu)  # type: ignore[type-abstract]
    available = (*SANDBOX_NAMES, *installed_plugins("sandboxes"))
    raise UsageError(f"No such sandbox: {name!r}. Available: {', '.join(available)}.")


def choose_unprivileged_uid(purpose: str) -> int | None:
    """The user that commands run as if the harness is root and has other users, else None.

    Each purpose (such as one run) has its own user, so that runs cannot touch each other's files.
    """
    uids = find_unprivileged_uids() if os.geteuid() == 0 else range(0)
    if not uids:
        return None
    return uids[int.from_bytes(blake3(purpose.encode()).digest(length=4)) % len(uids)]


def find_unprivileged_uids(proc_self: Path = Path("/proc/self")) -> range:
    """The users that root can give commands; none in a container whose root has no other users.

    Root in a user namespace has the users that are mapped into it, often 65,536: the upper half is used,
    without the two that mean "nobody".
    """
    uids = range(FIRST_UID, FIRST_UID + UID_COUNT)
    for name in ("uid_map", "gid_map"):
        mapped = [_parse_mapped_ids(line) for line in (proc_self / name).read_text().splitlines()]
        if uids and not any(uids[0] in ids and uids[-1] in ids for ids in mapped):
            largest = max(mapped, key=len)
            uids = range(largest.start + len(largest) // 2, largest.stop - 2)
    return uids


def _parse_mapped_ids(line: str) -> range:
    first, _, count = map(int, line.split())
    return range(first, first + count)
