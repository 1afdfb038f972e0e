"""Documentation of tasks: the guide shows the skeleton, and the reference lists every key of task.toml."""

import re
from collections.abc import Iterator
from pathlib import Path
from types import NoneType
from typing import Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from mlagentbench.authoring.skeletons import TEMPLATES_DIR
from mlagentbench.records import Baseline, Ceiling, Levels, Limits, Record
from mlagentbench.task import (
    Edition,
    GradedFunction,
    Grants,
    RuleViolation,
    Source,
    TaskConfig,
    TaskTraits,
    Twin,
)

DOCS = Path(__file__).parents[2] / "docs"
SIMPLE_TYPES = {str: "string", int: "integer", float: "number", bool: "boolean"}
TITLED_BLOCK = re.compile(r'^```\w+ title="([^"]+)"\n(.*?)^```$', re.MULTILINE | re.DOTALL)
ROW = re.compile(r"^\| `(\w+)` \| (.+?) \| (.+?) \| (.+) \|$")
TABLES = (
    TaskConfig,
    Limits,
    Twin,
    TaskTraits,
    GradedFunction,
    RuleViolation,
    Grants,
    Edition,
    Source,
    Levels,
    Baseline,
    Ceiling,
)


def test_the_guide_shows_the_files_that_new_task_writes() -> None:
    shown = dict(TITLED_BLOCK.findall((DOCS / "extend" / "task.md").read_text()))
    template = TEMPLATES_DIR / "task"
    files = {path.relative_to(template).as_posix(): path for path in template.rglob("*") if path.is_file()}
    written = {name: path.read_text() for name, path in files.items() if path.suffix != ".pyc"}
    assert {**shown, "README.md": written["README.md"]} == written


def describe_type(annotation: Any) -> str:
    """Name a field's type as the reference does."""
    arguments = get_args(annotation)
    if get_origin(annotation) is Literal:
        *first, last = (f'`"{value}"`' for value in arguments)
        return f"{', '.join(first)} or {last}"
    if get_origin(annotation) is tuple:
        return f"array of {pluralize(describe_type(arguments[0]))}"
    if get_origin(annotation) is dict:
        return f"table of {pluralize(describe_type(arguments[1]))}"
    if NoneType in arguments:
        return describe_type(Union[tuple(set(arguments) - {NoneType})])  # noqa: UP007
    return "table" if issubclass(annotation, Record) else SIMPLE_TYPES[annotation]


def pluralize(name: str) -> str:
    """Turn "array of strings" into "arrays of strings"."""
    noun, space, rest = name.partition(" ")
    return f"{noun}s{space}{rest}"


def describe_default(field: FieldInfo) -> str:
    """Write a field's default as the reference does."""
    default = field.get_default(call_default_factory=True)
    if default is PydanticUndefined:
        return "required"
    if default is None:
        return "none"
    if isinstance(default, Record | dict):
        return "`{}`"
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    if isinstance(default, tuple):
        return "`[]`"
    return f'`"{default}"`' if isinstance(default, str) else f"`{default:g}`"


def describe_fields(record: type[Record]) -> Iterator[tuple[str, str, str]]:
    """Yield name, type and default of every field of a table."""
    for name, field in record.model_fields.items():
        bounds = [f", > {limit.gt}" for limit in field.metadata if isinstance(limit, Gt)]
        bounds += [f", ≥ {limit.ge}" for limit in field.metadata if isinstance(limit, Ge)]
        yield name, describe_type(field.annotation) + "".join(bounds), describe_default(field)


def nested_records(record: type[Record]) -> set[type[Record]]:
    """Return a record and all records that its fields contain."""
    found = {record}
    for field in record.model_fields.values():
        pending = [field.annotation]
        while pending:
            annotation = pending.pop()
            pending += get_args(annotation)
            if isinstance(annotation, type) and issubclass(annotation, Record):
                found |= nested_records(annotation)
    return found


def test_the_reference_of_task_toml_lists_every_key_with_its_type_and_default() -> None:
    assert nested_records(TaskConfig) == set(TABLES)
    lines = (DOCS / "reference" / "task-toml.md").read_text().splitlines()
    documented = [match.groups()[:3] for line in lines if (match := ROW.match(line))]
    assert documented == [fields for table in TABLES for fields in describe_fields(table)]
