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
from mlagentbench.records import BYTES_PER_GB
from mlagentbench.runtimes.base import PYTHON_NAME, Runtime
from mlagentbench.sandbox import gpu, handshake, seccomp
from mlagentbench.sandbox.access_log.recording import PROGRAM_MOUNT, CommandRecorder
from mlagentbench.sandbox.base import Sandbox, SandboxProcess, SandboxSpec, release_command
from mlagentbench.sandbox.cgroups import Cgroup
from mlagentbench.sandbox.launcher import shared_launcher
from mlagentbench.system.cache import cache_dir

HOST_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
SHARED_ETC_NAMES = (
    "alternatives",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "localtime",
    "fonts",
    "mime.types",
)
GENERATED_ETC_FILES = {  # of /etc, that are made up
    "passwd": b"agent:x:1000:1000:agent:/home/agent:/bin/sh\nroot:x:0:0:root:/nowhere:/bin/false\n",
    "group": b"agent:x:1000:\nroot:x:0:\n",
    "hosts": b"127.0.0.1 localhost sandbox\n::1 localhost\n",
}
INSTALL_HINT = (
    "install it with: apt-get install bubblewrap (or pass --sandbox none, which marks the result unsandboxed)"
)


class BubblewrapSandbox(Sandbox):
    """Namespaces, a seccomp filter, no capabilities, no network, an unprivileged user, limits."""

    name = "bwrap"

    def __init__(self, gpu: str = "") -> None:
        super().__init__(gpu)
        found = which("bwrap")
        if not found:
            raise UsageError(f"this machine has no bubblewrap to isolate agents with; {INSTALL_HINT}")
        self._bwrap_path = Path(found).resolve()

    def start(
        self, argv: Sequence[str], spec: SandboxSpec, stdin: int = subprocess.DEVNULL
    ) -> SandboxProcess:
        """Begin a command in a fresh set of namespaces; if there is a book, everything that it tries is told."""
        if os.geteuid() == 0 and not spec.uid:
            raise SandboxFault("root would be root inside, too: a box needs an unprivileged owner")
        if spec.access_log is None:
            return self._start_command(argv, spec, stdin)
        with spec.access_log.record_command(spec.uid) as listening:
            return self._start_command(
                argv, replace(spec, mounts=(*spec.mounts, PROGRAM_MOUNT)), stdin, listening
            )

    def _start_command(
        self, argv: Sequence[str], spec: SandboxSpec, stdin: int, recorder: CommandRecorder | None = None
    ) -> SandboxProcess:
        limits = spec.limits
        group = Cgroup(int(limits.memory_gb * BYTES_PER_GB), limits.processes)
        fds: list[int] = []
        try:
            for content in (*GENERATED_ETC_FILES.values(), _seccomp_filter()):
                fds.append(_open_pipe_with(content))  # noqa: PERF401 - those before one that fails are to be closed, too
            data = dict(zip(GENERATED_ETC_FILES, fds, strict=False))
            # Its libraries may lie beside it.
            bwrap = f"{shared_launcher().stage(self._bwrap_path.parent)}/{self._bwrap_path.name}"
            command = [
                *_setpriv_command(spec.uid),
                bwrap,
                *(["--as-pid-1"] if spec.run_as_init else []),
                *_bwrap_options(spec, data, self.gpu),
                "--seccomp",
                str(fds[-1]),
                "--",
            ]
            if "pids" not in group.folders:  # counted inside, where this user has no other processes
                command += ["prlimit", f"--nproc={limits.processes}"]
            behind = handshake.wrap_command(argv, stdin)
            command += recorder.wrap_command(behind) if recorder else behind
            greet = recorder.hand_over_listener if recorder else None
            child = handshake.start_child(command, limits, group, {"PATH": HOST_PATH}, "/", fds, greet)
            if recorder:
                recorder.discard_startup_accesses(child)
            return release_command(child, spec, group, stdin)
        except BaseException:
            group.close()
            raise
        finally:
            for fd in fds:
                os.close(fd)

    def release_workspace(self, spec: SandboxSpec) -> None:
        """The workspace may be removed now."""
        shared_launcher().unstage(spec.workspace)


def _setpriv_command(owner: int | None) -> list[str]:
    """The user is dropped before bwrap, which as root would still map to root."""
    if owner is None:
        return []
    return ["setpriv", "--reuid", str(owner), "--regid", str(owner), "--clear-groups", "--no-new-privs", "--"]


