"""What an exported environment consists of, for the environment that runs it without an image."""

from pydantic import ValidationError

from mlagentbench.errors import UsageError
from mlagentbench.records import Record
from mlagentbench.task import describe_validation_error

DEFINITION_FILE = "bwrap.json"  # beside the Dockerfile


class EnvironmentDefinition(Record):
    """The Python packages, and the folders that are copied in."""

    runtime: str
    folders: dict[str, str]  # from a folder beside this file to a path inside

    @classmethod
    def parse(cls, text: bytes, name: str) -> "EnvironmentDefinition":
        """Read the content of the file.

        Raises:
            UsageError: It is not a definition.
        """
        try:
            return cls.model_validate_json(text)
        except ValidationError as error:
            raise UsageError(f"{name}: {describe_validation_error(error)}") from error
