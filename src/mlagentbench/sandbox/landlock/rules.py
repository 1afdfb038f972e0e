"""What a command may read and write under Landlock, as paths with rights.

Landlock can only allow, and a rule covers everything below its path. A folder that contains something hidden
is therefore replaced by its other children; only the names in it stay visible.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

import mlagentbench
from mlagentbench.runtimes.base import Runtime
from mlagentbench.sandbox.base import SandboxSpec
from mlagentbench.sandbox.bwrap import SHARED_ETC_NAMES
from mlagentbench.sandbox.gpu import find_driver_folders, granted_devices
from mlagentbench.sandbox.landlock.kernel import DEVICE, READ, READ_DIR, READ_FILE
from mlagentbench.system.cache import cache_dir

SYSTEM_FOLDERS = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
ETC_NAMES = (*SHARED_ETC_NAMES, "nsswitch.conf", "passwd", "group", "hosts")
# Facts about the machine that libraries ask for; none is about other processes.
PROC_NAMES = ("cpuinfo", "meminfo", "stat", "loadavg", "uptime", "version", "filesystems", "sys")
# Of the command itself, but not of its children. The others show the network or namespaces of the host.
PROC_SELF_NAMES = (
    "auxv",
    "cgroup",
    "cmdline",
    "comm",
    "environ",
    "fd",
    "fdinfo",
    "io",
    "limits",
    "maps",
    "mounts",
    "oom_score",
    "oom_score_adj",
    "smaps",
    "smaps_rollup",
    "stat",
    "statm",
    "status",
)
SYS_PATHS = (
    "/sys/devices/system",
    "/sys/kernel/mm/transparent_hugepage",
    # How many cores a container has; joblib fails if these exist and cannot be read.
    "/sys/fs/cgroup/cpu.max",
    "/sys/fs/cgroup/cpu/cpu.cfs_quota_us",
    "/sys/fs/cgroup/cpu/cpu.cfs_period_us",
)
DEVICES = ("null", "zero", "full", "random", "urandom")
GPU_FOLDERS = ("/proc/driver/nvidia", "/sys/bus/pci", "/sys/devices", "/sys/module/nvidia")


def readable_rules(spec: SandboxSpec, gpu: str) -> Iterator[tuple[str, int]]:
    """What every command of a run may read: the system, its Python and its runtime."""
    hidden = _hidden_folders(spec)
    for folder in (*SYSTEM_FOLDERS, str(spec.runtime.prefix)):
        yield from allow_except(Path(folder).resolve(), hidden, READ)
    masked = {
        spec.runtime.folder / Path(path).relative_to(Runtime.FOLDER_INSIDE)
        for path in spec.masked_paths
        if path.startswith(Runtime.FOLDER_INSIDE)
    }
    yield from allow_except(spec.runtime.folder.resolve(), {path.resolve() for path in masked}, READ)
    yield from ((f"/etc/{name}", READ) for name in ETC_NAMES)
    proc = (*PROC_NAMES, *(f"self/{name}" for name in PROC_SELF_NAMES))
    yield from ((f"/proc/{name}", READ_FILE | READ_DIR) for name in proc)
    yield from ((folder, READ_FILE | READ_DIR) for folder in SYS_PATHS)
    yield from ((f"/dev/{name}", DEVICE) for name in DEVICES)
    if gpu:
        yield from ((str(path), DEVICE) for path in granted_devices(gpu))
        yield from ((folder, READ) for folder in (*find_driver_folders(), *GPU_FOLDERS))


def allow_except(folder: Path, hidden: Iterable[Path], rights: int) -> Iterator[tuple[str, int]]:
    """Allow a folder without the hidden paths in it."""
    inside = [path for path in hidden if path.is_relative_to(folder)]
    if not inside:
        yield str(folder), rights
    elif folder not in inside and folder.is_dir():
        yield str(folder), READ_DIR
        for child in folder.iterdir():
            if not child.is_symlink():  # the rule of its target counts
                yield from allow_except(child, inside, rights)


def _hidden_folders(spec: SandboxSpec) -> set[Path]:
    """The harness, its cache, its runs, and packages that are not in the runtime."""
    folders = {Path(mlagentbench.__file__).parent, cache_dir(), spec.workspace.parent, Path("/usr/src")}
    folders |= set(spec.runtime.base_package_folders)
    prefix = spec.runtime.prefix
    return {
        path
        for path in (folder.resolve() for folder in folders if folder.is_dir())
        if path != prefix and path not in prefix.parents
    }
