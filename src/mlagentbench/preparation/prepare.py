"""Prepares a task's data once with its prepare.py, and finds it again for every run."""

import json
import logging
import os
import secrets
import subprocess
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from blake3 import blake3
from pydantic import ValidationError

from mlagentbench.errors import TaskFault, UsageError
from mlagentbench.formatting import last_lines
from mlagentbench.preparation.download_cache import fetch_archive
from mlagentbench.records import DataKind, Record
from mlagentbench.system.cache import build_once, cache_dir
from mlagentbench.system.hashing import hash_file, hash_tree
from mlagentbench.system.progress import ProgressCallback
from mlagentbench.task import Task

log = logging.getLogger(__name__)

DEFAULT_SEED = 20240721
MAX_OUTPUT_LINES = 200  # of the end of a failed prepare.py's output, for the log
MAX_ERROR_CHARS = 500


class DataStamp(Record):
    """The content of data.json, which is written when the data is complete."""

    hash: str
    files: dict[str, tuple[str, int]]


class PreparedData(Record):
    """The data of one instance of one edition of a task."""

    folder: Path
    hash: str
    files: dict[str, tuple[str, int]]

    @property
    def public(self) -> Path:
        """The files that the agent gets."""
        return self.folder / "public"

    @property
    def private(self) -> Path:
        """The answers, which never enter a sandbox."""
        return self.folder / "private"

    @property
    def instance(self) -> str:
        """The name by which a later run finds this data."""
        return self.folder.name

    @property
    def kind(self) -> DataKind:
        """How new the data is: public (the default instance, the same everywhere), fresh or twin."""
        seed = json.loads((self.private / "seed.json").read_text())
        if isinstance(seed, dict):
            return "twin"
        return "public" if seed == DEFAULT_SEED else "fresh"

    def verify_unchanged(self) -> None:
        """Check the data against its stamp.

        Raises:
            UsageError: If the data was changed after it was prepared.
        """
        if compute_stamp(self.folder) != DataStamp(hash=self.hash, files=self.files):
            raise UsageError(f"{self.folder} was changed after it was prepared. Delete it and run again.")


def prepare_data(
    task: Task, edition: str, progress: ProgressCallback, instance: str = "", fresh: bool = False
) -> PreparedData:
    """Return a task's data; prepare it if needed.

    Args:
        task: The task.
        edition: "open" or "paper".
        progress: Receives progress messages.
        instance: The name or hash of data that was prepared before.
        fresh: Draw a new seed instead of the default.

    Raises:
        UsageError: If the instance is not on this machine, or a source cannot be downloaded.
        TaskFault: If prepare.py fails.
    """
    if instance:
        return find_prepared_data(task, edition, instance)
    seed = secrets.randbits(63) if fresh else DEFAULT_SEED
    target = data_folder(task, edition, seed)
    if not target.exists():
        archives = {
            source.file: fetch_archive(source, cache_dir() / "downloads", progress)
            for source in task.edition(edition).sources
        }
        progress(f"Preparing data of {task.name} ({edition})")
        target.parent.mkdir(parents=True, exist_ok=True)
        build_once(target, lambda folder: build_data(task, edition, seed, archives, folder))
    return open_prepared_data(target)


def find_prepared_data(task: Task, edition: str, instance: str = "") -> PreparedData:
    """Find prepared data by the name or hash of its instance, by default the default instance."""
    default = data_folder(task, edition, DEFAULT_SEED)
    if not instance and default.exists():
        return open_prepared_data(default)
    for stamp in sorted(default.parent.glob(f"{edition}-*/data.json")):
        data = open_prepared_data(stamp.parent)
        if instance in (data.instance, data.hash):
            return data
    name = f"{instance or default.name} of task {task.name} ({edition})"
    raise UsageError(f"The data {name} is not prepared on this machine.")


def data_folder(task: Task, edition: str, seed: int) -> Path:
    """Return where data belongs that is made from these sources, with this code and this seed."""
    code = [path for path in sorted(task.folder.glob("*.py")) if path.name != "grade.py"]
    sources = [source.model_dump() for source in task.edition(edition).sources]
    inputs = [hash_tree(*code, task.folder / "data"), sources, seed]
    key = blake3(json.dumps(inputs, sort_keys=True).encode()).hexdigest()[:16]
    return cache_dir() / "data" / task.name / f"{edition}-{key}"


