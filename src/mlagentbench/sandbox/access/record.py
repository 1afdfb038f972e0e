"""access/step-0007.jsonl of a run folder: what the commands of a step opened, and which sockets they tried."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from mlagentbench.errors import Fault
from mlagentbench.records import Record
from mlagentbench.sandbox.access.places import is_near, place_of

FOLDER = "access"
LIBRARY = re.compile(r"\.so(\.\d+)*$")
Mode = Literal["read", "write", "execute", "connect", "bind", "send"]


class Access(Record):
    """A file or a socket, one way of using it, how often that was tried, and how often in vain."""

    path: str
    mode: Mode
    count: int
    refused: int = 0

    @property
    def in_vain(self) -> bool:
        """Whether it never went through."""
        return self.refused >= self.count

    @property
    def deed(self) -> str:
        """What was tried, how often and whether in vain, in a few words."""
        often = f" ×{self.count:,}" if self.count > 1 else ""
        vain = "refused" if self.in_vain else f"{self.refused:,} refused" if self.refused else ""
        return f"{self.mode}{often}{', ' if vain else ''}{vain}"


def file_of(run: Path, step: int) -> Path:
    """Where the accesses of a step are kept."""
    return run / FOLDER / f"step-{step:04d}.jsonl"


def forget_after(run: Path, step: int) -> None:
    """Steps that will be done again, or never, leave nothing behind."""
    kept = file_of(run, step).name
    for path in (run / FOLDER).glob("step-*.jsonl"):
        if (len(path.name), path.name) > (len(kept), kept):
            path.unlink()


def read_access(run: Path, step: int) -> tuple[Access, ...]:
    """What the commands of a step did, in the order of first tries; nothing if there were none, or no ledger."""
    path = file_of(run, step)
    if not path.is_file():
        return ()
    try:
        return tuple(Access.model_validate_json(line) for line in path.read_bytes().splitlines())
    except ValidationError as error:
        raise Fault(f"{path} is damaged: {error.errors()[0]['msg']}") from error


def foreign(accesses: Iterable[Access]) -> tuple[Access, ...]:
    """Those that an honest command has no reason for."""
    return tuple(access for access in accesses if not _ordinary(access))


def _ordinary(access: Access) -> bool:
    if access.path.startswith("/") or access.path.startswith("unix:/"):
        return bool(place_of(access.path.removeprefix("unix:"))) or _searched(access)
    return is_near(access.path)


def _searched(access: Access) -> bool:
    """The loader looks for libraries where whoever built them had them, and finds none."""
    return access.in_vain and access.mode == "read" and bool(LIBRARY.search(access.path))
