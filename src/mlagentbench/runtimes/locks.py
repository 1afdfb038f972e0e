"""Which files a runtime is built from: those with hashes in `locked/`, and for the rest those that the index names."""

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


def pip_install_arguments(name: str, listed: Sequence[str], lock: Path, folder: Path) -> list[str]:
    """What pip is told to install; without a lock it is the list, and whatever that needs."""
    if not lock.is_file():
        return list(listed)
    # A source archive would be built with tools whose hashes nobody knows.
    told = ["--require-hashes", "--no-deps", "--only-binary", ":all:", "-r", str(lock)]
    # torch alone: one version of it has builds for processors and for each CUDA, on several indexes, and local ones.
    open_ = [line for line in listed if line.split("==")[0] not in LOCKED_PACKAGE.findall(lock.read_text())]
    if open_:
        rest = folder / "requirements.txt"
        rest.write_text("".join(_resolve_with_hashes(name, open_, listed, folder)))
        rest.chmod(0o644)
        told += ["-r", str(rest)]
    return told


def _resolve_with_hashes(name: str, open_: Sequence[str], listed: Sequence[str], folder: Path) -> list[str]:
    """Lines with hashes for packages without, and for what only some of their builds need, as the index has them."""
    others = [line for line in listed if line not in open_]
    pins = folder / "constraints.txt"
    pins.write_text("\n".join(others))
    command = [
        *PIP_COMMAND,
        "install",
        "--quiet",
        "--dry-run",
        "--ignore-installed",
        "--only-binary",
        ":all:",
    ]
    command += ["--report", "-", "--constraint", str(pins), *open_]
    done = subprocess.run(command, capture_output=True, text=True)
    pins.unlink()
    if done.returncode != 0:
        errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        raise SandboxFault(f"the runtime {name} cannot be built: {(errors or [done.stderr.strip()])[-1]}")
    known = {line.split("==")[0] for line in others}
    return [
        f"{package}=={each['metadata']['version']} --hash=sha256:{_archive_sha256(each)}\n"
        for each in json.loads(done.stdout)["install"]
        if (package := re.sub(r"[-_.]+", "-", each["metadata"]["name"]).lower()) not in known
    ]


def _archive_sha256(each: dict[str, Any]) -> str:
    return str(each["download_info"]["archive_info"]["hashes"]["sha256"])
