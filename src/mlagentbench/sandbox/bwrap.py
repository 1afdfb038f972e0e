"""The default sandbox: bubblewrap, which shows a command only what its spec names."""

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
    "fonts",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "localtime",
    "mime.types",
)
# Files in /etc that do not come from the host.
GENERATED_ETC_FILES = {
    "passwd": b"agent:x:1000:1000:agent:/home/agent:/bin/sh\nroot:x:0:0:root:/nowhere:/bin/false\n",
    "group": b"agent:x:1000:\nroot:x:0:\n",
    "hosts": b"127.0.0.1 localhost sandbox\n::1 localhost\n",
}
INSTALL_HINT = (
    "Install it with: apt-get install bubblewrap "
    "(or pass --sandbox none, which marks the result unsandboxed)."
)


class BubblewrapSandbox(Sandbox):
    """Namespaces, a seccomp filter, no capabilities, no network, an unprivileged user, limits."""

    name = "bwrap"

    def __init__(self, gpu: str = "") -> None:
        super().__init__(gpu)
        path = which("bwrap")
        if not path:
            raise UsageError(f"bubblewrap is not installed on this machine. {INSTALL_HINT}")
        self._bwrap_path = Path(path).resolve()

    def start(
        self, argv: Sequence[str], spec: SandboxSpec, stdin: int = subprocess.DEVNULL
    ) -> SandboxProcess:
        """Start a command in new namespaces; with an access log, record what it tries to open."""
        if os.geteuid() == 0 and not spec.uid:
            raise SandboxFault("The harness runs as root: a sandbox needs the uid of an unprivileged user.")
        if spec.access_log is None:
            return self._start_command(argv, spec, stdin)
        with spec.access_log.record_command(spec.uid) as recorder:
            spec = replace(spec, mounts=(*spec.mounts, PROGRAM_MOUNT))
            return self._start_command(argv, spec, stdin, recorder)

    def _start_command(
        self, argv: Sequence[str], spec: SandboxSpec, stdin: int, recorder: CommandRecorder | None = None
    ) -> SandboxProcess:
        limits = spec.limits
        cgroup = Cgroup(int(limits.memory_gb * BYTES_PER_GB), limits.processes)
        fds: list[int] = []
        try:
            for content in (*GENERATED_ETC_FILES.values(), _seccomp_filter("memory" in cgroup.folders)):
                fds.append(_open_pipe_with(content))  # noqa: PERF401 - if one fails, the others are closed
            etc_fds = dict(zip(GENERATED_ETC_FILES, fds, strict=False))
            # The whole folder is staged, because it may hold libraries that bwrap needs.
            bwrap = f"{shared_launcher().stage(self._bwrap_path.parent)}/{self._bwrap_path.name}"
            command = [
                *_setpriv_command(spec.uid),
                bwrap,
                *(["--as-pid-1"] if spec.run_as_init else []),
                *_bwrap_options(spec, etc_fds, self.gpu),
                "--seccomp",
                str(fds[-1]),
                "--",
            ]
            # RLIMIT_NPROC is set inside, where the user has no other processes. One more than allowed: so the
            # limit monitor can tell a command that exceeds the limit from one that just meets it.
            if "pids" not in cgroup.folders:
                command += ["prlimit", f"--nproc={limits.processes + 1}"]
            wrapped = handshake.wrap_command(argv, stdin)
            command += recorder.wrap_command(wrapped) if recorder else wrapped
            before_ready = recorder.hand_over_listener if recorder else None
            child = handshake.start_child(
                command, limits, cgroup, {"PATH": HOST_PATH}, "/", fds, before_ready
            )
            if recorder:
                recorder.discard_startup_accesses(child)
            return release_command(child, spec, cgroup, stdin)
        except BaseException:
            cgroup.close()
            raise
        finally:
            for fd in fds:
                os.close(fd)

    def release_workspace(self, spec: SandboxSpec) -> None:
        """Unmount the folders that commands can change, which may be removed afterwards."""
        for folder in spec.writable_folders:
            shared_launcher().unstage(folder)


def _setpriv_command(uid: int | None) -> list[str]:
    """The command that drops root before bwrap starts: bwrap as root would still map its user to root."""
    if uid is None:
        return []
    return ["setpriv", "--reuid", str(uid), "--regid", str(uid), "--clear-groups", "--no-new-privs", "--"]


