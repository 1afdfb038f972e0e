"""Suggests the key that a user may have meant, if a file has one that does not exist."""

import inspect
import types
from difflib import get_close_matches
from typing import Any, Union, get_args, get_origin

from pydantic import ValidationError

from mlagentbench.records import Record

MIN_SIMILARITY = 0.7


def suggest_key(error: ValidationError, record: type[Record]) -> str:
    """Suggest a key of `record` or its tables for the first unknown one; empty if no key is unknown."""
    unknown = [problem["loc"] for problem in error.errors() if problem["type"] == "extra_forbidden"]
    if not unknown:
        return ""
    *parents, key = unknown[0]
    table: Any = record
    for parent in parents:
        table = _descend(table, parent)
    known = list(table.model_fields) if _is_record(table) else []
    if similar := get_close_matches(str(key), known, 1, cutoff=MIN_SIMILARITY):
        return f"did you mean {similar[0]!r}?"
    return f"available: {', '.join(known)}" if known else ""


def _descend(annotation: Any, part: int | str) -> Any:
    """The type of a field of a record, or of an item of a table or list."""
    if _is_record(annotation):
        field = annotation.model_fields.get(part)
        return _without_none(field.annotation) if field else None
    arguments = get_args(annotation)
    if get_origin(annotation) is dict:
        return _without_none(arguments[1])
    return _without_none(arguments[0]) if arguments else None


def _without_none(annotation: Any) -> Any:
    if get_origin(annotation) in (Union, types.UnionType):
        return next(argument for argument in get_args(annotation) if argument is not types.NoneType)
    return annotation


def _is_record(annotation: Any) -> bool:
    return inspect.isclass(annotation) and issubclass(annotation, Record)
