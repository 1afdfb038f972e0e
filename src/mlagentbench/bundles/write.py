"""One run as one file, that holds all that is needed to look at it and to verify it elsewhere."""

import os
import re
import shutil
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path
from zipfile import ZIP_STORED, ZipFile, ZipInfo

import mlagentbench
from mlagentbench.errors import Fault, UsageError
from mlagentbench.preparation.prepare import PreparedData, find_prepared_data
from mlagentbench.providers.names import known_secrets
from mlagentbench.records import Record
from mlagentbench.runner.folder import RunFolder
from mlagentbench.runtimes import base as runtimes
from mlagentbench.system.cache import temporary_dir
from mlagentbench.system.hashing import hash_file
from mlagentbench.task import Task
from mlagentbench.workspace.manifest import Manifest
from mlagentbench.workspace.object_store import ObjectStore

MANIFEST_NAME = "MANIFEST.json"
BUNDLE_FORMAT = 1
ZIP_TIMESTAMP = (1980, 1, 1, 0, 0, 0)  # the same run makes the same bytes, whenever and wherever
SNAPSHOT_MANIFEST, OBJECTS_DIR = "snapshots/manifest.jsonl", "snapshots/objects"
OBJECT_PATTERN = re.compile(rf"{OBJECTS_DIR}/([0-9a-f]{{2}})/([0-9a-f]{{62}})(\.zst)?")
FILE_PATTERN = re.compile(
    r"(run|result|result-\d{1,4}|judged)\.json|(trace|model_calls|grades)\.jsonl|agent\.py|crash\.txt"
    rf"|outputs/[\w-]{{1,100}}\.txt|access/step-\d{{4,9}}\.jsonl|{SNAPSHOT_MANIFEST}|{OBJECT_PATTERN.pattern}",
    re.ASCII,
)


class BundleManifest(Record):
    """MANIFEST.json: what a bundle holds by hash and size, and by which packages it was made and can be run."""

    format: int = BUNDLE_FORMAT
    version: str
    run: str
    data: bool
    packages: dict[str, str]
    runtime: tuple[str, ...] = ()
    files: dict[str, tuple[str, int]]


def export_run(folder: RunFolder, target: Path, include_data: bool = True) -> BundleManifest:
    """Write a finished run as one file; `data` takes along the public files that it refers to by hash only."""
    if folder.result is None:
        raise UsageError(f"{folder.path} is not finished: mlagentbench resume {folder.path}")
    if target.exists():
        raise UsageError(f"{target} is there already; remove it, or name another file with -o")
    with temporary_dir() as room:
        files = dict(_record_files(folder)) | dict(_object_files(folder, room, include_data))
        _refuse_secrets(files)
        contents = BundleManifest(
            version=mlagentbench.__version__,
            run=folder.path.name,
            data=include_data,
            packages=_installed_packages(),
            runtime=_runtime_requirements(folder),
            files={name: (hash_file(path), path.stat().st_size) for name, path in sorted(files.items())},
        )
        _write_archive(contents, files, target)
    return contents


def _record_files(folder: RunFolder) -> Iterator[tuple[str, Path]]:
    inner = [path for name in ("outputs", "access") for path in (folder.path / name).glob("*")]
    for path in [*folder.path.iterdir(), *inner, folder.path / SNAPSHOT_MANIFEST]:
        name = path.relative_to(folder.path).as_posix()
        if FILE_PATTERN.fullmatch(name) and path.is_file() and not path.is_symlink():
            yield name, path


