"""The sandbox: bubblewrap, with nothing inside but what the box names."""

import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache, lru_cache
from pathlib import Path
from shutil import which

import mlagentbench
from mlagentbench.errors import SandboxFault, UsageError
from mlagentbench.home import home
from mlagentbench.records import GB
from mlagentbench.runtimes.base import PYTHON, Runtime
from mlagentbench.sandbox import gate, gpu, seccomp
from mlagentbench.sandbox.access.listening import DRIVER, Listening
from mlagentbench.sandbox.base import Box, Process, Sandbox, attend
from mlagentbench.sandbox.cgroups import Group
from mlagentbench.sandbox.launch import launcher

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
ETC = ("alternatives", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime", "fonts", "mime.types")
FILES = {  # of /etc, that are made up
    "passwd": b"agent:x:1000:1000:agent:/home/agent:/bin/sh\nroot:x:0:0:root:/nowhere:/bin/false\n",
    "group": b"agent:x:1000:\nroot:x:0:\n",
    "hosts": b"127.0.0.1 localhost sandbox\n::1 localhost\n",
}
INSTALL = "install it with: apt-get install bubblewrap (or pass --sandbox none, which marks the result unsandboxed)"


class Bubblewrap(Sandbox):
    """Namespaces, a seccomp filter, no capabilities, no network, an unprivileged user, limits."""

    name = "bwrap"

    def __init__(self, gpu: str = "") -> None:
        super().__init__(gpu)
        found = which("bwrap")
        if not found:
            raise UsageError(f"this machine has no bubblewrap to isolate agents with; {INSTALL}")
        self._program = Path(found).resolve()

    def start(self, argv: Sequence[str], box: Box, stdin: int = subprocess.DEVNULL) -> Process:
        """Begin a command in a fresh set of namespaces; if there is a book, everything that it tries is told."""
        if os.geteuid() == 0 and not box.owner:
            raise SandboxFault("root would be root inside, too: a box needs an unprivileged owner")
        if box.book is None:
            return self._start(argv, box, stdin)
        with box.book.listening(box.owner) as listening:
            return self._start(argv, replace(box, mounts=(*box.mounts, DRIVER)), stdin, listening)

    def _start(self, argv: Sequence[str], box: Box, stdin: int, listening: Listening | None = None) -> Process:
        limits = box.limits
        group = Group(int(limits.memory_gb * GB), limits.processes)
        fds: list[int] = []
        try:
            for content in (*FILES.values(), _filter()):
                fds.append(_pipe(content))  # noqa: PERF401 - those before one that fails are to be closed, too
            data = dict(zip(FILES, fds, strict=False))
            # Its libraries may lie beside it.
            bwrap = f"{launcher().stage(self._program.parent)}/{self._program.name}"
            command = [
                *_unprivileged(box.owner),
                bwrap,
                *(["--as-pid-1"] if box.resident else []),
                *_profile(box, data, self.gpu),
                "--seccomp",
                str(fds[-1]),
                "--",
            ]
            if "pids" not in group.folders:  # counted inside, where this user has no other processes
                command += ["prlimit", f"--nproc={limits.processes}"]
            behind = gate.gated(argv, stdin)
            command += listening.wrapped(behind) if listening else behind
            greet = listening.take if listening else None
            child = gate.start(command, limits, group, {"PATH": PATH}, "/", fds, greet)
            if listening:
                listening.begin(child)
            return attend(child, box, group, stdin)
        except BaseException:
            group.close()
            raise
        finally:
            for fd in fds:
                os.close(fd)

    def release(self, box: Box) -> None:
        """The workspace may be removed now."""
        launcher().unstage(box.workspace)


def _unprivileged(owner: int | None) -> list[str]:
    """The user is dropped before bwrap, which as root would still map to root."""
    if owner is None:
        return []
    return ["setpriv", "--reuid", str(owner), "--regid", str(owner), "--clear-groups", "--no-new-privs", "--"]


def _profile(box: Box, data: dict[str, int], gpus: str) -> Iterator[str]:
    yield from ("--unshare-all", "--unshare-user", "--disable-userns", "--new-session", "--die-with-parent")
    yield from ("--cap-drop", "ALL", "--clearenv", "--uid", "1000", "--gid", "1000", "--hostname", "sandbox")
    yield from _system()
    runtime = box.runtime
    if runtime.prefix_inside == "/opt/python":
        yield from ("--ro-bind", launcher().stage(runtime.prefix), runtime.prefix_inside)
    yield from ("--ro-bind", launcher().stage(runtime.folder), runtime.INSIDE)
    for place in (*secret_places(box), *box.masked):
        yield from ("--tmpfs", place, "--remount-ro", place)
    yield from ("--proc", "/proc", "--dev", "/dev", *gpu.shown(gpus), *_in_memory(box))
    for name, fd in data.items():
        yield from ("--ro-bind-data", str(fd), f"/etc/{name}")
    for source, inside in box.mounts:
        yield from ("--ro-bind", launcher().stage(source), inside)
    workspace = launcher().stage(box.workspace)
    yield from ("--bind", workspace, "/workspace")
    # A folder above a read-only file is made a mount of its own, since only a mount cannot be renamed or removed.
    for above in sorted({str(folder) for path in box.read_only for folder in Path(path).parents} - {"."}):
        yield from ("--bind", f"{workspace}/{above}", f"/workspace/{above}")
    for path in box.read_only:
        yield from ("--ro-bind", f"{workspace}/{path}", f"/workspace/{path}")
    for place in ("/dev", "/") if gpus else ("/proc", "/dev", "/"):  # CUDA names its threads through /proc
        yield from ("--remount-ro", place)
    yield from ("--chdir", "/workspace")
    for key, value in {**runtime.environment, **gpu.environment(gpus), **box.environment}.items():
        yield from ("--setenv", key, value)


def _in_memory(box: Box) -> Iterator[str]:
    """File systems that a command has to itself."""
    for place in ("/dev/shm", "/tmp", "/home/agent", *(["/var/tmp"] if box.resident else [])):
        yield from ("--size", str(int(box.limits.memory_gb * GB / 4)), "--perms", "0700", "--tmpfs", place)


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


def secret_places(box: Box) -> tuple[str, ...]:
    """The harness, its cache, its runs and foreign packages, should they lie in a folder that is shown."""
    hidden = {Path(mlagentbench.__file__).parent, home(), box.workspace.parent, Path("/usr/src")}
    with suppress(FileNotFoundError):
        hidden.add(Path.cwd())
    return _covered(box.runtime, frozenset(hidden))


@lru_cache(maxsize=64)  # every run hides its own folder
def _covered(runtime: Runtime, hidden: frozenset[Path]) -> tuple[str, ...]:
    """Where these folders and the foreign packages would be seen inside; what lies within another is not named."""
    shown = {Path("/usr"): "/usr", runtime.prefix: runtime.prefix_inside}
    needed = (runtime.prefix / "lib" / PYTHON, Path("/usr/bin"), Path("/usr/lib"))
    places = set()
    for path in {path.resolve() for path in (*hidden, *runtime.foreign_packages) if path.is_dir()}:
        if not any(place.is_relative_to(path) for place in needed):
            places |= {f"{inside}/{path.relative_to(root)}" for root, inside in shown.items() if root in path.parents}
    return tuple(sorted(place for place in places if not any(str(above) in places for above in Path(place).parents)))


@cache
def _filter() -> bytes:
    return seccomp.program()


def _pipe(content: bytes) -> int:
    """A descriptor from which bwrap reads `content`."""
    reader, writer = os.pipe()
    try:
        os.write(writer, content)
    finally:
        os.close(writer)
    return reader
