"""Finds a Python for an external agent: the harness's own, or another one on this machine."""

import json
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from mlagentbench.errors import UsageError

# Prefixes of the installations that pyenv and uv manage, which are often not on PATH.
MANAGED_INSTALLATIONS = ("~/.pyenv/versions/*", "~/.local/share/uv/python/*")
OTHER_PREFIX_INSIDE = "/opt/agent-python"
PROBE = (
    "import json, platform, sys, sysconfig; "
    "print(json.dumps([platform.python_version(), sys.base_prefix, "
    "bool(sysconfig.get_config_var('Py_ENABLE_SHARED'))]))"
)


@dataclass(frozen=True)
class Interpreter:
    """A Python installation on this machine."""

    executable: str
    version: str
    prefix: Path
    has_shared_library: bool

    @property
    def name(self) -> str:
        """The name of its executable and of its library folder, such as python3.12."""
        return "python" + ".".join(self.version.split(".")[:2])

    @property
    def prefix_inside(self) -> str:
        """Its prefix inside the sandbox: the task's runtime has ours at /opt/python already."""
        if self.prefix.is_relative_to("/usr"):
            return str(self.prefix)
        return "/opt/python" if self.prefix == Path(sys.base_prefix).resolve() else OTHER_PREFIX_INSIDE

    @property
    def library_path_inside(self) -> str:
        """Where its shared library is inside the sandbox; empty if the linker needs no help."""
        return f"{self.prefix_inside}/lib" if self.has_shared_library else ""


def find_interpreter(wanted: str = "") -> Interpreter:
    """Find a Python.

    Args:
        wanted: The path of an executable; a version such as "3.12"; one followed by "+" for that version or
            a newer one; or nothing for the Python of the harness.

    Raises:
        UsageError: There is none on this machine.
    """
    if "/" in wanted:
        return _probe(wanted) or _refuse(f"{wanted} is not a Python interpreter.")
    own = _own_interpreter()
    if not wanted or _fits(own, wanted):
        return own
    for candidate in _candidates(wanted):
        found = _probe(candidate)
        if found and _fits(found, wanted):
            return found
    version = wanted.rstrip("+")
    return _refuse(
        f"Python {version}{' or newer' if wanted.endswith('+') else ''} is needed, and not on this machine."
        f" Install it, for example with: pyenv install {version}, or uv python install {version}"
    )


def _own_interpreter() -> Interpreter:
    shared = bool(sysconfig.get_config_var("Py_ENABLE_SHARED"))
    return Interpreter(sys.executable, platform.python_version(), Path(sys.base_prefix).resolve(), shared)


def _refuse(message: str) -> Interpreter:
    raise UsageError(message)


def _fits(interpreter: Interpreter, wanted: str) -> bool:
    version, parts = wanted.rstrip("+"), interpreter.version.split(".")
    if not wanted.endswith("+"):
        return parts[: version.count(".") + 1] == version.split(".")
    return [int(part) for part in parts[:2]] >= [int(part) for part in version.split(".")[:2]]


def _candidates(wanted: str) -> Iterator[str]:
    """Executables that may have the version, without duplicates."""
    try:
        major, minor = (int(part) for part in wanted.rstrip("+").split(".")[:2])
    except ValueError as error:
        raise UsageError(f"{wanted!r} is not a version of Python such as 3.12.") from error
    names = [f"python{major}.{minor + more}" for more in range(4 if wanted.endswith("+") else 1)]
    for name in (*names, "python3"):
        for folder in os.get_exec_path():
            if path := shutil.which(name, path=folder):
                yield path
        for pattern in MANAGED_INSTALLATIONS:
            parent, _, last = str(Path(pattern).expanduser()).rpartition("/")
            yield from sorted(map(str, Path(parent).glob(f"{last}/bin/{name}")))


@cache
def _probe(executable: str) -> Interpreter | None:
    """What an executable is; None if it does not run, as a shim of pyenv without a chosen version."""
    try:
        answer = subprocess.run(
            [executable, "-ISc", PROBE], capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=20
        )
        version, prefix, shared = json.loads(answer.stdout)
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None
    return Interpreter(executable, version, Path(prefix).resolve(), shared)
