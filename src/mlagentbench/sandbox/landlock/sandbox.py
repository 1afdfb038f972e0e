"""A sandbox for machines that forbid user namespaces: Landlock, seccomp and a supervisor."""

import json
import os
import platform
import resource
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import mlagentbench
from mlagentbench.errors import SandboxFault, UsageError
from mlagentbench.records import BYTES_PER_GB
from mlagentbench.runtimes.base import PYTHON_NAME
from mlagentbench.sandbox import gpu, handshake, seccomp
from mlagentbench.sandbox.base import Sandbox, SandboxProcess, SandboxSpec, release_command
from mlagentbench.sandbox.cgroups import Cgroup
from mlagentbench.sandbox.landlock import filters
from mlagentbench.sandbox.landlock.folders import PrivateFolders, ReadOnlyFiles
from mlagentbench.sandbox.landlock.kernel import READ, WRITE, landlock_version
from mlagentbench.sandbox.landlock.rules import readable_rules
from mlagentbench.sandbox.launcher import shared_launcher
from mlagentbench.sandbox.processes import count_threads
from mlagentbench.sandbox.selection import find_unprivileged_uids

MAX_OTHER_PROCESSES = 64  # that the user may start while a command runs, before its own forks are refused
NOT_ISOLATED = (
    "no pid namespace: commands have pids of the host, and cannot list or reach other processes",
    "no mount namespace: names and sizes of files outside can be seen, their content cannot",
    "no network namespace: no network, not even a loopback",
)
_START_SUPERVISOR = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); "
    "from mlagentbench.sandbox.landlock.supervisor import main; main()"
)


