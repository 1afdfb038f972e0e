"""Runtimes: sets of pinned packages, built once per content and mounted read-only into sandboxes."""

import os
import platform
import re
import sys
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from blake3 import blake3

from mlagentbench.errors import UsageError
from mlagentbench.runtimes.install import install_packages
from mlagentbench.runtimes.locks import pip_install_arguments
from mlagentbench.system.cache import build_once, cache_dir
from mlagentbench.system.progress import ProgressCallback

REQUIREMENTS_FOLDER = Path(__file__).parent
PINNED_REQUIREMENT = re.compile(r"[\w.-]+(\[[\w,.-]+\])?==[\w.!+-]+")
PYTHON_NAME = f"python{sys.version_info.major}.{sys.version_info.minor}"


@dataclass(frozen=True)
class Runtime:
    """A virtual environment whose paths are valid inside the sandbox."""

    name: str
    hash: str

    FOLDER_INSIDE: ClassVar[str] = "/opt/runtime"

    @property
    def folder(self) -> Path:
        """Its folder on this machine."""
        suffix = blake3(f"{self.hash} {self.prefix_inside}".encode()).hexdigest(length=8)
        return cache_dir() / "runtimes" / f"{self.name}-{suffix}"

    @property
    def is_built(self) -> bool:
        """Whether it has been built."""
        return self.folder.is_dir()

    @property
    def prefix(self) -> Path:
        """The Python installation that it is based on, on this machine."""
        return Path(sys.base_prefix).resolve()

    @property
    def prefix_inside(self) -> str:
        """The path of that installation inside the sandbox; /usr has the same path there."""
        return str(self.prefix) if self.prefix.is_relative_to("/usr") else "/opt/python"

    @property
    def packages(self) -> Path:
        """The folder of its packages on this machine."""
        return self.folder / "lib" / PYTHON_NAME / "site-packages"

    @property
    def base_package_folders(self) -> list[Path]:
        """Package folders of the Python installation, which are not part of the runtime."""
        folders = (
            Path(self.prefix, "lib", PYTHON_NAME, "site-packages"),
            Path("/usr/lib/python3/dist-packages"),
            Path(f"/usr/local/lib/{PYTHON_NAME}/dist-packages"),
        )
        return [folder for folder in folders if folder.is_dir()]

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables of every command."""
        variables = {
            "PATH": f"{self.FOLDER_INSIDE}/bin:/usr/local/bin:/usr/bin:/bin",
            "HOME": "/home/agent",
            "LANG": "C.UTF-8",
            "PYTHONUNBUFFERED": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        if sysconfig.get_config_var("Py_ENABLE_SHARED") and self.prefix_inside == "/opt/python":
            variables["LD_LIBRARY_PATH"] = "/opt/python/lib"
        return variables


def runtime_names() -> list[str]:
    """The names of all runtimes, built or not."""
    return sorted(path.stem for path in REQUIREMENTS_FOLDER.glob("*.txt"))


def find_runtime(name: str) -> Runtime:
    """The runtime called `name`; does not build it."""
    if name not in runtime_names():
        raise UsageError(f"No such runtime: {name!r}. Available: {', '.join(runtime_names())}.")
    content = f"{PYTHON_NAME} {platform.machine()}\n" + "\n".join(read_requirements(name))
    return Runtime(name, blake3(content.encode()).hexdigest())


def read_requirements(name: str) -> list[str]:
    """The pinned packages of a runtime; those of included runtimes come first."""
    packages: list[str] = []
    for line in (REQUIREMENTS_FOLDER / f"{name}.txt").read_text().splitlines():
        if line.startswith("-r "):
            packages += read_requirements(line[3:].removesuffix(".txt"))
        elif line and not line.startswith("#"):
            packages.append(line)
    return packages


def ensure_runtime(name: str, progress: ProgressCallback) -> Runtime:
    """Return the runtime called `name`, and build it first if necessary."""
    runtime, packages = find_runtime(name), read_requirements(name)
    lock = REQUIREMENTS_FOLDER / "locked" / f"{name}.txt"
    runtime.folder.parent.mkdir(exist_ok=True)
    build_once(runtime.folder, lambda folder: _build(runtime, packages, lock, folder, progress))
    return runtime


def require_pinned(packages: Sequence[str]) -> list[str]:
    """Return the packages if each one has a version, else raise a UsageError."""
    for package in packages:
        if not PINNED_REQUIREMENT.fullmatch(package):
            raise UsageError(f"{package} is not pinned: write it as NAME==VERSION.")
    return list(packages)


def _build(
    runtime: Runtime, packages: Sequence[str], lock: Path, folder: Path, progress: ProgressCallback
) -> None:
    progress(f"Building the runtime {runtime.name} (once; takes a minute or two)")
    package_folder = folder / "lib" / PYTHON_NAME / "site-packages"
    arguments = pip_install_arguments(runtime.name, packages, lock, folder)
    install_packages(runtime.name, arguments, package_folder, progress)
    write_environment(folder, PYTHON_NAME, platform.python_version(), runtime.prefix_inside)


def write_environment(folder: Path, python_name: str, version: str, prefix_inside: str) -> None:
    """Make a folder with packages a virtual environment of the Python at `prefix_inside`."""
    (folder / "bin").mkdir()
    for link in ("python", "python3", python_name):
        (folder / "bin" / link).symlink_to(f"{prefix_inside}/bin/{python_name}")
    (folder / "pyvenv.cfg").write_text(
        f"home = {prefix_inside}/bin\ninclude-system-site-packages = false\nversion = {version}\n"
    )
    for path, mode in ((folder, 0o755), (folder / "bin", 0o755), (folder / "pyvenv.cfg", 0o644)):
        path.chmod(mode)  # readable for the user inside the sandbox, whatever our umask is
    os.sync()  # everything is on disk before build_once renames the folder
