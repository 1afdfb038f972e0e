"""`doctor`: which isolation, limits, GPU and runtimes this machine has."""

import os
import shutil

from mlagentbench.errors import BenchError, UsageError
from mlagentbench.records import Record
from mlagentbench.runtimes.base import Runtime, find_runtime, runtime_names
from mlagentbench.sandbox.base import POLLED_LIMITS, Sandbox, SandboxSpec
from mlagentbench.sandbox.cgroups import Cgroup, find_controller_folders
from mlagentbench.sandbox.output import CommandOutput
from mlagentbench.sandbox.selection import choose_unprivileged_uid, create_sandbox
from mlagentbench.sandbox.trial import STRONGEST_FIRST, find_remedy, try_sandbox
from mlagentbench.system.cache import cache_dir, require_writable_cache, temporary_dir
from mlagentbench.system.hardware import detect_hardware

MIN_FREE_CACHE_GB = 2
SANDBOX_TEST_TIMEOUT_S = 60
MAX_ERROR_CHARS = 300
CGROUP_REMEDY = "For exact limits, use a login session of systemd, or be root where cgroups are writable"


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
        *_check_sandboxes(),
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


def _check_sandboxes() -> list[DoctorCheck]:
    """Try the built-in sandboxes with the command that runs before every run; one of them must work."""
    outcomes = {name: _try(name) for name in STRONGEST_FIRST}
    works = any(good for good, _ in outcomes.values())
    checks = []
    for name, (good, detail) in outcomes.items():
        detail = f"{detail}; {_describe_sandbox(create_sandbox(name))}" if good else detail
        needed = not works and name == STRONGEST_FIRST[0]
        checks.append(DoctorCheck(what=f"sandbox {name}", good=good, detail=detail, needed=needed))
    return checks


def _describe_sandbox(sandbox: Sandbox) -> str:
    """Who commands run as, and what the sandbox cannot isolate."""
    is_separate = os.geteuid() == 0 and sandbox.uses_separate_user
    user = "a separate unprivileged user for each run" if is_separate else "the current user"
    limitations = "; ".join(text for text in sandbox.limitations if text != POLLED_LIMITS)
    return f"commands run as {user}" + (f" ({limitations})" if limitations else "")


def _try(name: str, runtime: Runtime | None = None) -> tuple[bool, str]:
    """Run a command in a sandbox; returns whether it worked, and its duration or the error."""
    try:
        return True, f"works ({try_sandbox(create_sandbox(name), runtime):.2f} s)"
    except UsageError as error:
        return False, f"{error} {find_remedy(str(error))}".strip()
    except (BenchError, OSError) as error:
        return False, str(error)


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
        # Good enough to run, but not as good as a cgroup.
        return DoctorCheck(
            what="limits", good=False, needed=False, detail=f"{POLLED_LIMITS}. {CGROUP_REMEDY}"
        )
    return DoctorCheck(what="limits", good=True, detail=detail)


def _describe_gpu() -> DoctorCheck:
    detail = detect_hardware().gpu or "none (not needed for the open edition)"
    return DoctorCheck(what="GPU", good=True, detail=detail)


def _check_runtimes() -> list[DoctorCheck]:
    working = [name for name in STRONGEST_FIRST if _try(name)[0]]
    return [_check_runtime(name, working[0] if working else None) for name in runtime_names()]


def _check_runtime(name: str, sandbox: str | None) -> DoctorCheck:
    runtime, what = find_runtime(name), f"runtime {name}"
    if not runtime.is_built:
        return DoctorCheck(what=what, good=True, detail="not built yet; built by the first run that needs it")
    if sandbox is None:
        return DoctorCheck(what=what, good=True, detail=f"built, but no sandbox works, {runtime.folder}")
    works, detail = _import_numpy(runtime, sandbox)
    return DoctorCheck(what=what, good=works, detail=f"{detail}, {runtime.folder}" if works else detail)


def _check_container_engines() -> list[DoctorCheck]:
    """Check installed container engines; they are optional, so that a missing one is no error."""
    checks = []
    for engine in ("podman", "docker"):
        if not shutil.which(engine):
            continue
        works, detail = _try(engine)
        detail = f"{detail}; use it with --sandbox {engine}" if works else f"cannot be used: {detail}"
        checks.append(DoctorCheck(what=engine, good=works, needed=False, detail=detail))
    return checks


def _import_numpy(runtime: Runtime, sandbox_name: str) -> tuple[bool, str]:
    """Import a package of a runtime; returns whether it worked, and its duration or the error."""
    sandbox = create_sandbox(sandbox_name)
    try:
        with temporary_dir() as folder, CommandOutput() as output:
            uid = choose_unprivileged_uid("doctor") if sandbox.uses_separate_user else None
            if uid:
                os.chown(folder, uid, uid)
            command = ["python", "-c", "import numpy; print(numpy.__version__)"]
            spec = SandboxSpec(folder, runtime, uid=uid)
            execution = sandbox.run(command, spec, SANDBOX_TEST_TIMEOUT_S, output)
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