class LandlockSandbox(Sandbox):
    """Isolates files with Landlock; sockets, signals and file metadata with seccomp and the supervisor."""

    name = "landlock"
    mounts_files = False

    def __init__(self, gpu: str = "") -> None:
        super().__init__(gpu)
        self.version = landlock_version()
        if not self.version:
            raise UsageError(
                "This kernel has no Landlock: it needs Linux 5.13 with landlock in /sys/kernel/security/lsm, "
                "and a container may forbid it. Use --sandbox bwrap."
            )
        if platform.machine() not in seccomp.MACHINES:
            raise UsageError(f"--sandbox landlock supports {' and '.join(seccomp.MACHINES)}.")

    @property
    def uses_separate_user(self) -> bool:
        """Root can only give commands another user if there is one that can be given access to its files."""
        return shared_launcher().has_private_mounts and bool(find_unprivileged_uids())

    @property
    def limitations(self) -> tuple[str, ...]:
        """What this sandbox does not isolate."""
        return (f"Landlock version {self.version}", *NOT_ISOLATED, *super().limitations)

    def path_inside(self, path: Path, inside: str) -> str:
        """Files keep their paths."""
        return shared_launcher().stage(path)

    def start(
        self, argv: Sequence[str], spec: SandboxSpec, stdin: int = subprocess.DEVNULL
    ) -> SandboxProcess:
        """Start a command below a supervisor."""
        if spec.run_as_init or spec.access_log:
            raise SandboxFault(
                "--sandbox landlock has no first process and no access log. Use --sandbox bwrap."
            )
        if os.geteuid() == 0 and self.uses_separate_user and not spec.uid:
            raise SandboxFault("The harness runs as root: a sandbox needs the uid of an unprivileged user.")
        if spec.writable_mounts or any(
            inside != self.path_inside(path, inside) for path, inside in spec.mounts
        ):
            raise SandboxFault("--sandbox landlock cannot mount files at other paths. Use --sandbox bwrap.")
        limits = spec.limits
        cgroup = Cgroup(int(limits.memory_gb * BYTES_PER_GB), limits.processes + 1)  # and the supervisor
        folders = PrivateFolders(spec.uid)
        read_only = ReadOnlyFiles(spec.workspace, () if "." in spec.read_only_paths else spec.read_only_paths)
        request_fd = os.memfd_create("request")
        try:
            read_only.protect()
            wrapped = handshake.wrap_command(argv, stdin)
            request = self._build_request(wrapped, spec, folders)
            os.write(request_fd, json.dumps(request).encode())
            os.lseek(request_fd, 0, os.SEEK_SET)
            source = str(Path(mlagentbench.__file__).parents[1])
            command = [sys.executable, "-ISB", "-c", _START_SUPERVISOR, source, str(request_fd)]
            child = handshake.start_child(
                command,
                limits,
                cgroup,
                {"PATH": os.defpath},
                "/",
                [request_fd],
                before_ready=None
                if "pids" in cgroup.folders
                else lambda child: _limit_processes(child, spec),
            )
            return release_command(
                child, spec, cgroup, stdin, private_folders=folders, read_only_files=read_only
            )
        except BaseException:
            read_only.restore()
            folders.remove()
            cgroup.close()
            raise
        finally:
            os.close(request_fd)

    def _build_request(
        self, command: list[str], spec: SandboxSpec, folders: PrivateFolders
    ) -> dict[str, object]:
        """What the supervisor needs to know."""
        stage, is_read_only = shared_launcher().stage, "." in spec.read_only_paths
        runtime, disk = spec.runtime, stage(folders.disk)
        prefix, packages_folder = stage(runtime.prefix), stage(runtime.folder)
        workspace = str(Path(stage(spec.workspace)).resolve())
        folders.create_python(prefix, f"{packages_folder}/lib/{PYTHON_NAME}/site-packages")
        moved = {str(runtime.prefix): prefix, str(runtime.folder.resolve()): packages_folder}
        rules = [(_move(path, moved), rights) for path, rights in readable_rules(spec, self.gpu)]
        rules += [(inside, READ) for _, inside in spec.mounts]
        writable = [f"{disk}/tmp", f"{disk}/home", *([] if is_read_only else [workspace])]
        rules += [(f"{disk}/python", READ), (workspace, READ), *((folder, WRITE) for folder in writable)]
        environment = {
            **runtime.environment,
            "PATH": f"{disk}/python/bin:/usr/local/bin:/usr/bin:/bin",
            "HOME": f"{disk}/home",
            "TMPDIR": f"{disk}/tmp",
            **gpu.gpu_environment(self.gpu),
            **spec.environment,
        }
        if "LD_LIBRARY_PATH" in runtime.environment:
            environment["LD_LIBRARY_PATH"] = f"{prefix}/lib"
        return {
            "uid": spec.uid or 0,
            "parent": os.getpid(),
            "command": command,
            "environment": environment,
            "folder": workspace,
            "version": self.version,
            "rules": rules,
            "filter": filters.build_command_filter(self.version).hex(),
            "calls": filters.decided_calls(),
            "writable": writable,
            "protected": [] if is_read_only else [f"{workspace}/{path}" for path in spec.read_only_paths],
            "shared_memory": str(folders.memory),
            "private_folders": [disk, str(folders.memory)],
        }

    def release_workspace(self, spec: SandboxSpec) -> None:
        """Unmount the workspace, which may be removed afterwards."""
        shared_launcher().unstage(spec.workspace)


def _move(path: str, moved: dict[str, str]) -> str:
    """Where a path is, if its folder is mounted elsewhere."""
    for source, target in moved.items():
        if path == source or path.startswith(f"{source}/"):
            return target + path.removeprefix(source)
    return path


def _limit_processes(child: "subprocess.Popen[bytes]", spec: SandboxSpec) -> None:
    """Limit the processes of the user; without a user of its own, a command has to share them."""
    maximum = spec.limits.processes + 3  # the supervisor, and one more than allowed for the limit monitor
    if not spec.uid:
        maximum += MAX_OTHER_PROCESSES + count_threads(list(_processes_of_user(os.geteuid())))
    resource.prlimit(child.pid, resource.RLIMIT_NPROC, (maximum, maximum))


def _processes_of_user(uid: int) -> Iterator[int]:
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                if entry.stat().st_uid == uid:
                    yield int(entry.name)
            except OSError:
                continue
