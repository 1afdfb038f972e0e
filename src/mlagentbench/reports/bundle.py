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
from mlagentbench.hashing import file_hash
from mlagentbench.home import scratch
from mlagentbench.preparation.prepare import Prepared, lookup
from mlagentbench.providers.names import secrets
from mlagentbench.records import Record
from mlagentbench.runner.folder import RunFolder
from mlagentbench.runtimes import base as runtimes
from mlagentbench.task import Task
from mlagentbench.workspace.manifest import Manifest
from mlagentbench.workspace.objects import Objects

CONTENTS = "MANIFEST.json"
FORMAT = 1
EPOCH = (1980, 1, 1, 0, 0, 0)  # the same run makes the same bytes, whenever and wherever
STEPS, OBJECTS = "snapshots/manifest.jsonl", "snapshots/objects"
OBJECT = re.compile(rf"{OBJECTS}/([0-9a-f]{{2}})/([0-9a-f]{{62}})(\.zst)?")
FILE = re.compile(
    r"(run|result|result-\d{1,4}|judged)\.json|(trace|model_calls|grades)\.jsonl|agent\.py|crash\.txt"
    rf"|outputs/[\w-]{{1,100}}\.txt|access/step-\d{{4,9}}\.jsonl|{STEPS}|{OBJECT.pattern}",
    re.ASCII,
)


class Contents(Record):
    """MANIFEST.json: what a bundle holds by hash and size, and by which packages it was made and can be run."""

    format: int = FORMAT
    version: str
    run: str
    data: bool
    packages: dict[str, str]
    runtime: tuple[str, ...] = ()
    files: dict[str, tuple[str, int]]


def export(folder: RunFolder, target: Path, data: bool = True) -> Contents:
    """Write a finished run as one file; `data` takes along the public files that it refers to by hash only."""
    if folder.result is None:
        raise UsageError(f"{folder.path} is not finished: mlagentbench resume {folder.path}")
    if target.exists():
        raise UsageError(f"{target} is there already; remove it, or name another file with -o")
    with scratch() as room:
        files = dict(_record(folder)) | dict(_objects(folder, room, data))
        _refuse_secrets(files)
        contents = Contents(
            version=mlagentbench.__version__,
            run=folder.path.name,
            data=data,
            packages=_packages(),
            runtime=_runtime(folder),
            files={name: (file_hash(path), path.stat().st_size) for name, path in sorted(files.items())},
        )
        _write(contents, files, target)
    return contents


def _record(folder: RunFolder) -> Iterator[tuple[str, Path]]:
    inner = [path for name in ("outputs", "access") for path in (folder.path / name).glob("*")]
    for path in [*folder.path.iterdir(), *inner, folder.path / STEPS]:
        name = path.relative_to(folder.path).as_posix()
        if FILE.fullmatch(name) and path.is_file() and not path.is_symlink():
            yield name, path


def _objects(folder: RunFolder, room: Path, data: bool) -> Iterator[tuple[str, Path]]:
    """Every content that a snapshot names: from the run, or packed as it would be there from the task's public data."""
    known: Mapping[str, Path] | None = None
    extra = Objects(room / "objects", {})
    extra.prepare()
    for name in sorted(_named(folder)):
        found = _stored(folder.path / OBJECTS, name)
        if not found and data:
            known = _public(folder) if known is None else known
            if name not in known:
                raise UsageError(
                    f"{folder.path} refers to a content that is nowhere: {name[:12]}; --without-data leaves it out"
                )
            with known[name].open("rb") as file:
                if extra.put(file.fileno())[0] != name:
                    raise UsageError(
                        f"{known[name]} was changed after it was prepared; remove its folder and prepare again"
                    )
            found = _stored(room / "objects", name)
        if found:
            yield f"{OBJECTS}/{name[:2]}/{found.name}", found


def _named(folder: RunFolder) -> set[str]:
    lines = Manifest(folder.path / STEPS).lines()
    return {entry.hash for line in lines for entry in line.changed.values() if entry.kind == "file"}


def _stored(objects: Path, name: str) -> Path | None:
    plain = objects / name[:2] / name[2:]
    return next((path for path in (plain, plain.with_name(f"{plain.name}.zst")) if path.is_file()), None)


def _public(folder: RunFolder) -> dict[str, Path]:
    """The files of the task's public data by their hash; the answers are not among them."""
    try:
        prepared: Prepared = lookup(Task.load(folder.spec.task), folder.spec.edition, folder.spec.hashes.data)
    except UsageError as error:
        raise UsageError(f"the run refers to public data: {error}; prepare it, or pass --without-data") from error
    return {name: prepared.public / path for path, (name, _) in prepared.files.items()}


def _refuse_secrets(files: Mapping[str, Path]) -> None:
    """No key that this machine has goes out with a run, however it came into the record."""
    keys = [key.encode() for key in secrets("")]
    for name, path in files.items() if keys else ():
        if OBJECT.fullmatch(name):
            continue  # of the workspace, which never sees one
        with path.open("rb") as file:
            if any(key in line for line in file for key in keys):
                raise UsageError(f"{path} holds a key that is set on this machine: it cannot be exported")


def _packages() -> dict[str, str]:
    """What this package needs, as it is installed here."""
    wanted = [
        re.split(r"[^\w.-]", need)[0] for need in metadata.requires("mlagentbench") or () if "extra ==" not in need
    ]
    return {name: metadata.version(name) for name in sorted(wanted)}


def _runtime(folder: RunFolder) -> tuple[str, ...]:
    """The pinned packages with which the agent's scripts ran, if this version still knows them."""
    for name in runtimes.names():
        if runtimes.runtime(name).hash == folder.spec.hashes.runtime:
            return tuple(runtimes.requirements(name))
    return ()


def _write(contents: Contents, files: Mapping[str, Path], target: Path) -> None:
    partial = target.with_name(f"{target.name}.{os.getpid()}.part")  # two exports do not write into one
    try:
        with ZipFile(partial, "w", ZIP_STORED) as bundle:
            bundle.writestr(_entry(CONTENTS), contents.model_dump_json(indent=1))
            for name, (expected, size) in contents.files.items():
                with files[name].open("rb") as source, bundle.open(_entry(name, size), "w") as sink:
                    shutil.copyfileobj(source, sink, 1 << 20)
                if file_hash(files[name]) != expected:
                    raise Fault(f"{files[name]} changed while it was exported")
        os.link(partial, target)
    except FileExistsError:
        raise UsageError(f"{target} is there already; remove it, or name another file with -o") from None
    except OSError as error:
        raise UsageError(f"cannot write {target}: {error.strerror or error}") from error
    finally:
        partial.unlink(missing_ok=True)


def _entry(name: str, size: int = 0) -> ZipInfo:
    entry = ZipInfo(name, EPOCH)
    entry.external_attr = 0o100644 << 16
    entry.file_size = size
    return entry
