"""What isolation, limits, GPU and runtimes this machine has."""

import os
import shutil
import subprocess

from mlagentbench.errors import BenchError
from mlagentbench.hardware import hardware
from mlagentbench.home import home, require_writable, scratch
from mlagentbench.records import Record
from mlagentbench.runtimes.base import Runtime, names, runtime
from mlagentbench.sandbox.base import Box
from mlagentbench.sandbox.cgroups import Group, hierarchies
from mlagentbench.sandbox.choose import sandbox, unprivileged_user
from mlagentbench.sandbox.output import Output


class Finding(Record):
    """One thing that was looked at."""

    what: str
    good: bool
    detail: str
    needed: bool = True


def examine() -> list[Finding]:
    """Everything that a run depends on, tried for real."""
    return [_machine(), _isolation(), _filter(), _limits(), _gpu(), *_runtimes(), *_engines(), _space()]


def _machine() -> Finding:
    found = hardware()
    detail = f"{found.cores} cores, {found.cpu}, {found.memory_gb:g} GB, {found.system}, Python {found.python}"
    return Finding(what="machine", good=True, detail=detail)


def _isolation() -> Finding:
    if not shutil.which("bwrap"):
        return Finding(what="isolation", good=False, detail="bubblewrap is missing: apt-get install bubblewrap")
    version = subprocess.run(["bwrap", "--version"], capture_output=True, text=True, check=False).stdout.strip()
    tried = ["--unshare-all", "--unshare-user", "--disable-userns", "--die-with-parent", "--ro-bind", "/", "/", "true"]
    outcome = subprocess.run(["bwrap", *tried], capture_output=True, text=True, check=False)
    if outcome.returncode != 0:
        reason = f"{version} cannot make namespaces here: {outcome.stderr.strip()[:200]}"
        return Finding(what="isolation", good=False, detail=reason)
    user = "as an unprivileged user of each run's own" if os.geteuid() == 0 else "as you"
    return Finding(what="isolation", good=True, detail=f"{version}; commands run {user}")


def _filter() -> Finding:
    from mlagentbench.sandbox import seccomp

    try:
        size = len(seccomp.program()) // 8
    except BenchError as error:
        return Finding(what="system calls", good=False, detail=str(error))
    return Finding(what="system calls", good=True, detail=f"seccomp filter of {size} instructions")


def _limits() -> Finding:
    kept = hierarchies()
    version = "2" if len(set(kept.values())) < len(kept) else "1"
    if {"memory", "pids"} <= set(kept):
        Group(2**30, 10).close()
        return Finding(what="limits", good=True, detail=f"memory and processes by cgroup version {version}")
    detail = "no cgroup is delegated to us: memory by a watchdog, processes by rlimit"
    return Finding(what="limits", good=True, detail=detail)


def _gpu() -> Finding:
    return Finding(what="GPU", good=True, detail=hardware().gpu or "none (the open edition needs none)")


def _runtimes() -> list[Finding]:
    return [_runtime(name) for name in names()]


def _runtime(name: str) -> Finding:
    found, what = runtime(name), f"runtime {name}"
    if not found.built:
        return Finding(what=what, good=True, detail="not built yet; the first run that needs it builds it")
    works, detail = _tried(found, "bwrap")
    return Finding(what=what, good=works, detail=f"{detail}, {found.folder}" if works else detail)


def _engines() -> list[Finding]:
    """Container engines, if there are any; nobody needs one, so that none is wrong."""
    built = [found for found in map(runtime, names()) if found.built]
    found = []
    for engine in ("podman", "docker"):
        if shutil.which(engine):
            works, detail = _tried(built[0], engine) if built else (False, "no runtime is built to try it with")
            detail = f"{detail}; for --sandbox {engine}" if works else f"cannot be used: {detail}"
            found.append(Finding(what=engine, good=works, needed=False, detail=detail))
    return found


def _tried(with_: Runtime, isolation: str) -> tuple[bool, str]:
    """Whether a command works in a sandbox, and how quickly, or why not."""
    try:
        with scratch() as folder, Output() as output:
            owner = unprivileged_user("doctor")
            if owner:
                os.chown(folder, owner, owner)
            command = ["python", "-c", "import numpy; print(numpy.__version__)"]
            done = sandbox(isolation).run(command, Box(folder, with_, owner=owner), 60, output)
    except (BenchError, OSError) as error:
        return False, str(error)
    works = done.exit_code == 0
    return works, f"works inside the sandbox ({done.seconds:.2f} s)" if works else output.text[-300:]


def _space() -> Finding:
    try:
        require_writable()
    except BenchError as error:
        return Finding(what="cache", good=False, detail=str(error))
    free = shutil.disk_usage(home()).free / 1e9
    return Finding(what="cache", good=free > 2, detail=f"{home()}, {free:.0f} GB free")
