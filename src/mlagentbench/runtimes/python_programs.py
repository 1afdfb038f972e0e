"""Python programs of external agents: packages of PyPI in an environment of their own at /opt/agent."""

import os
import platform
import shutil
from collections.abc import Sequence
from importlib.metadata import distributions
from pathlib import Path

from mlagentbench.errors import UsageError
from mlagentbench.runtimes.base import write_environment
from mlagentbench.runtimes.install import install_packages
from mlagentbench.runtimes.interpreters import OTHER_PREFIX_INSIDE, Interpreter
from mlagentbench.runtimes.locks import LOCKED_INSTALL_OPTIONS, resolve_packages
from mlagentbench.runtimes.programs import InstalledProgram, Mount, ensure_lock, short_hash
from mlagentbench.system.cache import build_once, cache_dir
from mlagentbench.system.progress import ProgressCallback

FOLDER_INSIDE = "/opt/agent"
CONSOLE_SCRIPT = """#!{folder}/bin/python
import sys
from {module} import {name}
sys.exit({call}())
"""


def lock_packages(
    packages: Sequence[str],
    interpreter: Interpreter,
    progress: ProgressCallback,
    options: Sequence[str] = (),
) -> str:
    """Return the lock of packages and their dependencies; a file with hashes is the lock itself.

    Args:
        packages: The packages, or the path of one file.
        interpreter: The Python that they are for.
        progress: Receives a line for each stage.
        options: Options of `pip install`, such as --no-deps.

    Raises:
        SandboxFault: There are no such packages.
        UsageError: The file cannot be read.
    """
    if len(packages) == 1 and packages[0].endswith(".txt"):
        try:
            return Path(packages[0]).read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"The lock {packages[0]} cannot be read: {error}") from error
    if not packages:
        return ""
    key = " ".join((interpreter.name, platform.machine(), *options, *packages))

    def resolve(folder: Path) -> str:
        progress(f"Resolving the packages of {packages[0]} (once)")
        return "".join(sorted(resolve_packages("agent", [*options, *packages], interpreter.executable)))

    return ensure_lock(key, resolve)


def ensure_python_program(
    lock: str, interpreter: Interpreter, progress: ProgressCallback
) -> InstalledProgram:
    """Install locked packages, unless they are installed already.

    Args:
        lock: Requirements with hashes.
        interpreter: The Python that runs them.
        progress: Receives a line for each stage.

    Raises:
        SandboxFault: They cannot be installed.
    """
    identity = (lock, interpreter.name, platform.machine(), interpreter.prefix_inside)
    folder = cache_dir() / "runtimes" / f"agent-{short_hash(*identity)}"
    folder.parent.mkdir(exist_ok=True)
    build_once(folder, lambda building: _build(lock, interpreter, building, progress))
    placeholders = {
        "{python}": f"{FOLDER_INSIDE}/bin/python",
        "{packages}": f"{FOLDER_INSIDE}/lib/{interpreter.name}/site-packages",
    }
    library = interpreter.library_path_inside
    return InstalledProgram(
        mounts=(*_interpreter_mounts(interpreter), (folder, FOLDER_INSIDE)),
        lock=lock,
        placeholders=placeholders,
        environment={"LD_LIBRARY_PATH": library} if library.startswith(OTHER_PREFIX_INSIDE) else {},
    )


def _build(lock: str, interpreter: Interpreter, folder: Path, progress: ProgressCallback) -> None:
    progress("Installing the packages of the agent (once; takes a minute or two)")
    requirements = folder / "requirements.txt"
    requirements.write_text(lock)
    packages = folder / "lib" / interpreter.name / "site-packages"
    packages.mkdir(parents=True)
    if lock.strip():
        arguments = [*LOCKED_INSTALL_OPTIONS, "-r", str(requirements)]
        install_packages("agent", arguments, packages, progress, interpreter.executable)
    write_environment(folder, interpreter.name, interpreter.version, interpreter.prefix_inside)
    _write_console_scripts(folder / "bin", packages)
    os.sync()


def _write_console_scripts(folder: Path, packages: Path) -> None:
    """Put the commands of the packages next to Python; pip writes them with the path of ours."""
    for distribution in distributions(path=[str(packages)]):
        for point in distribution.entry_points.select(group="console_scripts"):
            script = folder / point.name
            if script.parent == folder and not script.exists():
                module, _, call = point.value.partition("[")[0].strip().partition(":")
                name = call.partition(".")[0]
                text = CONSOLE_SCRIPT.format(folder=FOLDER_INSIDE, module=module, name=name, call=call)
                script.write_text(text)
                script.chmod(0o755)
    for program in (packages / "bin").glob("*"):
        is_compiled = program.is_file() and not program.read_bytes().startswith(b"#!")
        if is_compiled and not (folder / program.name).exists():
            shutil.copy(program, folder)


def _interpreter_mounts(interpreter: Interpreter) -> tuple[Mount, ...]:
    """The Python itself, if the sandbox does not have it, without the packages that are installed there."""
    if interpreter.prefix_inside != OTHER_PREFIX_INSIDE:
        return ()
    empty = cache_dir() / "empty"
    empty.mkdir(exist_ok=True)
    site_packages = f"lib/{interpreter.name}/site-packages"
    mounts: list[Mount] = [(interpreter.prefix, OTHER_PREFIX_INSIDE)]
    if (interpreter.prefix / site_packages).is_dir():
        mounts.append((empty, f"{OTHER_PREFIX_INSIDE}/{site_packages}"))
    return tuple(mounts)