def _bwrap_options(box: SandboxSpec, data: dict[str, int], gpus: str) -> Iterator[str]:
    yield from ("--unshare-all", "--unshare-user", "--disable-userns", "--new-session", "--die-with-parent")
    yield from ("--cap-drop", "ALL", "--clearenv", "--uid", "1000", "--gid", "1000", "--hostname", "sandbox")
    yield from _system_options()
    runtime = box.runtime
    if runtime.prefix_inside == "/opt/python":
        yield from ("--ro-bind", shared_launcher().stage(runtime.prefix), runtime.prefix_inside)
    yield from ("--ro-bind", shared_launcher().stage(runtime.folder), runtime.FOLDER_INSIDE)
    for place in (*hidden_paths(box), *box.masked_paths):
        yield from ("--tmpfs", place, "--remount-ro", place)
    yield from ("--proc", "/proc", "--dev", "/dev", *gpu.bwrap_gpu_options(gpus), *_tmpfs_options(box))
    for name, fd in data.items():
        yield from ("--ro-bind-data", str(fd), f"/etc/{name}")
    for source, inside in box.mounts:
        yield from ("--ro-bind", shared_launcher().stage(source), inside)
    workspace = shared_launcher().stage(box.workspace)
    yield from ("--bind", workspace, "/workspace")
    # A folder above a read-only file is made a mount of its own, since only a mount cannot be renamed or removed.
    for above in sorted(
        {str(folder) for path in box.read_only_paths for folder in Path(path).parents} - {"."}
    ):
        yield from ("--bind", f"{workspace}/{above}", f"/workspace/{above}")
    for path in box.read_only_paths:
        yield from ("--ro-bind", f"{workspace}/{path}", f"/workspace/{path}")
    for place in ("/dev", "/") if gpus else ("/proc", "/dev", "/"):  # CUDA names its threads through /proc
        yield from ("--remount-ro", place)
    yield from ("--chdir", "/workspace")
    for key, value in {**runtime.environment, **gpu.gpu_environment(gpus), **box.environment}.items():
        yield from ("--setenv", key, value)


def _tmpfs_options(box: SandboxSpec) -> Iterator[str]:
    """File systems that a command has to itself."""
    for place in ("/dev/shm", "/tmp", "/home/agent", *(["/var/tmp"] if box.run_as_init else [])):
        yield from (
            "--size",
            str(int(box.limits.memory_gb * BYTES_PER_GB / 4)),
            "--perms",
            "0700",
            "--tmpfs",
            place,
        )


@cache
def _system_options() -> tuple[str, ...]:
    """The host's programs and libraries, and the few files of /etc that they need."""
    found = ["--ro-bind", "/usr", "/usr"]
    for name in ("bin", "sbin", "lib", "lib32", "lib64", "libx32"):
        path = Path("/", name)
        if path.is_symlink():
            found += ["--symlink", str(path.readlink()), str(path)]
        elif path.is_dir():
            found += ["--ro-bind", str(path), str(path)]
    for name in SHARED_ETC_NAMES:
        found += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
    return tuple(found)


def hidden_paths(box: SandboxSpec) -> tuple[str, ...]:
    """The harness, its cache, its runs and foreign packages, should they lie in a folder that is shown."""
    hidden = {Path(mlagentbench.__file__).parent, cache_dir(), box.workspace.parent, Path("/usr/src")}
    with suppress(FileNotFoundError):
        hidden.add(Path.cwd())
    return _locate_hidden_paths(box.runtime, frozenset(hidden))


@lru_cache(maxsize=64)  # every run hides its own folder
def _locate_hidden_paths(runtime: Runtime, hidden: frozenset[Path]) -> tuple[str, ...]:
    """Where these folders and the foreign packages would be seen inside; what lies within another is not named."""
    shown = {Path("/usr"): "/usr", runtime.prefix: runtime.prefix_inside}
    needed = (runtime.prefix / "lib" / PYTHON_NAME, Path("/usr/bin"), Path("/usr/lib"))
    places = set()
    for path in {path.resolve() for path in (*hidden, *runtime.base_package_folders) if path.is_dir()}:
        if not any(place.is_relative_to(path) for place in needed):
            places |= {
                f"{inside}/{path.relative_to(root)}" for root, inside in shown.items() if root in path.parents
            }
    return tuple(
        sorted(place for place in places if not any(str(above) in places for above in Path(place).parents))
    )


@cache
def _seccomp_filter() -> bytes:
    return seccomp.build_filter()


def _open_pipe_with(content: bytes) -> int:
    """A descriptor from which bwrap reads `content`."""
    reader, writer = os.pipe()
    try:
        os.write(writer, content)
    finally:
        os.close(writer)
    return reader
