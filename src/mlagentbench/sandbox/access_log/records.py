"""access/step-0007.jsonl in a run folder: which files and sockets the commands of a step tried to open."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from mlagentbench.errors import Fault
from mlagentbench.records import Record
from mlagentbench.sandbox.access_log.expected_paths import expected_prefix, is_local_address

ACCESS_FOLDER = "access"
SHARED_LIBRARY = re.compile(r"\.so(\.\d+)*$")
AccessMode = Literal["read", "write", "execute", "connect", "bind", "send"]


class Access(Record):
    """A file or socket, the mode of access, how often it was tried, and how often refused."""

    path: str
    mode: AccessMode
    count: int
    refused: int = 0

    @property
    def always_refused(self) -> bool:
        """Whether no attempt succeeded."""
        return self.refused >= self.count

    @property
    def summary(self) -> str:
        """Mode, count and refusals in a few words."""
        count = f" ×{self.count:,}" if self.count > 1 else ""
        refused = "refused" if self.always_refused else f"{self.refused:,} refused" if self.refused else ""
        return f"{self.mode}{count}{', ' if refused else ''}{refused}"


def access_file(run_folder: Path, step: int) -> Path:
    """The file with the accesses of a step."""
    return run_folder / ACCESS_FOLDER / f"step-{step:04d}.jsonl"


def remove_accesses_after(run_folder: Path, step: int) -> None:
    """Remove the accesses of later steps, which will be repeated or dropped."""
    last = access_file(run_folder, step).name
    for path in (run_folder / ACCESS_FOLDER).glob("step-*.jsonl"):
        if (len(path.name), path.name) > (len(last), last):
            path.unlink()


def read_access(run_folder: Path, step: int) -> tuple[Access, ...]:
    """The accesses of a step in order of first attempt; () if there were none, or nothing was recorded."""
    path = access_file(run_folder, step)
    if not path.is_file():
        return ()
    try:
        return tuple(Access.model_validate_json(line) for line in path.read_bytes().splitlines())
    except ValidationError as error:
        raise Fault(f"{path} is damaged: {error.errors()[0]['msg']}") from error


def unexpected_accesses(accesses: Iterable[Access]) -> tuple[Access, ...]:
    """The accesses that an honest command has no reason for."""
    return tuple(access for access in accesses if not _is_expected(access))


def _is_expected(access: Access) -> bool:
    if access.path.startswith("/") or access.path.startswith("unix:/"):
        return bool(expected_prefix(access.path.removeprefix("unix:"))) or _is_library_search(access)
    return is_local_address(access.path)


def _is_library_search(access: Access) -> bool:
    """Whether the loader searched for a library in a path of the build machine, and did not find it."""
    return access.always_refused and access.mode == "read" and bool(SHARED_LIBRARY.search(access.path))
