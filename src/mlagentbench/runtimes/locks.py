"""Selects the files that a runtime is built from, by the hashes in `locked/` or else those of the index."""

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mlagentbench.errors import SandboxFault

PIP_COMMAND = [sys.executable, "-m", "pip", "--no-input", "--disable-pip-version-check"]
LOCKED_INSTALL_OPTIONS = ("--require-hashes", "--no-deps", "--only-binary", ":all:")
LOCKED_PACKAGE = re.compile(r"^([\w.-]+)==", re.MULTILINE)


def pip_command(python: str = sys.executable) -> list[str]:
    """The command line of our pip, for packages of this interpreter."""
    return PIP_COMMAND if python == sys.executable else [*PIP_COMMAND, "--python", python]


def pip_install_arguments(name: str, packages: Sequence[str], lock: Path, folder: Path) -> list[str]:
    """The arguments for `pip install`; without a lock these are the packages, with their dependencies."""
    if not lock.is_file():
        return list(packages)
    # No source archives: they would be built with tools whose hashes are unknown.
    arguments = [*LOCKED_INSTALL_OPTIONS, "-r", str(lock)]
    # Only torch is not locked: one version has builds for CPUs and for each CUDA, on several indexes and
    # local ones.
    locked_names = LOCKED_PACKAGE.findall(lock.read_text())
    unlocked = [package for package in packages if package.split("==")[0] not in locked_names]
    if unlocked:
        requirements = folder / "requirements.txt"
        requirements.write_text("".join(_resolve_with_hashes(name, unlocked, packages, folder)))
        requirements.chmod(0o644)
        arguments += ["-r", str(requirements)]
    return arguments


def _resolve_with_hashes(
    name: str, unlocked: Sequence[str], packages: Sequence[str], folder: Path
) -> list[str]:
    """Requirement lines with the hashes that the index gives, for unlocked packages and dependencies."""
    locked = [package for package in packages if package not in unlocked]
    constraints = folder / "constraints.txt"
    constraints.write_text("\n".join(locked))
    try:
        resolved = resolve_packages(name, ["--constraint", str(constraints), *unlocked])
    finally:
        constraints.unlink()
    locked_names = {package.split("==")[0] for package in locked}
    return [line for line in resolved if line.split("==")[0] not in locked_names]


def resolve_packages(name: str, arguments: Sequence[str], python: str = sys.executable) -> list[str]:
    """A requirement line with a hash for each package that pip would install, dependencies included.

    Args:
        name: What is built, for messages.
        arguments: Packages and options of `pip install`.
        python: The interpreter that the packages are for.

    Raises:
        SandboxFault: There are no such packages.
    """
    command = [*pip_command(python), "install", "--quiet", "--dry-run", "--ignore-installed"]
    command += ["--only-binary", ":all:", "--report", "-", *arguments]
    completed = subprocess.run(command, capture_output=True, text=True)
    if completed.returncode != 0:
        errors = [line for line in completed.stderr.splitlines() if line.startswith("ERROR")]
        reason = (errors or [completed.stderr.strip()])[-1]
        raise SandboxFault(f"Cannot build the runtime {name}: {reason}")
    return [
        f"{re.sub(r'[-_.]+', '-', item['metadata']['name']).lower()}=={item['metadata']['version']}"
        f" --hash=sha256:{_archive_sha256(item)}\n"
        for item in json.loads(completed.stdout)["install"]
    ]


def _archive_sha256(item: dict[str, Any]) -> str:
    return str(item["download_info"]["archive_info"]["hashes"]["sha256"])
