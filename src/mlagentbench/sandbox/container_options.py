"""How a container engine is told what a box is: the same that bubblewrap is told, in its own words."""

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
TMPFS_MOUNT_POINTS = (
    "tmp",
    "home/agent",
)  # a file system in memory takes the mode of the folder that it covers
GENERATED_ETC_NAMES = ("passwd", "group", "hosts", "resolv.conf")  # of /etc: nobody there is of the host's
CONTROL_FOLDER = "/run/box"  # where the socket lies inside


def engine_options(
    spec: SandboxSpec, control_folder: Path, engine: str, gpus: str, use_host_programs: bool
) -> Iterator[str]:
    """The options; with `hosts_own` the programs are the host's, and else the image's."""
    yield from ("--rm", "--pull", "never", "--read-only", "--network", "none", "--cap-drop", "all")
    yield from (
        "--security-opt",
        "no-new-privileges",
        "--security-opt",
        "label=disable",
        "--log-driver",
        "none",
    )
    yield from ("--ipc", "private", "--hostname", "sandbox", "--workdir", "/", "--entrypoint", "")
    yield from ("--user", _user_option(spec), "--oom-score-adj", "500")
    if engine == "podman":
        yield from ("--read-only-tmpfs=false", "--no-hosts")
        if os.geteuid() != 0:
            yield from ("--userns", f"keep-id:uid={os.getuid()},gid={os.getgid()}")
    shared = int(spec.limits.memory_gb * BYTES_PER_GB / 4)
    yield from ("--shm-size", str(shared))
    for place in TMPFS_MOUNT_POINTS:
        options = f"rw,exec,nosuid,nodev,mode=1777,size={shared}"
        yield from ("--tmpfs", f"/{place}:{options}{',notmpcopyup' if engine == 'podman' else ''}")
    for place in _hidden_paths(spec, use_host_programs):
        yield from ("--tmpfs", f"{place}:ro,size=4096{',notmpcopyup' if engine == 'podman' else ''}")
    places = {
        inside: (source, writable)
        for source, inside, writable in _list_mounts(spec, control_folder, use_host_programs)
    }
    for inside, (source, writable) in places.items():
        fields = [
            "type=bind",
            f"source={source}",
            f"destination={inside}",
            *([] if writable else ["ro=true"]),
        ]
        yield from ("--mount", ",".join(map(_quote_field, fields)))
    for index in gpu.engine_gpu_ids(gpus):
        yield from ("--device", f"nvidia.com/gpu={index}")


def _quote_field(text: str) -> str:
    """One field of a line with commas between them."""
    return '"' + text.replace('"', '""') + '"' if set(text) & set(',"\n') else text


def _user_option(box: SandboxSpec) -> str:
    return f"{box.uid}:{box.uid}" if box.uid else f"{os.getuid()}:{os.getgid()}"


def _hidden_paths(box: SandboxSpec, hosts_own: bool) -> Iterator[str]:
    """What would be seen of the harness; and the machine's own tree, which nobody inside needs."""
    yield "/sys"
    for place in (*hidden_paths(box), *box.masked_paths):
        if hosts_own or not place.startswith("/usr/"):
            yield place


def _list_mounts(box: SandboxSpec, door: Path, hosts_own: bool) -> Iterator[tuple[Path, str, bool]]:
    """What is seen inside, where, and whether it may be written."""
    runtime = box.runtime
    yield from ((path, str(path), False) for path in (_host_program_paths() if hosts_own else ()))
    if runtime.prefix_inside == "/opt/python":
        yield runtime.prefix, runtime.prefix_inside, False
    yield runtime.folder, runtime.FOLDER_INSIDE, False
    yield door, CONTROL_FOLDER, False
    yield from ((door / name, f"/etc/{name}", False) for name in GENERATED_ETC_NAMES)
    yield from ((source, inside, False) for source, inside in box.mounts)
    yield box.workspace, "/workspace", "." not in box.read_only_paths
    # A folder above a read-only file is made a mount of its own, since only a mount cannot be renamed or removed.
    above = sorted({str(folder) for path in box.read_only_paths for folder in Path(path).parents} - {"."})
    yield from ((box.workspace / path, f"/workspace/{path}", True) for path in above)
    yield from (
        (box.workspace / path, f"/workspace/{path}", False) for path in box.read_only_paths if path != "."
    )


def _host_program_paths() -> list[Path]:
    """The host's programs and libraries, and the few files of /etc that they need."""
    roots = [
        path
        for name in ("usr", *PROGRAM_FOLDERS)
        if (path := Path("/", name)).is_dir() and not path.is_symlink()
    ]
    return roots + [path for name in SHARED_ETC_NAMES if (path := Path("/etc", name)).exists()]


def build_mount_point_image() -> bytes:
    """An image of nothing but places to mount the host's programs on, as a tar archive."""
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


def _tar_entry(name: str, kind: bytes, target: str = "", mode: int = 0o755) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode, entry.linkname = kind, mode, target
    return entry
