"""`doctor`: which isolation, limits, GPU and runtimes this machine has."""

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

MIN_FREE_CACHE_GB = 2
SANDBOX_TEST_TIMEOUT_S = 60
MAX_ERROR_CHARS = 300


class DoctorCheck(Record):
    """The result of one check."""

    what: str
    good: bool
    detail: str
    needed: bool = True


def run_checks() -> list[DoctorCheck]:
    """Check everything a run depends on by actually using it."""
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
    machine = detect_hardware()
    detail = f"{machine.cores} cores, {machine.cpu}, {machine.memory_gb:g} GB"
    return DoctorCheck(
        what="machine", good=True, detail=f"{detail}, {machine.system}, Python {machine.python}"
    )


def _check_isolation() -> DoctorCheck:
    if not shutil.which("bwrap"):
        detail = "bubblewrap is not installed; install it with: apt-get install bubblewrap"
        return DoctorCheck(what="isolation", good=False, detail=detail)
    version = _run_bwrap("--version").stdout.strip()
    options = ("--unshare-all", "--unshare-user", "--disable-userns", "--die-with-parent")
    test = _run_bwrap(*options, "--ro-bind", "/", "/", "true")
    if test.returncode != 0:
        detail = f"{version} cannot create namespaces on this machine: {test.stderr.strip()[:200]}"
        return DoctorCheck(what="isolation", good=False, detail=detail)
    user = "as a separate unprivileged user for each run" if os.geteuid() == 0 else "as the current user"
    return DoctorCheck(what="isolation", good=True, detail=f"{version}; commands run {user}")


def _run_bwrap(*args: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(["bwrap", *args], capture_output=True, text=True, check=False)


def _check_seccomp() -> DoctorCheck:
    from mlagentbench.sandbox import seccomp

    try:
        size = len(seccomp.build_filter()) // 8
    except BenchError as error:
        return DoctorCheck(what="system calls", good=False, detail=str(error))
    return DoctorCheck(what="system calls", good=True, detail=f"seccomp filter with {size} instructions")


def _check_limits() -> DoctorCheck:
    controllers = find_controller_folders()
    version = "2" if len(set(controllers.values())) < len(controllers) else "1"
    if {"memory", "pids"} <= set(controllers):
        Cgroup(2**30, 10).close()
        detail = f"cgroup version {version} limits memory and processes"
    else:
        detail = "no delegated cgroup: a watchdog limits memory, rlimit limits processes"
    return DoctorCheck(what="limits", good=True, detail=detail)


def _describe_gpu() -> DoctorCheck:
    detail = detect_hardware().gpu or "none (not needed for the open edition)"
    return DoctorCheck(what="GPU", good=True, detail=detail)


def _check_runtimes() -> list[DoctorCheck]:
    return [_check_runtime(name) for name in runtime_names()]


def _check_runtime(name: str) -> DoctorCheck:
    runtime, what = find_runtime(name), f"runtime {name}"
    if not runtime.is_built:
        return DoctorCheck(what=what, good=True, detail="not built yet; built by the first run that needs it")
    works, detail = _try_sandbox(runtime, "bwrap")
    return DoctorCheck(what=what, good=works, detail=f"{detail}, {runtime.folder}" if works else detail)


def _check_container_engines() -> list[DoctorCheck]:
    """Check installed container engines; they are optional, so that a missing one is no error."""
    built = [runtime for runtime in map(find_runtime, runtime_names()) if runtime.is_built]
    checks = []
    for engine in ("podman", "docker"):
        if not shutil.which(engine):
            continue
        works, detail = _try_sandbox(built[0], engine) if built else (False, "no runtime is built")
        detail = f"{detail}; use it with --sandbox {engine}" if works else f"cannot be used: {detail}"
        checks.append(DoctorCheck(what=engine, good=works, needed=False, detail=detail))
    return checks


def _try_sandbox(runtime: Runtime, isolation: str) -> tuple[bool, str]:
    """Run a command in a sandbox; returns whether it worked, and its duration or the error."""
    try:
        with temporary_dir() as folder, CommandOutput() as output:
            uid = choose_unprivileged_uid("doctor")
            if uid:
                os.chown(folder, uid, uid)
            command = ["python", "-c", "import numpy; print(numpy.__version__)"]
            spec = SandboxSpec(folder, runtime, uid=uid)
            execution = create_sandbox(isolation).run(command, spec, SANDBOX_TEST_TIMEOUT_S, output)
    except (BenchError, OSError) as error:
        return False, str(error)
    if execution.exit_code != 0:
        return False, output.text[-MAX_ERROR_CHARS:]
    return True, f"works inside the sandbox ({execution.seconds:.2f} s)"


def _check_cache() -> DoctorCheck:
    try:
        require_writable_cache()
    except BenchError as error:
        return DoctorCheck(what="cache", good=False, detail=str(error))
    free_gb = shutil.disk_usage(cache_dir()).free / 1e9
    detail = f"{cache_dir()}, {free_gb:.0f} GB free"
    return DoctorCheck(what="cache", good=free_gb > MIN_FREE_CACHE_GB, detail=detail)
