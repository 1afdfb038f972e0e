"""access/step-0007.jsonl of a run folder: what the commands of a step opened, and which sockets they tried."""

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
    """A file or a socket, one way of using it, how often that was tried, and how often in vain."""

    path: str
    mode: AccessMode
    count: int
    refused: int = 0

    @property
    def always_refused(self) -> bool:
        """Whether it never went through."""
        return self.refused >= self.count

    @property
    def summary(self) -> str:
        """What was tried, how often and whether in vain, in a few words."""
        often = f" ×{self.count:,}" if self.count > 1 else ""
        vain = "refused" if self.always_refused else f"{self.refused:,} refused" if self.refused else ""
        return f"{self.mode}{often}{', ' if vain else ''}{vain}"


def access_file(run: Path, step: int) -> Path:
    """Where the accesses of a step are kept."""
    return run / ACCESS_FOLDER / f"step-{step:04d}.jsonl"


def remove_accesses_after(run: Path, step: int) -> None:
    """Steps that will be done again, or never, leave nothing behind."""
    kept = access_file(run, step).name
    for path in (run / ACCESS_FOLDER).glob("step-*.jsonl"):
        if (len(path.name), path.name) > (len(kept), kept):
            path.unlink()


def read_access(run: Path, step: int) -> tuple[Access, ...]:
    """What the commands of a step did, in the order of first tries; nothing if there were none, or no ledger."""
    path = access_file(run, step)
    if not path.is_file():
        return ()
    try:
        return tuple(Access.model_validate_json(line) for line in path.read_bytes().splitlines())
    except ValidationError as error:
        raise Fault(f"{path} is damaged: {error.errors()[0]['msg']}") from error


def unexpected_accesses(accesses: Iterable[Access]) -> tuple[Access, ...]:
    """Those that an honest command has no reason for."""
    return tuple(access for access in accesses if not _is_expected(access))


def _is_expected(access: Access) -> bool:
    if access.path.startswith("/") or access.path.startswith("unix:/"):
        return bool(expected_prefix(access.path.removeprefix("unix:"))) or _is_library_search(access)
    return is_local_address(access.path)


def _is_library_search(access: Access) -> bool:
    """The loader looks for libraries where whoever built them had them, and finds none."""
    return access.always_refused and access.mode == "read" and bool(SHARED_LIBRARY.search(access.path))
