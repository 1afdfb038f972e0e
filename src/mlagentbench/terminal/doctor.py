"""What isolation, limits, GPU and runtimes this machine has."""

import os
import shutil
import subprocess

from mlagentbench.errors import BenchError
from mlagentbench.records import Record
from mlagentbench.runtimes.base import Runtime, find_runtime, runtime_names
from mlagentbench.sandbox.base import SandboxSpec
from mlagentbench.sandbox.cgroups import Cgroup, find_controller_folders
from mlagentbench.sandbox.output import CommandOutput
from mlagentbench.sandbox.selection import choose_unprivileged_uid, create_sandbox
from mlagentbench.system.cache import cache_dir, require_writable_cache, temporary_dir
from mlagentbench.system.hardware import detect_hardware


class DoctorCheck(Record):
    """One thing that was looked at."""

    what: str
    good: bool
    detail: str
    needed: bool = True


def run_checks() -> list[DoctorCheck]:
    """Everything that a run depends on, tried for real."""
    return [
        _describe_hardware(),
        _check_isolation(),
        _check_seccomp(),
        _check_limits(),
        _describe_gpu(),
        *_check_runtimes(),
        *_check_container_engines(),
        _check_cache(),
    ]


def _describe_hardware() -> DoctorCheck:
    found = detect_hardware()
    detail = (
        f"{found.cores} cores, {found.cpu}, {found.memory_gb:g} GB, {found.system}, Python {found.python}"
    )
    return DoctorCheck(what="machine", good=True, detail=detail)


def _check_isolation() -> DoctorCheck:
    if not shutil.which("bwrap"):
        return DoctorCheck(
            what="isolation", good=False, detail="bubblewrap is missing: apt-get install bubblewrap"
        )
    version = subprocess.run(
        ["bwrap", "--version"], capture_output=True, text=True, check=False
    ).stdout.strip()
    tried = [
        "--unshare-all",
        "--unshare-user",
        "--disable-userns",
        "--die-with-parent",
        "--ro-bind",
        "/",
        "/",
        "true",
    ]
    outcome = subprocess.run(["bwrap", *tried], capture_output=True, text=True, check=False)
    if outcome.returncode != 0:
        reason = f"{version} cannot make namespaces here: {outcome.stderr.strip()[:200]}"
        return DoctorCheck(what="isolation", good=False, detail=reason)
    user = "as an unprivileged user of each run's own" if os.geteuid() == 0 else "as you"
    return DoctorCheck(what="isolation", good=True, detail=f"{version}; commands run {user}")


def _check_seccomp() -> DoctorCheck:
    from mlagentbench.sandbox import seccomp

    try:
        size = len(seccomp.build_filter()) // 8
    except BenchError as error:
        return DoctorCheck(what="system calls", good=False, detail=str(error))
    return DoctorCheck(what="system calls", good=True, detail=f"seccomp filter of {size} instructions")


def _check_limits() -> DoctorCheck:
    kept = find_controller_folders()
    version = "2" if len(set(kept.values())) < len(kept) else "1"
    if {"memory", "pids"} <= set(kept):
        Cgroup(2**30, 10).close()
        return DoctorCheck(
            what="limits", good=True, detail=f"memory and processes by cgroup version {version}"
        )
    detail = "no cgroup is delegated to us: memory by a watchdog, processes by rlimit"
    return DoctorCheck(what="limits", good=True, detail=detail)


def _describe_gpu() -> DoctorCheck:
    return DoctorCheck(
        what="GPU", good=True, detail=detect_hardware().gpu or "none (the open edition needs none)"
    )


def _check_runtimes() -> list[DoctorCheck]:
    return [_check_runtime(name) for name in runtime_names()]


def _check_runtime(name: str) -> DoctorCheck:
    found, what = find_runtime(name), f"runtime {name}"
    if not found.is_built:
        return DoctorCheck(
            what=what, good=True, detail="not built yet; the first run that needs it builds it"
        )
    works, detail = _try_sandbox(found, "bwrap")
    return DoctorCheck(what=what, good=works, detail=f"{detail}, {found.folder}" if works else detail)


def _check_container_engines() -> list[DoctorCheck]:
    """Container engines, if there are any; nobody needs one, so that none is wrong."""
    built = [found for found in map(find_runtime, runtime_names()) if found.is_built]
    found = []
    for engine in ("podman", "docker"):
        if shutil.which(engine):
            works, detail = (
                _try_sandbox(built[0], engine) if built else (False, "no runtime is built to try it with")
            )
            detail = f"{detail}; for --sandbox {engine}" if works else f"cannot be used: {detail}"
            found.append(DoctorCheck(what=engine, good=works, needed=False, detail=detail))
    return found


def _try_sandbox(with_: Runtime, isolation: str) -> tuple[bool, str]:
    """Whether a command works in a sandbox, and how quickly, or why not."""
    try:
        with temporary_dir() as folder, CommandOutput() as output:
            owner = choose_unprivileged_uid("doctor")
            if owner:
                os.chown(folder, owner, owner)
            command = ["python", "-c", "import numpy; print(numpy.__version__)"]
            done = create_sandbox(isolation).run(command, SandboxSpec(folder, with_, uid=owner), 60, output)
    except (BenchError, OSError) as error:
        return False, str(error)
    works = done.exit_code == 0
    return works, f"works inside the sandbox ({done.seconds:.2f} s)" if works else output.text[-300:]


def _check_cache() -> DoctorCheck:
    try:
        require_writable_cache()
    except BenchError as error:
        return DoctorCheck(what="cache", good=False, detail=str(error))
    free = shutil.disk_usage(cache_dir()).free / 1e9
    return DoctorCheck(what="cache", good=free > 2, detail=f"{cache_dir()}, {free:.0f} GB free")