def _object_files(folder: RunFolder, room: Path, data: bool) -> Iterator[tuple[str, Path]]:
    """Every content that a snapshot names: from the run, or packed as it would be there from the task's public data."""
    known: Mapping[str, Path] | None = None
    extra = ObjectStore(room / "objects", {})
    extra.open_for_writing()
    for name in sorted(_referenced_hashes(folder)):
        found = _find_object(folder.path / OBJECTS_DIR, name)
        if not found and data:
            known = _public_files(folder) if known is None else known
            if name not in known:
                raise UsageError(
                    f"{folder.path} refers to a content that is nowhere: {name[:12]}; --without-data leaves it out"
                )
            with known[name].open("rb") as file:
                if extra.put(file.fileno())[0] != name:
                    raise UsageError(
                        f"{known[name]} was changed after it was prepared; remove its folder and prepare again"
                    )
            found = _find_object(room / "objects", name)
        if found:
            yield f"{OBJECTS_DIR}/{name[:2]}/{found.name}", found


def _referenced_hashes(folder: RunFolder) -> set[str]:
    lines = Manifest(folder.path / SNAPSHOT_MANIFEST).lines()
    return {entry.hash for line in lines for entry in line.changed.values() if entry.kind == "file"}


def _find_object(objects: Path, name: str) -> Path | None:
    plain = objects / name[:2] / name[2:]
    return next((path for path in (plain, plain.with_name(f"{plain.name}.zst")) if path.is_file()), None)


def _public_files(folder: RunFolder) -> dict[str, Path]:
    """The files of the task's public data by their hash; the answers are not among them."""
    try:
        prepared: PreparedData = find_prepared_data(
            Task.load(folder.spec.task), folder.spec.edition, folder.spec.hashes.data
        )
    except UsageError as error:
        raise UsageError(
            f"the run refers to public data: {error}; prepare it, or pass --without-data"
        ) from error
    return {name: prepared.public / path for path, (name, _) in prepared.files.items()}


def _refuse_secrets(files: Mapping[str, Path]) -> None:
    """No key that this machine has goes out with a run, however it came into the record."""
    keys = [key.encode() for key in known_secrets("")]
    for name, path in files.items() if keys else ():
        if OBJECT_PATTERN.fullmatch(name):
            continue  # of the workspace, which never sees one
        with path.open("rb") as file:
            if any(key in line for line in file for key in keys):
                raise UsageError(f"{path} holds a key that is set on this machine: it cannot be exported")


def _installed_packages() -> dict[str, str]:
    """What this package needs, as it is installed here."""
    wanted = [
        re.split(r"[^\w.-]", need)[0]
        for need in metadata.requires("mlagentbench") or ()
        if "extra ==" not in need
    ]
    return {name: metadata.version(name) for name in sorted(wanted)}


def _runtime_requirements(folder: RunFolder) -> tuple[str, ...]:
    """The pinned packages with which the agent's scripts ran, if this version still knows them."""
    for name in runtimes.runtime_names():
        if runtimes.find_runtime(name).hash == folder.spec.hashes.runtime:
            return tuple(runtimes.read_requirements(name))
    return ()


def _write_archive(contents: BundleManifest, files: Mapping[str, Path], target: Path) -> None:
    partial = target.with_name(f"{target.name}.{os.getpid()}.part")  # two exports do not write into one
    try:
        with ZipFile(partial, "w", ZIP_STORED) as bundle:
            bundle.writestr(_zip_entry(MANIFEST_NAME), contents.model_dump_json(indent=1))
            for name, (expected, size) in contents.files.items():
                with files[name].open("rb") as source, bundle.open(_zip_entry(name, size), "w") as sink:
                    shutil.copyfileobj(source, sink, 1 << 20)
                if hash_file(files[name]) != expected:
                    raise Fault(f"{files[name]} changed while it was exported")
        os.link(partial, target)
    except FileExistsError:
        raise UsageError(f"{target} is there already; remove it, or name another file with -o") from None
    except OSError as error:
        raise UsageError(f"cannot write {target}: {error.strerror or error}") from error
    finally:
        partial.unlink(missing_ok=True)


def _zip_entry(name: str, size: int = 0) -> ZipInfo:
    entry = ZipInfo(name, ZIP_TIMESTAMP)
    entry.external_attr = 0o100644 << 16
    entry.file_size = size
    return entry
