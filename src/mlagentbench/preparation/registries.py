"""Downloads archives from package registries with pip and npm; nothing in them is installed or run."""

import re
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from mlagentbench.errors import UsageError
from mlagentbench.preparation.download import RemoteFile, download
from mlagentbench.system.progress import ProgressCallback
from mlagentbench.task import Source

PIP_COMMAND = [sys.executable, "-m", "pip"]
PIP_QUIET_FLAGS = ["--no-input", "--disable-pip-version-check", "--no-color"]
OFFLINE_PATTERN = re.compile(
    r"NewConnectionError|NameResolutionError|ConnectTimeout|ReadTimeout|Retrying \(Retry|Max retries"
    r"|ProxyError|ENOTFOUND|ECONNREFUSED|ECONNRESET|ETIMEDOUT|EAI_AGAIN|ENETUNREACH|ERR_SOCKET_TIMEOUT"
)
UNKNOWN_VERSION_PATTERN = re.compile(r"No matching distribution|\bE404\b|\bETARGET\b")


def fetch_pypi(source: Source, part: Path, progress: ProgressCallback) -> None:
    """Download a wheel or a source archive of one version of a Python package."""
    if not source.file.endswith(".whl"):
        return fetch_sdist(source, part, progress)
    package = f"{source.name}=={source.version}"
    folder = make_empty_folder(part.with_suffix(".fetching"))
    progress(f"Downloading {source.file}")
    command = [
        *PIP_COMMAND,
        "download",
        "-q",
        *PIP_QUIET_FLAGS,
        "--no-deps",
        "--only-binary",
        ":all:",
        *wheel_flags(source.file),
    ]
    run_client("pip", [*command, "--dest", str(folder), package], package)
    return move_fetched_file(source, folder, part)


def wheel_flags(file: str) -> list[str]:
    """Return the flags with which pip downloads a wheel for another Python or another machine."""
    pythons, abis, platforms = file.removesuffix(".whl").split("-")[-3:]
    if (abis, platforms) == ("none", "any") and re.search(r"\bpy3\b", pythons):
        return []
    python = pythons.split(".")[-1]
    implementation, version = python[:2], python[2:]
    flags = ["--implementation", implementation]
    if version != "3":  # pip takes 3 for 3.0, which many packages exclude
        flags += ["--python-version", version]
    flags += [word for abi in abis.split(".") for word in ("--abi", abi)]
    return flags + [word for platform in platforms.split(".") for word in ("--platform", platform)]


def fetch_sdist(source: Source, part: Path, progress: ProgressCallback) -> None:
    """Download a source archive from the address that pip reports: `pip download` would run its setup.py."""
    command = [
        *PIP_COMMAND,
        "index",
        "versions",
        "-vvv",
        *PIP_QUIET_FLAGS,
        "--no-binary",
        ":all:",
        source.name,
    ]
    output = run_client("pip", command, f"{source.name}=={source.version}")
    name = re.escape(quote(source.file))
    url = re.search(rf"(?:https?|file)://\S*/{name}(?=[#,\s]|$)", output)
    if not url:
        raise UsageError(f"The package index has no {source.file}. Check the version in task.toml.")
    if url[0].startswith("file://"):
        shutil.copyfile(unquote(urlsplit(url[0]).path), part)
    else:
        download(RemoteFile(url[0], {}, {}), part, progress)


def fetch_npm(source: Source, part: Path, progress: ProgressCallback) -> None:
    """Download the archive of one version of a JavaScript package."""
    if not shutil.which("npm"):
        raise UsageError(
            f"{source.file} comes from npm, which is not installed. Install Node.js and run again."
        )
    package = f"{source.name}@{source.version}"
    folder = make_empty_folder(part.with_suffix(".fetching"))
    progress(f"Downloading {source.file}")
    flags = ["--ignore-scripts", "--loglevel=error", "--no-update-notifier"]
    run_client("npm", ["npm", "pack", package, "--pack-destination", str(folder), *flags], package, folder)
    move_fetched_file(source, folder, part)


def run_client(name: str, command: list[str], package: str, folder: Path | None = None) -> str:
    """Run a registry's client and return its output; turn a failure into a one-line UsageError."""
    process = subprocess.run(
        command,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    if process.returncode == 0:
        return process.stdout
    if OFFLINE_PATTERN.search(process.stdout):
        raise UsageError(f"{name} cannot reach its registry for {package}. Check the network connection.")
    if UNKNOWN_VERSION_PATTERN.search(process.stdout):
        raise UsageError(f"{name} finds no {package}. Check the version in task.toml.")
    if "No module named pip" in process.stdout:
        raise UsageError(f"{package} needs pip, which this Python lacks. Run: {sys.executable} -m ensurepip")
    lines = [line.strip() for line in process.stdout.splitlines() if line.strip()]
    errors = [line for line in lines if "error" in line.lower()]
    raise UsageError(f"{name} could not download {package}: {(errors or lines or ['no output'])[0]}")


def make_empty_folder(folder: Path) -> Path:
    """Create an empty folder; remove what an interrupted download left there."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    return folder


def move_fetched_file(source: Source, folder: Path, part: Path) -> None:
    """Move the downloaded file to `part` and remove its folder."""
    files = sorted(path.name for path in folder.iterdir())
    if source.file not in files:
        raise UsageError(f"Expected {source.file}, but the registry sent {', '.join(files) or 'nothing'}.")
    (folder / source.file).replace(part)
    shutil.rmtree(folder)
