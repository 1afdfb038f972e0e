"""docs/reference/run-folder.md describes every field of every file, and nothing else."""

import json
import re
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import pytest
from pydantic.fields import FieldInfo

import mlagentbench
from mlagentbench import records
from mlagentbench.analysis.anytime import StepGrade
from mlagentbench.process.judgements import RunJudgements
from mlagentbench.records import Record, Result
from mlagentbench.runner.batch.folder import BatchRecord
from mlagentbench.runner.batch.index import COLUMNS
from mlagentbench.sandbox.access_log.records import Access

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "run-folder.md").read_text(encoding="utf-8")
ROOTS = [
    records.RunSpec,
    records.Step,
    records.ModelCall,
    Result,
    Access,
    StepGrade,
    RunJudgements,
    BatchRecord,
]
TYPE_NAMES = {
    str: "string",
    Path: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    Any: "any value",
}


def describe_type(annotation: Any) -> str:
    """The JSON type of a field, with records by name."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return describe_type(arguments[0])
    if origin is Literal:
        return ", ".join(f"`{value}`" for value in arguments)
    if origin in (Union, UnionType):
        return (
            " or ".join(describe_type(member) for member in arguments if member is not NoneType) + " or null"
        )
    if origin is tuple:
        return f"list of {describe_type(arguments[0])}"
    if origin is dict:
        return f"object of {describe_type(arguments[1])}"
    if isinstance(annotation, type) and issubclass(annotation, Record):
        return f"[{annotation.__name__}](#{annotation.__name__.lower()})"
    return TYPE_NAMES[annotation]


def describe_default(field: FieldInfo) -> str:
    """The default as JSON, or "required"."""
    if field.is_required():
        return "required"
    default = field.get_default(call_default_factory=True)
    if default == mlagentbench.__version__:
        return "this version"
    if isinstance(default, Record):
        default = default.model_dump(exclude_defaults=True)
    return f"`{json.dumps(default, default=str)}`"


def expected_rows(record: type[Record]) -> list[str]:
    """The first three cells of each row: they follow from the record."""
    return [
        f"| `{name}` | {describe_type(field.annotation)} | {describe_default(field)} |"
        for name, field in record.model_fields.items()
    ]


def nested_records(record: type[Record]) -> set[type[Record]]:
    """The records that fields of a record hold, at any depth."""
    found: set[type[Record]] = set()

    def visit(annotation: Any) -> None:
        if isinstance(annotation, type) and issubclass(annotation, Record) and annotation not in found:
            found.add(annotation)
            for field in annotation.model_fields.values():
                visit(field.annotation)
        for argument in get_args(annotation):
            visit(argument)

    visit(record)
    return found


RECORDS = sorted(
    {nested for root in ROOTS for nested in nested_records(root)}, key=lambda record: record.__name__
)


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.__name__)
def test_the_reference_lists_the_fields_types_and_defaults_of_every_record(record: type[Record]) -> None:
    _, heading, section = PAGE.partition(f"\n### {record.__name__}\n")
    assert heading, f"the page has no section for {record.__name__}"
    section = re.split(r"\n##", section)[0]
    table = section.partition("| field |")[2].partition("\n\n")[0].splitlines()[2:]
    cells = [re.fullmatch(r"(\| `\w+` \| .* \| .* \|) (\S.*) \|", row) for row in table]
    assert all(cells), table
    assert [cell[1] for cell in cells if cell] == expected_rows(record)


def test_the_reference_has_no_section_for_a_record_that_does_not_exist() -> None:
    sections = re.findall(r"^### (\w+)$", PAGE, flags=re.M)
    assert sorted(sections) == [record.__name__ for record in RECORDS]


def test_the_reference_lists_the_columns_of_the_index() -> None:
    listed = PAGE.rpartition("columns of their own:\n\n")[2]
    assert tuple(re.findall(r"`(\w+)`", listed)) == COLUMNS


def test_every_file_of_a_recorded_run_is_in_the_reference() -> None:
    """tests/formats/1 is a run folder of format 1."""
    folder = Path(__file__).parents[1] / "formats" / "1"
    names = {path.relative_to(folder).parts[0] for path in folder.rglob("*") if path.is_file()}
    table = PAGE.partition("## Files of a run\n")[2].partition("\n## ")[0]
    assert {name for name in names if f"`{name}" not in table} == set()