def build_data(task: Task, edition: str, seed: int, archives: dict[str, Path], folder: Path) -> None:
    """Prepare everything in `folder`, the stamp last."""
    raw, public, private = (folder / name for name in ("raw", "public", "private"))
    for subfolder in (raw, public, private):
        subfolder.mkdir(mode=0o700)
    for name, archive in archives.items():
        (raw / name).parent.mkdir(parents=True, exist_ok=True)
        (raw / name).symlink_to(archive)
    folders = {"task": task.folder, "raw": raw, "public": public, "private": private}
    run_prepare_script(task, json.dumps({**folders, "edition": edition, "seed": seed}, default=str))
    for path in sorted(raw.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
    raw.rmdir()
    seal_data(task, folder, seed)


def seal_data(task: Task, folder: Path, seed: int | dict[str, int]) -> None:
    """Store the seed, set all modes and write the stamp."""
    public, private = folder / "public", folder / "private"
    # The seed is stored nowhere else: with it, anyone could generate the answers.
    (private / "seed.json").write_text(json.dumps(seed))
    set_modes(task, public, 0o755, 0o644)
    set_modes(task, private, 0o700, 0o600)
    (folder / "data.json").write_text(compute_stamp(folder).model_dump_json(indent=1))


def run_prepare_script(task: Task, request: str) -> None:
    """Run prepare.py in its own process; `request` is the JSON that the process reads from stdin."""
    tail: deque[str] = deque(maxlen=MAX_OUTPUT_LINES)
    with subprocess.Popen(
        [sys.executable, "-P", "-B", "-m", "mlagentbench.preparation.prepare_process"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=dict(prepare_environment()),
        text=True,
        errors="replace",
    ) as child:
        assert child.stdin and child.stdout
        try:
            with suppress(BrokenPipeError):  # it died at once; its output says why
                print(request, file=child.stdin, flush=True)
            tail.extend(child.stdout)
            code = child.wait()
        except BaseException:
            child.kill()
            raise
    if code != 0:
        output = "".join(tail).strip()
        log.info("output of prepare.py of %s:\n%s", task.name, output)
        before, _, last_line = output.rpartition("\n")
        reason = last_line[-MAX_ERROR_CHARS:] or "no output"
        raise TaskFault(
            f"Task {task.name}: prepare.py failed (exit code {code}): {reason}", last_lines(before)
        )


def prepare_environment() -> Iterator[tuple[str, str]]:
    """Yield the few environment variables that prepare.py may see; tokens are not among them."""
    yield from ((name, os.environ[name]) for name in ("PATH", "HOME", "LANG") if name in os.environ)
    yield "PYTHONHASHSEED", "0"  # a split must not depend on the order of a set
    root = Path(__file__).parents[2]
    if root.name not in ("site-packages", "dist-packages"):
        yield "PYTHONPATH", str(root)


def set_modes(task: Task, root: Path, folder_mode: int, file_mode: int) -> None:
    """Set the modes of everything that was prepared; only regular files and folders are allowed."""
    root.chmod(folder_mode)
    for path in root.rglob("*"):
        if path.is_symlink() or not (path.is_dir() or path.is_file()):
            raise TaskFault(f"Task {task.name}: prepare.py left {path.name}, which is not a regular file")
        path.chmod(folder_mode if path.is_dir() else file_mode)


def compute_stamp(folder: Path) -> DataStamp:
    """Compute the stamp of the data as it is now."""
    public = folder / "public"
    files = {
        path.relative_to(public).as_posix(): (hash_file(path), path.stat().st_size)
        for path in sorted(public.rglob("*"))
        if path.is_file()
    }
    return DataStamp(hash=hash_tree(public, folder / "private"), files=files)


def open_prepared_data(folder: Path) -> PreparedData:
    """Open prepared data as its stamp describes it."""
    try:
        stamp = DataStamp.model_validate_json((folder / "data.json").read_text())
    except (OSError, ValidationError) as error:
        raise UsageError(f"{folder} is damaged. Delete it and run again.") from error
    return PreparedData(folder=folder, hash=stamp.hash, files=stamp.files)
