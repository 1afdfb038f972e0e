"""Format versions of files: a file of a newer program is not mistaken for a damaged one."""

from contextlib import suppress
from pathlib import Path

from pydantic import BaseModel, ValidationError

from mlagentbench.errors import UsageError
from mlagentbench.formatting import to_single_line


class FormatHeader(BaseModel):
    """The fields that run.json, batch.json and a bundle's manifest have in every version."""

    format: int = 1
    version: str = ""


def reject_newer_format(path: Path, data: bytes, supported_format: int) -> None:
    """Raise UsageError if `data`, read from `path`, has a newer format than this program supports."""
    header = FormatHeader()
    with suppress(ValidationError):
        header = FormatHeader.model_validate_json(data)
    if header.format > supported_format:
        version = to_single_line(header.version, 40)
        raise UsageError(
            f"{path} was written by a newer version of mlagentbench ({version}, format {header.format};"
            f" this one reads up to {supported_format}). Update it: pip install --upgrade mlagentbench"
        )
