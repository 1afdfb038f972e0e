"""Files that say in which format they are: one of a later version is told from a damaged one."""

from contextlib import suppress
from pathlib import Path

from pydantic import BaseModel, ValidationError

from mlagentbench.errors import UsageError
from mlagentbench.formatting import to_single_line


class FormatHeader(BaseModel):
    """What run.json, batch.json and a bundle's list say in every version, whatever else they say."""

    format: int = 1
    version: str = ""


def reject_newer_format(path: Path, data: bytes, known: int) -> None:
    """Say so if a file is of a later format than this version knows; it may have fields that nobody knew of."""
    written = FormatHeader()
    with suppress(ValidationError):
        written = FormatHeader.model_validate_json(data)
    if written.format > known:
        by = to_single_line(written.version, 40)
        raise UsageError(
            f"{path} was written by a newer version of mlagentbench ({by}, format {written.format}; this one"
            f" reads up to {known}): update it with pip install --upgrade mlagentbench"
        )
