"""Translates a sandbox spec into options of a container engine, with the same guarantees as bubblewrap."""

import io
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path

from mlagentbench.records import BYTES_PER_GB
from mlagentbench.sandbox import gpu
from mlagentbench.sandbox.base import SandboxSpec
from mlagentbench.sandbox.bwrap import SHARED_ETC_NAMES, hidden_paths

PROGRAM_FOLDERS = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
MOUNT_POINTS = ("usr", "etc", "opt", "proc", "dev", "sys", "run", "home", "workspace")
TMPFS_MOUNT_POINTS = ("tmp", "home/agent")  # a tmpfs takes the mode of the folder that it covers
GENERATED_ETC_NAMES = ("passwd", "group", "hosts", "resolv.conf")  # files in /etc not taken from the host
CONTROL_FOLDER = "/run/sandbox"  # where the control socket is inside


def engine_options(
    spec: SandboxSpec, control_folder: Path, engine: str, gpus: str, use_host_programs: bool
) -> Iterator[str]:
    """The options of `podman run` or `docker run`; programs come from the host, or else from the image."""
    yield from ("--rm", "--pull", "never", "--read-only", "--network", "none", "--cap-drop", "all")
    yield from ("--security-opt", "no-new-privileges", "--security-opt", "label=disable")
    yield from ("--log-driver", "none")
    yield from ("--ipc", "private", "--hostname", "sandbox", "--workdir", "/", "--entrypoint", "")
    yield from ("--user", _user_option(spec), "--oom-score-adj", "500")
    if engine == "podman":
        yield from ("--read-only-tmpfs=false", "--no-hosts")
        if os.geteuid() != 0:
            yield from ("--userns", f"keep-id:uid={os.getuid()},gid={os.getgid()}")
    size = int(spec.limits.memory_gb * BYTES_PER_GB / 4)
    no_copy = ",notmpcopyup" if engine == "podman" else ""
    yield from ("--shm-size", str(size))
    for name in TMPFS_MOUNT_POINTS:
        yield from ("--tmpfs", f"/{name}:rw,exec,nosuid,nodev,mode=1777,size={size}{no_copy}")
    for path in _hidden_paths(spec, use_host_programs):
        yield from ("--tmpfs", f"{path}:ro,size=4096{no_copy}")
    # Of several mounts at one path the last one counts.
    mounts = {
        inside: (source, writable)
        for source, inside, writable in _list_mounts(spec, control_folder, use_host_programs)
    }
    for inside, (source, writable) in mounts.items():
        fields = ["type=bind", f"source={source}", f"destination={inside}"]
        fields += [] if writable else ["ro=true"]
        yield from ("--mount", ",".join(map(_quote_field, fields)))
    for gpu_id in gpu.engine_gpu_ids(gpus):
        yield from ("--device", f"nvidia.com/gpu={gpu_id}")


def _quote_field(text: str) -> str:
    """Quote one field of a comma-separated option, as in CSV."""
    return '"' + text.replace('"', '""') + '"' if set(text) & set(',"\n') else text


def _user_option(spec: SandboxSpec) -> str:
    return f"{spec.uid}:{spec.uid}" if spec.uid else f"{os.getuid()}:{os.getgid()}"


def _hidden_paths(spec: SandboxSpec, use_host_programs: bool) -> Iterator[str]:
    """Paths that would show the harness, and /sys, which no command needs."""
    yield "/sys"
    for path in (*hidden_paths(spec), *spec.masked_paths):
        if use_host_programs or not path.startswith("/usr/"):
            yield path


def _list_mounts(
    spec: SandboxSpec, control_folder: Path, use_host_programs: bool
) -> Iterator[tuple[Path, str, bool]]:
    """Each mount as path on the host, path inside, and whether it is writable."""
    runtime, workspace = spec.runtime, spec.workspace
    yield from ((path, str(path), False) for path in (_host_program_paths() if use_host_programs else ()))
    if runtime.prefix_inside == "/opt/python":
        yield runtime.prefix, runtime.prefix_inside, False
    yield runtime.folder, runtime.FOLDER_INSIDE, False
    yield control_folder, CONTROL_FOLDER, False
    yield from ((control_folder / name, f"/etc/{name}", False) for name in GENERATED_ETC_NAMES)
    yield from ((source, inside, False) for source, inside in spec.mounts)
    yield workspace, "/workspace", "." not in spec.read_only_paths
    # Parent folders of read-only files become mounts too: only a mount cannot be renamed or removed.
    parents = {str(parent) for path in spec.read_only_paths for parent in Path(path).parents} - {"."}
    yield from ((workspace / path, f"/workspace/{path}", True) for path in sorted(parents))
    files = (path for path in spec.read_only_paths if path != ".")
    yield from ((workspace / path, f"/workspace/{path}", False) for path in files)


def _host_program_paths() -> list[Path]:
    """The host's programs and libraries, and the few files in /etc that they need."""
    folders = [Path("/", name) for name in ("usr", *PROGRAM_FOLDERS)]
    files = [Path("/etc", name) for name in SHARED_ETC_NAMES]
    return [path for path in folders if path.is_dir() and not path.is_symlink()] + [
        path for path in files if path.exists()
    ]


def build_mount_point_image() -> bytes:
    """An image of empty folders on which the host's programs are mounted, as a tar archive."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name in MOUNT_POINTS:
            archive.addfile(_tar_entry(name, tarfile.DIRTYPE))
        for name in TMPFS_MOUNT_POINTS:
            archive.addfile(_tar_entry(name, tarfile.DIRTYPE, mode=0o1777))
        for path in (Path("/", name) for name in PROGRAM_FOLDERS):
            if path.is_symlink():
                archive.addfile(_tar_entry(path.name, tarfile.SYMTYPE, str(path.readlink())))
            elif path.is_dir():
                archive.addfile(_tar_entry(path.name, tarfile.DIRTYPE))
    return buffer.getvalue()


def _tar_entry(name: str, entry_type: bytes, target: str = "", mode: int = 0o755) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode, entry.linkname = entry_type, mode, target
    return entry
