"""Installs the packages of a runtime with pip, or with uv where that gives the same result faster."""

import ast
import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from mlagentbench.errors import SandboxFault
from mlagentbench.runtimes.bytecode import compile_packages
from mlagentbench.runtimes.locks import PIP_COMMAND, pip_command
from mlagentbench.system.cache import cache_dir
from mlagentbench.system.progress import ProgressCallback
from mlagentbench.system.spawn import die_with_parent

# Settings of pip with the same meaning for uv, which does not read pip's configuration.
TRANSLATED_SETTINGS = {"index-url", "extra-index-url", "find-links", "no-index", "cert"}
IRRELEVANT_SETTINGS = {
    "cache-dir",
    "config-file",
    "default-timeout",
    "disable-pip-version-check",
    "no-input",
    "timeout",
}
KEPT_UV_VARIABLES = {"UV_CACHE_DIR", "UV_HTTP_TIMEOUT", "UV_OFFLINE"}


def install_packages(
    runtime: str,
    arguments: Sequence[str],
    target: Path,
    progress: ProgressCallback,
    python: str = sys.executable,
) -> None:
    """Install into the folder `target`.

    uv is used if it is installed, every package has a hash, and all settings of pip can be translated. If it
    fails, pip tries again, and its error counts.

    Args:
        runtime: Name of the runtime, for messages.
        arguments: Packages and options of `pip install`.
        target: Folder to create.
        progress: Receives a line for each package or stage.
        python: The interpreter that the packages are for.

    Raises:
        SandboxFault: The packages cannot be installed.
    """
    if "--require-hashes" in arguments and _install_with_uv(arguments, target, progress, python):
        return
    command = [*pip_command(python), "install", "--no-warn-conflicts", "--target", str(target), *arguments]
    lines = []
    with _start(command) as pip:
        for line in _read_lines(pip):
            lines.append(line)
            if line.startswith(("Collecting", "Processing")):
                progress(f"  {Path(line.split()[1]).name}")
            elif line.startswith("Installing"):
                progress(f"  installing {len(line.split(','))} packages")
    if pip.returncode != 0:
        raise SandboxFault(f"Cannot build the runtime {runtime}: {_find_reason(lines)}")


def _find_reason(lines: Sequence[str]) -> str:
    """The line of pip's output that says why it failed: the end of a traceback, or an error message."""
    if any(os.strerror(errno.ENOSPC) in line for line in lines):
        free_gb = shutil.disk_usage(cache_dir()).free / 1e9
        return (
            f"the disk is full: {free_gb:.1f} GB are free in {cache_dir()}."
            " Free some space, or set MLAGENTBENCH_HOME to a folder on another disk."
        )
    errors = [line for line in lines if line.startswith("ERROR") or "No module named pip" in line]
    # "ERROR: Exception:" is followed by a traceback, whose last line says what happened.
    if errors and errors[-1] != "ERROR: Exception:":
        return errors[-1]
    return (lines or ["no output"])[-1]


def _install_with_uv(arguments: Sequence[str], target: Path, progress: ProgressCallback, python: str) -> bool:
    """Whether uv has installed the packages."""
    settings = read_pip_settings() if find_spec("uv") else None
    if settings is None:
        return False
    options = ["--no-config", "--no-progress", "--python", python, "--target", str(target)]
    # Files are copied, so that the runtime shares none with uv's cache.
    options += ["--link-mode", "copy", *uv_options(settings)]
    command = [sys.executable, "-m", "uv", "pip", "install", *options, *arguments]
    with _start(command, uv_environment(settings)) as uv:
        for line in _read_lines(uv):
            if line.startswith(("Resolved", "Prepared", "Installed")):
                progress(f"  {line[0].lower()}{line[1:]}")
    if uv.returncode != 0:
        shutil.rmtree(target, ignore_errors=True)
        return False
    (target / ".lock").unlink(missing_ok=True)
    progress(f"  compiled {compile_packages(target, python)} files")
    return True


def read_pip_settings() -> dict[str, str] | None:
    """The settings of `pip install` from files and environment variables; None if uv lacks one of them."""
    listing = subprocess.run(
        [*PIP_COMMAND, "config", "list"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if listing.returncode != 0:
        return None
    sections: dict[str, dict[str, str]] = {"global": {}, "install": {}, ":env:": {}}
    for line in listing.stdout.splitlines():
        key, _, value = line.partition("=")
        section, _, name = key.rpartition(".")
        if section in sections and name not in IRRELEVANT_SETTINGS:
            sections[section][name] = ast.literal_eval(value)
    settings = {name: value for section in sections.values() for name, value in section.items()}
    return settings if settings.keys() <= TRANSLATED_SETTINGS else None


def uv_options(settings: Mapping[str, str]) -> list[str]:
    """The options of uv for settings of pip."""
    options = [
        "--index-strategy",
        "unsafe-best-match",
    ]  # like pip; the hashes decide which files are accepted
    for link in settings.get("find-links", "").split():
        options += ["--find-links", link]
    if settings.get("no-index", "").lower() in ("1", "true", "yes", "on"):
        options.append("--no-index")
    return options


def uv_environment(settings: Mapping[str, str]) -> dict[str, str]:
    """The environment of uv for settings of pip; indexes are set here because they may contain passwords."""
    variables = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("UV_") or name in KEPT_UV_VARIABLES
    }
    names = {
        "index-url": "UV_DEFAULT_INDEX",
        "extra-index-url": "UV_EXTRA_INDEX_URL",
        "cert": "SSL_CERT_FILE",
    }
    for setting, variable in names.items():
        if settings.get(setting):
            variables[variable] = " ".join(settings[setting].split())
    return variables


def _start(command: Sequence[str], environment: Mapping[str, str] | None = None) -> "subprocess.Popen[str]":
    """Start an installer that dies with the harness, so that it cannot write while the next build runs."""
    return subprocess.Popen(
        die_with_parent(command),
        stdin=subprocess.DEVNULL,  # over stdio, an MCP client writes to ours
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        umask=0o022,
        env=environment,
    )


def _read_lines(process: "subprocess.Popen[str]") -> Iterator[str]:
    assert process.stdout is not None
    for line in process.stdout:
        yield line.strip()
