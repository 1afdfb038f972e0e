"""The cache of downloaded archives: each is fetched once and used only if its hash is right."""

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


def fetch_archive(source: Source, folder: Path, say: ProgressCallback) -> Path:
    """The archive in the cache `folder`, downloaded if it is not there or not right."""
    target = folder / cache_path(source)
    with exclusive_lock(
        append_suffix(target, ".lock"), lambda: say(f"waiting for another process that fetches {source.file}")
    ):
        record = append_suffix(
            target, ".sha256"
        )  # of an archive that task.toml cannot pin: it must stay what it was
        expected = source.sha256 or (record.read_text().strip() if record.exists() else "")
        if target.is_file():
            found = file_sha256(target)
            if not expected:  # laid there by hand
                record.write_text(found)
            if found == (expected or found):
                return target
            say(f"{source.file} in the cache is damaged; fetching it again")
            target.unlink()
        part = append_suffix(target, ".part")
        FETCHERS[source.kind](source, part, say)
        found = file_sha256(part)
        if found != (expected or found):
            discard_partial(part)
            mend = "update its sha256 in task.toml" if source.sha256 else f"remove {record}"
            raise UsageError(
                f"archive changed: {source.kind} {source.name} {source.file} has sha256 {found}, "
                f"not {expected}; if you trust the new one, {mend} and run again"
            )
        if not expected:
            record.write_text(found)
        part.replace(target)
        discard_partial(part)
    return target


def cache_path(source: Source) -> Path:
    """Where in the cache an archive belongs."""
    name = quote(source.name, safe="" if source.kind == "url" else "@/")
    path = Path(source.kind, name, quote(source.version, safe="") or "latest", source.file)
    if path.is_absolute() or ".." in path.parts:
        raise UsageError(f"source {source.name} {source.file}: not a name that can be kept in the cache")
    return path


def append_suffix(path: Path, suffix: str) -> Path:
    """The file with the same name and a suffix more."""
    return path.with_name(path.name + suffix)


def file_sha256(path: Path) -> str:
    """The hash by which registries and task.toml name an archive."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
