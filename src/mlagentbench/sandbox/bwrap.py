"""The sandbox: bubblewrap, with nothing inside but what the box names."""

import os
import subprocess
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from shutil import which

import mlagentbench
from mlagentbench.errors import UsageError
from mlagentbench.home import home
from mlagentbench.runtimes.base import Runtime
from mlagentbench.sandbox import seccomp
from mlagentbench.sandbox.base import Box, Process, Sandbox
from mlagentbench.sandbox.cgroups import Group
from mlagentbench.sandbox.launch import launcher
from mlagentbench.sandbox.watch import GB, Watch

# Joins the control groups named before "--" and bounds files and core dumps, then becomes the command.
ENTER = 'ulimit -c 0; ulimit -f "$1"; shift; while [ "$1" != -- ]; do echo $$ >"$1"; shift; done; shift; exec "$@"'
ETC = ("alternatives", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime", "fonts", "mime.types")
PASSWD = b"agent:x:1000:1000:agent:/home/agent:/bin/sh\nroot:x:0:0:root:/nowhere:/bin/false\n"
GROUP = b"agent:x:1000:\nroot:x:0:\n"
HOSTS = b"127.0.0.1 localhost sandbox\n::1 localhost\n"
INSTALL = "install it with: apt-get install bubblewrap (or pass --sandbox none, which marks the result unsandboxed)"


class Bubblewrap(Sandbox):
    """Namespaces, a seccomp filter, no capabilities, no network, an unprivileged user, limits."""

    name = "bwrap"

    def __init__(self) -> None:
        if not which("bwrap"):
            raise UsageError(f"this machine has no bubblewrap to isolate agents with; {INSTALL}")

    def start(self, argv: Sequence[str], box: Box, stdin: int = subprocess.DEVNULL) -> Process:
        """Begin a command in a fresh set of namespaces."""
        limits = box.limits
        group = Group(int(limits.memory_gb * GB), limits.processes)
        try:
            data = {"passwd": _pipe(PASSWD), "group": _pipe(GROUP), "hosts": _pipe(HOSTS)}
            filter_fd = _pipe(seccomp.program())
            command = ["sh", "-c", ENTER, "sh", str(int(limits.disk_gb * GB) // 512), *group.entries, "--"]
            command += _unprivileged(box.owner)
            command += ["bwrap", *_profile(box, data), "--seccomp", str(filter_fd), "--"]
            if "pids" not in group.folders:  # counted inside, where this user has no other processes
                command += ["prlimit", f"--nproc={limits.processes}"]
            fds = [*data.values(), filter_fd]
            try:
                child = launcher().start(
                    [*command, *argv],
                    stdin=stdin,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    pass_fds=fds,
                    env={"PATH": "/usr/local/bin:/usr/bin:/bin"},
                    cwd="/",
                    bufsize=0,
                )
            finally:
                for fd in fds:
                    os.close(fd)
            watch = Watch(box.workspace, limits, group, child.pid, isolated=True)
        except BaseException:
            group.close()
            raise
        return Process(child, watch)

    def release(self, box: Box) -> None:
        """The workspace may be removed now."""
        launcher().unstage(box.workspace)


def _unprivileged(owner: int | None) -> list[str]:
    """The death signal is set at once; the user is dropped before bwrap, which as root would still map to root."""
    command = ["setpriv", "--pdeathsig", "KILL"]
    if owner is not None:
        command += ["--reuid", str(owner), "--regid", str(owner), "--clear-groups"]
    return [*command, "--no-new-privs", "--"]


def _profile(box: Box, data: dict[str, int]) -> Iterator[str]:
    yield from ("--unshare-all", "--unshare-user", "--disable-userns", "--new-session", "--die-with-parent")
    yield from ("--cap-drop", "ALL", "--clearenv", "--uid", "1000", "--gid", "1000", "--hostname", "sandbox")
    yield from _system()
    runtime = box.runtime
    if runtime.prefix_inside == "/opt/python":
        yield from ("--ro-bind", launcher().stage(runtime.prefix), runtime.prefix_inside)
    yield from ("--ro-bind", launcher().stage(runtime.folder), runtime.INSIDE)
    for place in (*_secrets(runtime), *box.masked):
        yield from ("--tmpfs", place, "--remount-ro", place)
    shared = str(int(box.limits.memory_gb * GB / 4))
    yield from ("--proc", "/proc", "--dev", "/dev")
    for place in ("/dev/shm", "/tmp", "/home/agent"):
        yield from ("--size", shared, "--perms", "0700", "--tmpfs", place)
    for name, fd in data.items():
        yield from ("--ro-bind-data", str(fd), f"/etc/{name}")
    for source, inside in box.mounts:
        yield from ("--ro-bind", launcher().stage(source), inside)
    workspace = launcher().stage(box.workspace)
    yield from ("--bind", workspace, "/workspace")
    for path in box.read_only:
        yield from ("--ro-bind", f"{workspace}/{path}", f"/workspace/{path}")
    yield from ("--remount-ro", "/proc", "--remount-ro", "/dev", "--remount-ro", "/")
    yield from ("--chdir", "/workspace")
    for key, value in {**runtime.environment, **box.environment}.items():
        yield from ("--setenv", key, value)


@cache
def _system() -> tuple[str, ...]:
    """The host's programs and libraries, and the few files of /etc that they need."""
    found = ["--ro-bind", "/usr", "/usr"]
    for name in ("bin", "sbin", "lib", "lib32", "lib64", "libx32"):
        path = Path("/", name)
        if path.is_symlink():
            found += ["--symlink", str(path.readlink()), str(path)]
        elif path.is_dir():
            found += ["--ro-bind", str(path), str(path)]
    for name in ETC:
        found += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
    return tuple(found)


def _secrets(runtime: Runtime) -> Iterator[str]:
    """The harness, its cache and the Python's own packages, should they lie in a folder that is shown."""
    shown = {Path("/usr"): "/usr", runtime.prefix: runtime.prefix_inside}
    hidden = {Path(mlagentbench.__file__).parent, home(), Path.cwd(), *runtime.foreign_packages}
    for path in sorted(hidden):
        for root, inside in shown.items():
            if path != root and path.is_relative_to(root) and path.is_dir():
                yield f"{inside}/{path.relative_to(root)}"


def _pipe(content: bytes) -> int:
    """A descriptor from which bwrap reads `content`."""
    reader, writer = os.pipe()
    try:
        os.write(writer, content)
    finally:
        os.close(writer)
    return reader
