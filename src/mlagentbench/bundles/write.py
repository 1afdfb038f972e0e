"""Exports a run as one zip file that holds everything needed to inspect and verify it on another machine."""

import re
import shutil
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path
from zipfile import ZIP_STORED, ZipFile, ZipInfo

import mlagentbench
from mlagentbench.bundles.manifest import (
    FILE_PATTERN,
    MANIFEST_NAME,
    OBJECT_PATTERN,
    OBJECTS_DIR,
    SNAPSHOT_MANIFEST,
    BundleManifest,
)
from mlagentbench.errors import Fault, UsageError
from mlagentbench.preparation.prepare import PreparedData, find_prepared_data
from mlagentbench.providers.names import known_secrets
from mlagentbench.runner.folder import RunFolder
from mlagentbench.runtimes import base as runtimes
from mlagentbench.system.atomic_write import move_into_place, partial_path
from mlagentbench.system.cache import temporary_dir
from mlagentbench.system.hashing import hash_file
from mlagentbench.task import Task
from mlagentbench.workspace.manifest import Manifest
from mlagentbench.workspace.object_store import ObjectStore

ZIP_TIMESTAMP = (1980, 1, 1, 0, 0, 0)  # constant, so that the same run always gives the same bytes


def export_run(folder: RunFolder, target: Path, include_data: bool = True) -> BundleManifest:
    """Write a finished run as one file.

    Args:
        folder: The run to export.
        target: The zip file to create; it must not exist.
        include_data: Also store the public task files that the run folder only references by hash.

    Raises:
        UsageError: The run is unfinished, the target exists, data is missing, or a file contains an API key.
    """
    if folder.result is None:
        raise UsageError(f"{folder.path} is not finished. Finish it: mlagentbench resume {folder.path}")
    if target.exists():
        raise UsageError(f"{target} already exists. Remove it, or choose another file with -o.")
    with temporary_dir() as scratch:
        files = dict(_record_files(folder)) | dict(_object_files(folder, scratch, include_data))
        _refuse_secrets(files)
        manifest = BundleManifest(
            version=mlagentbench.__version__,
            run=folder.path.name,
            data=include_data,
            packages=_installed_packages(),
            runtime=_runtime_requirements(folder),
            files={name: (hash_file(path), path.stat().st_size) for name, path in sorted(files.items())},
        )
        _write_archive(manifest, files, target)
    return manifest


def _record_files(folder: RunFolder) -> Iterator[tuple[str, Path]]:
    nested = [path for name in ("outputs", "access") for path in (folder.path / name).glob("*")]
    for path in [*folder.path.iterdir(), *nested, folder.path / SNAPSHOT_MANIFEST]:
        name = path.relative_to(folder.path).as_posix()
        if FILE_PATTERN.fullmatch(name) and path.is_file() and not path.is_symlink():
            yield name, path


def _object_files(folder: RunFolder, scratch: Path, include_data: bool) -> Iterator[tuple[str, Path]]:
    """Every file content that a snapshot references, from the run folder or from the task's public data.

    Public data is compressed into `scratch` in the same way as in a run folder.
    """
    public: Mapping[str, Path] | None = None
    extra = ObjectStore(scratch / "objects", {})
    extra.open_for_writing()
    for name in sorted(_referenced_hashes(folder)):
        path = _find_object(folder.path / OBJECTS_DIR, name)
        if not path and include_data:
            public = _public_files(folder) if public is None else public
            if name not in public:
                raise UsageError(
                    f"{folder.path} references a file content that does not exist: {name[:12]}."
                    " Pass --without-data to leave it out."
                )
            with public[name].open("rb") as file:
                if extra.put(file.fileno())[0] != name:
                    raise UsageError(
                        f"{public[name]} was changed after preparation. Remove its folder and prepare again."
                    )
            path = _find_object(scratch / "objects", name)
        if path:
            yield f"{OBJECTS_DIR}/{name[:2]}/{path.name}", path


def _referenced_hashes(folder: RunFolder) -> set[str]:
    lines = Manifest(folder.path / SNAPSHOT_MANIFEST).lines()
    return {entry.hash for line in lines for entry in line.changed.values() if entry.kind == "file"}


def _find_object(objects: Path, name: str) -> Path | None:
    plain = objects / name[:2] / name[2:]
    return next((path for path in (plain, plain.with_name(f"{plain.name}.zst")) if path.is_file()), None)


def _public_files(folder: RunFolder) -> dict[str, Path]:
    """The files of the task's public data by hash; answers are not included."""
    try:
        prepared: PreparedData = find_prepared_data(
            Task.load(folder.spec.task), folder.spec.edition, folder.spec.hashes.data
        )
    except UsageError as error:
        raise UsageError(
            f"The run references public data: {error}. Prepare the task, or pass --without-data."
        ) from error
    return {name: prepared.public / path for path, (name, _) in prepared.files.items()}


def _refuse_secrets(files: Mapping[str, Path]) -> None:
    """Refuse to export an API key that is set on this machine, however it got into the record."""
    keys = [key.encode() for key in known_secrets("")]
    for name, path in files.items() if keys else ():
        if OBJECT_PATTERN.fullmatch(name):
            continue  # workspace contents: keys never enter a sandbox
        with path.open("rb") as file:
            if any(key in line for line in file for key in keys):
                raise UsageError(
                    f"{path} contains an API key that is set on this machine. The run cannot be exported."
                )


def _installed_packages() -> dict[str, str]:
    """The installed versions of the required dependencies of this package."""
    requirements = [line for line in metadata.requires("mlagentbench") or () if "extra ==" not in line]
    names = [re.split(r"[^\w.-]", line)[0] for line in requirements]
    return {name: metadata.version(name) for name in sorted(names)}


def _runtime_requirements(folder: RunFolder) -> tuple[str, ...]:
    """The pinned packages that the agent's scripts ran with, if this version still has that runtime."""
    for name in runtimes.runtime_names():
        if runtimes.find_runtime(name).hash == folder.spec.hashes.runtime:
            return tuple(runtimes.read_requirements(name))
    return ()


def _write_archive(manifest: BundleManifest, files: Mapping[str, Path], target: Path) -> None:
    partial = partial_path(target)
    try:
        with ZipFile(partial, "w", ZIP_STORED) as bundle:
            bundle.writestr(_zip_entry(MANIFEST_NAME), manifest.model_dump_json(indent=1))
            for name, (expected, size) in manifest.files.items():
                with files[name].open("rb") as source, bundle.open(_zip_entry(name, size), "w") as sink:
                    shutil.copyfileobj(source, sink, 1 << 20)
                if hash_file(files[name]) != expected:
                    raise Fault(f"{files[name]} changed during export")
        move_into_place(partial, target, exclusive=True)
    except FileExistsError:
        raise UsageError(f"{target} already exists. Remove it, or choose another file with -o.") from None
    except OSError as error:
        raise UsageError(f"Cannot write {target}: {error.strerror or error}") from error
    finally:
        partial.unlink(missing_ok=True)


def _zip_entry(name: str, size: int = 0) -> ZipInfo:
    entry = ZipInfo(name, ZIP_TIMESTAMP)
    entry.external_attr = 0o100644 << 16
    entry.file_size = size
    return entry
