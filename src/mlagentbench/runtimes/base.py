"""A runtime is a list of pinned packages; built once, kept by its content, mounted read-only into sandboxes."""

import os
import platform
import re
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from blake3 import blake3

from mlagentbench.errors import SandboxFault, UsageError
from mlagentbench.runtimes.locks import PIP_COMMAND, pip_install_arguments
from mlagentbench.system.cache import build_once, cache_dir

REQUIREMENTS_FOLDER = Path(__file__).parent
PINNED_REQUIREMENT = re.compile(r"[\w.-]+(\[[\w,.-]+\])?==[\w.!+-]+")
PYTHON_NAME = f"python{sys.version_info.major}.{sys.version_info.minor}"


@dataclass(frozen=True)
class Runtime:
    """A virtual environment whose paths hold inside the sandbox."""

    name: str
    hash: str

    FOLDER_INSIDE: ClassVar[str] = "/opt/runtime"

    @property
    def folder(self) -> Path:
        """Where it lies on this machine."""
        place = blake3(f"{self.hash} {self.prefix_inside}".encode()).hexdigest(length=8)
        return cache_dir() / "runtimes" / f"{self.name}-{place}"

    @property
    def is_built(self) -> bool:
        """Whether it is ready for use."""
        return self.folder.is_dir()

    @property
    def prefix(self) -> Path:
        """The Python installation that it builds on, on this machine."""
        return Path(sys.base_prefix).resolve()

    @property
    def prefix_inside(self) -> str:
        """The same inside the sandbox, where /usr is shown as it is."""
        return str(self.prefix) if self.prefix.is_relative_to("/usr") else "/opt/python"

    @property
    def packages(self) -> Path:
        """Where its packages lie on this machine."""
        return self.folder / "lib" / PYTHON_NAME / "site-packages"

    @property
    def base_package_folders(self) -> list[Path]:
        """Packages of the installation below, which are no part of the runtime."""
        places = [Path(self.prefix, "lib", PYTHON_NAME, "site-packages")]
        places += [
            Path("/usr/lib/python3/dist-packages"),
            Path(f"/usr/local/lib/{PYTHON_NAME}/dist-packages"),
        ]
        return [place for place in places if place.is_dir()]

    @property
    def environment(self) -> dict[str, str]:
        """The variables that every command inside sees."""
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
    """The runtimes that exist, built or not."""
    return sorted(path.stem for path in REQUIREMENTS_FOLDER.glob("*.txt"))


def find_runtime(name: str) -> Runtime:
    """The runtime called `name`; building it is another matter."""
    if name not in runtime_names():
        raise UsageError(f"no runtime {name!r}; there are: {', '.join(runtime_names())}")
    content = f"{PYTHON_NAME} {platform.machine()}\n" + "\n".join(read_requirements(name))
    return Runtime(name, blake3(content.encode()).hexdigest())


def read_requirements(name: str) -> list[str]:
    """The pinned packages of a runtime, those of the runtimes that it includes first."""
    found: list[str] = []
    for line in (REQUIREMENTS_FOLDER / f"{name}.txt").read_text().splitlines():
        if line.startswith("-r "):
            found += read_requirements(line[3:].removesuffix(".txt"))
        elif line and not line.startswith("#"):
            found.append(line)
    return found


def ensure_runtime(name: str, progress: Callable[[str], None]) -> Runtime:
    """The runtime, built if it was not."""
    return _build_if_missing(
        find_runtime(name), read_requirements(name), progress, REQUIREMENTS_FOLDER / "locked" / f"{name}.txt"
    )


def require_pinned(wanted: Sequence[str]) -> list[str]:
    """The packages, if each says which version it is."""
    if loose := [name for name in wanted if not PINNED_REQUIREMENT.fullmatch(name)]:
        raise UsageError(f"{loose[0]} is not pinned: write it as NAME==VERSION")
    return list(wanted)


def ensure_package_runtime(wanted: Sequence[str], progress: Callable[[str], None]) -> Runtime:
    """A runtime of these packages, for an outside program; what they need comes along."""
    content = f"{PYTHON_NAME} {platform.machine()}\n" + "\n".join(wanted)
    return _build_if_missing(Runtime("agent", blake3(content.encode()).hexdigest()), wanted, progress)


def _build_if_missing(
    wanted: Runtime, packages: Sequence[str], progress: Callable[[str], None], lock: Path | None = None
) -> Runtime:
    wanted.folder.parent.mkdir(exist_ok=True)
    build_once(wanted.folder, lambda folder: _install(wanted, packages, lock, folder, progress))
    return wanted


def _install(
    wanted: Runtime, listed: Sequence[str], lock: Path | None, folder: Path, progress: Callable[[str], None]
) -> None:
    progress(f"building the runtime {wanted.name} (once; a minute or two)")
    packages = folder / "lib" / PYTHON_NAME / "site-packages"
    told = pip_install_arguments(wanted.name, listed, lock, folder) if lock else listed
    # It dies with us, so that nobody writes any more into a folder that the next builder removes.
    command = ["setpriv", "--pdeathsig", "KILL", "--", *PIP_COMMAND, "install"]
    command += ["--no-warn-conflicts", "--target", str(packages), *told]
    lines = []
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, umask=0o022
    ) as pip:
        assert pip.stdout is not None
        for line in pip.stdout:
            lines.append(line.strip())
            if line.startswith(("Collecting", "Processing")):
                progress(f"  {Path(line.split()[1]).name}")
            elif line.startswith("Installing"):
                progress(f"  installing {len(line.split(','))} packages")
    if pip.returncode != 0:
        errors = [line for line in lines if line.startswith("ERROR") or "No module named pip" in line]
        raise SandboxFault(f"the runtime {wanted.name} cannot be built: {(errors or lines or ['?'])[-1]}")
    (folder / "bin").mkdir()
    for link in ("python", "python3", PYTHON_NAME):
        (folder / "bin" / link).symlink_to(f"{wanted.prefix_inside}/bin/{PYTHON_NAME}")
    (folder / "pyvenv.cfg").write_text(
        f"home = {wanted.prefix_inside}/bin\n"
        f"include-system-site-packages = false\nversion = {platform.python_version()}\n"
    )
    for path, mode in ((folder, 0o755), (folder / "bin", 0o755), (folder / "pyvenv.cfg", 0o644)):
        path.chmod(mode)  # the sandbox's user must be able to read it, whatever our umask is
    os.sync()  # what the rename below makes visible is on disk
