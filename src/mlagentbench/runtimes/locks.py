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
LOCKED_PACKAGE = re.compile(r"^([\w.-]+)==", re.MULTILINE)


def pip_install_arguments(name: str, packages: Sequence[str], lock: Path, folder: Path) -> list[str]:
    """The arguments for `pip install`; without a lock these are the packages, with their dependencies."""
    if not lock.is_file():
        return list(packages)
    # No source archives: they would be built with tools whose hashes are unknown.
    arguments = ["--require-hashes", "--no-deps", "--only-binary", ":all:", "-r", str(lock)]
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
    command = [*PIP_COMMAND, "install", "--quiet", "--dry-run", "--ignore-installed"]
    command += ["--only-binary", ":all:", "--report", "-", "--constraint", str(constraints), *unlocked]
    completed = subprocess.run(command, capture_output=True, text=True)
    constraints.unlink()
    if completed.returncode != 0:
        errors = [line for line in completed.stderr.splitlines() if line.startswith("ERROR")]
        reason = (errors or [completed.stderr.strip()])[-1]
        raise SandboxFault(f"Cannot build the runtime {name}: {reason}")
    locked_names = {package.split("==")[0] for package in locked}
    lines = []
    for item in json.loads(completed.stdout)["install"]:
        package = re.sub(r"[-_.]+", "-", item["metadata"]["name"]).lower()
        if package not in locked_names:
            lines.append(f"{package}=={item['metadata']['version']} --hash=sha256:{_archive_sha256(item)}\n")
    return lines


def _archive_sha256(item: dict[str, Any]) -> str:
    return str(item["download_info"]["archive_info"]["hashes"]["sha256"])