def _bwrap_options(spec: SandboxSpec, etc_fds: dict[str, int], gpus: str) -> Iterator[str]:
    yield from ("--unshare-all", "--unshare-user", "--disable-userns", "--new-session", "--die-with-parent")
    yield from ("--cap-drop", "ALL", "--clearenv", "--uid", "1000", "--gid", "1000", "--hostname", "sandbox")
    yield from _system_options()
    runtime = spec.runtime
    if runtime.prefix_inside == "/opt/python":
        yield from ("--ro-bind", shared_launcher().stage(runtime.prefix), runtime.prefix_inside)
    yield from ("--ro-bind", shared_launcher().stage(runtime.folder), runtime.FOLDER_INSIDE)
    for path in (*hidden_paths(spec), *spec.masked_paths):
        yield from ("--tmpfs", path, "--remount-ro", path)
    yield from ("--proc", "/proc", "--dev", "/dev", *gpu.bwrap_gpu_options(gpus), *_tmpfs_options(spec))
    for name, fd in etc_fds.items():
        yield from ("--ro-bind-data", str(fd), f"/etc/{name}")
    for source, inside in spec.mounts:
        yield from ("--ro-bind", shared_launcher().stage(source), inside)
    workspace = shared_launcher().stage(spec.workspace)
    yield from ("--bind", workspace, "/workspace")
    for source, inside in spec.writable_mounts:
        yield from ("--bind", shared_launcher().stage(source), inside)
    # Parent folders of read-only files become mounts too: only a mount cannot be renamed or removed.
    parents = {str(parent) for path in spec.read_only_paths for parent in Path(path).parents} - {"."}
    for parent in sorted(parents):
        yield from ("--bind", f"{workspace}/{parent}", f"/workspace/{parent}")
    for path in spec.read_only_paths:
        yield from ("--ro-bind", f"{workspace}/{path}", f"/workspace/{path}")
    # With GPUs /proc stays writable: CUDA names its threads there.
    for path in ("/dev", "/") if gpus else ("/proc", "/dev", "/"):
        yield from ("--remount-ro", path)
    yield from ("--chdir", "/workspace")
    for key, value in {**runtime.environment, **gpu.gpu_environment(gpus), **spec.environment}.items():
        yield from ("--setenv", key, value)


def _tmpfs_options(spec: SandboxSpec) -> Iterator[str]:
    """In-memory file systems that are private to a command."""
    size = str(int(spec.limits.memory_gb * BYTES_PER_GB / 4))
    for path in ("/dev/shm", "/tmp", "/home/agent", *(["/var/tmp"] if spec.run_as_init else [])):
        yield from ("--size", size, "--perms", "0700", "--tmpfs", path)


@cache
def _system_options() -> tuple[str, ...]:
    """Mounts of the host's programs and libraries, and of the few files in /etc that they need."""
    options = ["--ro-bind", "/usr", "/usr"]
    for name in ("bin", "sbin", "lib", "lib32", "lib64", "libx32"):
        path = Path("/", name)
        if path.is_symlink():
            options += ["--symlink", str(path.readlink()), str(path)]
        elif path.is_dir():
            options += ["--ro-bind", str(path), str(path)]
    for name in SHARED_ETC_NAMES:
        options += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
    return tuple(options)


def hidden_paths(spec: SandboxSpec) -> tuple[str, ...]:
    """Paths inside that would show the harness, its cache, its runs or packages outside the runtime."""
    hidden = {Path(mlagentbench.__file__).parent, cache_dir(), spec.workspace.parent, Path("/usr/src")}
    with suppress(FileNotFoundError):
        hidden.add(Path.cwd())
    return _locate_hidden_paths(spec.runtime, frozenset(hidden))


@lru_cache(maxsize=64)  # every run hides its own folder
def _locate_hidden_paths(runtime: Runtime, hidden: frozenset[Path]) -> tuple[str, ...]:
    """Where these host folders, and packages outside the runtime, appear inside; only the topmost ones."""
    shown = {Path("/usr"): "/usr", runtime.prefix: runtime.prefix_inside}
    needed = (runtime.prefix / "lib" / PYTHON_NAME, Path("/usr/bin"), Path("/usr/lib"))
    paths: set[str] = set()
    for folder in {path.resolve() for path in (*hidden, *runtime.base_package_folders) if path.is_dir()}:
        if any(path.is_relative_to(folder) for path in needed):
            continue
        for root, inside in shown.items():
            if root in folder.parents:
                paths.add(f"{inside}/{folder.relative_to(root)}")
    return tuple(
        sorted(path for path in paths if not any(str(parent) in paths for parent in Path(path).parents))
    )


@cache
def _seccomp_filter(has_memory_cgroup: bool) -> bytes:
    return seccomp.build_filter(has_memory_cgroup=has_memory_cgroup)


def _open_pipe_with(content: bytes) -> int:
    """Return a descriptor from which bwrap reads `content`."""
    reader, writer = os.pipe()
    try:
        os.write(writer, content)
    finally:
        os.close(writer)
    return reader
