"""The cache of downloaded archives: each is fetched once and used only if its hash matches."""

import hashlib
from pathlib import Path
from urllib.parse import quote

from mlagentbench.errors import UsageError
from mlagentbench.preparation import hosts, registries
from mlagentbench.preparation.download import discard_partial
from mlagentbench.system.lock import exclusive_lock
from mlagentbench.system.progress import ProgressCallback
from mlagentbench.task import Source

FETCHERS = {
    "pypi": registries.fetch_pypi,
    "npm": registries.fetch_npm,
    "kaggle": hosts.fetch_kaggle,
    "hub": hosts.fetch_hub,
    "url": hosts.fetch_url,
}


def fetch_archive(source: Source, folder: Path, progress: ProgressCallback) -> Path:
    """Return the archive in the cache `folder`; download it if it is missing or damaged.

    Raises:
        UsageError: If the download fails, or the archive is not the one that is expected.
    """
    target = folder / cache_path(source)
    waiting = f"Waiting for another process that downloads {source.file}"
    with exclusive_lock(append_suffix(target, ".lock"), lambda: progress(waiting)):
        # An archive that task.toml does not pin must have the same hash as the first time.
        record = append_suffix(target, ".sha256")
        expected = source.sha256 or (record.read_text().strip() if record.exists() else "")
        if target.is_file():
            actual = file_sha256(target)
            if not expected:  # the user put it there
                record.write_text(actual)
            if actual == (expected or actual):
                return target
            progress(f"{source.file} in the cache is damaged; downloading it again")
            target.unlink()
        part = append_suffix(target, ".part")
        FETCHERS[source.kind](source, part, progress)
        actual = file_sha256(part)
        if actual != (expected or actual):
            discard_partial(part)
            fix = "update its sha256 in task.toml" if source.sha256 else f"delete {record}"
            raise UsageError(
                f"Archive changed: {source.kind} {source.name} {source.file} has sha256 {actual}, "
                f"not {expected}. If you trust the new one, {fix} and run again."
            )
        if not expected:
            record.write_text(actual)
        part.replace(target)
        discard_partial(part)
    return target


def cache_path(source: Source) -> Path:
    """Return where in the cache an archive belongs."""
    name = quote(source.name, safe="" if source.kind == "url" else "@/")
    path = Path(source.kind, name, quote(source.version, safe="") or "latest", source.file)
    if path.is_absolute() or ".." in path.parts:
        raise UsageError(f"Source {source.name} {source.file}: this name would leave the cache folder.")
    return path


def append_suffix(path: Path, suffix: str) -> Path:
    """Append a suffix to the name, after those it already has."""
    return path.with_name(path.name + suffix)


def file_sha256(path: Path) -> str:
    """Compute the hash by which registries and task.toml identify an archive."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
