"""Reads the fields of requests: JSON values of untrusted programs, checked one by one."""

import re
from collections.abc import Collection
from typing import get_args

from pydantic import ValidationError
from pydantic_core import from_json

from mlagentbench.endpoint.base import Json, MalformedRequest, UnsupportedRequest
from mlagentbench.records import ReplyFormat, Sampling, Tool

# JSON escapes some characters as a surrogate pair; a program that cuts text by length may leave half of one.
SURROGATE_ESCAPE = re.compile(
    rb"\\(?:\\|u[dD][89abAB][\da-fA-F]{2}\\u[dD][c-fC-F][\da-fA-F]{2}|(?P<half>u[dD][89a-fA-F][\da-fA-F]{2}))"
)
EFFORTS = get_args(Sampling.model_fields["effort"].annotation)
# A budget of thinking tokens as the nearest level of effort.
MAX_BUDGET_BY_EFFORT = {"none": 0, "low": 4096, "medium": 16_384}


def parse_body(data: bytes) -> Json:
    """Parse the body of a request; unpaired surrogates are replaced instead of invalidating it."""
    try:
        body = from_json(
            SURROGATE_ESCAPE.sub(lambda match: b"\\ufffd" if match["half"] else match[0], data),
            allow_inf_nan=False,
        )
    except ValueError as error:
        raise MalformedRequest(f"The request is not JSON: {error}") from error
    if not isinstance(body, dict):
        raise MalformedRequest("The request must be a JSON object.")
    return body


def refuse_unknown_fields(body: Json, carried: Collection[str], neutral: Collection[str]) -> None:
    """Refuse a request with a field that is neither passed to the model nor without effect on the reply."""
    for name, value in body.items():
        if name not in carried and name not in neutral and value not in (None, False, 0, "", [], {}):
            raise UnsupportedRequest(f"The field {name} cannot be passed to the model of this run.")


def object_field(body: Json, name: str) -> Json:
    """An object in the body; empty if it is missing."""
    value = body.get(name) or {}
    if not isinstance(value, dict):
        raise MalformedRequest(f"{name} must be an object.")
    return value


def list_field(body: Json, name: str) -> list[Json]:
    """A list of objects in the body; empty if it is missing."""
    value = body.get(name) or []
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise MalformedRequest(f"{name} must be a list of objects.")
    return value


def text_field(body: Json, name: str) -> str:
    """A string in the body; empty if it is missing."""
    value = body.get(name)
    if not isinstance(value, str | None):
        raise MalformedRequest(f"{name} must be a string.")
    return value or ""


def number_field(body: Json, name: str) -> float | None:
    """A number in the body, or None."""
    value = body.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float | None):
        raise MalformedRequest(f"{name} must be a number.")
    return value


def integer_field(body: Json, name: str) -> int | None:
    """A whole number in the body, or None."""
    value = number_field(body, name)
    if value is not None and value != int(value):
        raise MalformedRequest(f"{name} must be a whole number.")
    return None if value is None else int(value)


def flag_field(body: Json, name: str) -> bool | None:
    """True or false in the body, or None."""
    value = body.get(name)
    if not isinstance(value, bool | None):
        raise MalformedRequest(f"{name} must be true or false.")
    return value


def content_text(content: object) -> str:
    """The text of a message's content, which may be in parts; parts that are not text are refused."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise MalformedRequest("content must be a string or a list of parts.")
    return "\n".join(_part_text(part) for part in content)


def _part_text(part: object) -> str:
    if isinstance(part, str):
        return part
    if not isinstance(part, dict):
        raise MalformedRequest("A part of content must be an object.")
    if "text" in part:
        return text_field(part, "text")
    if "refusal" in part:
        return text_field(part, "refusal")
    raise unsupported_part(str(part.get("type", "part")))


def unsupported_part(kind: str) -> UnsupportedRequest:
    """The error for a part of a message that is not text."""
    what = "images" if "image" in kind else f"parts of type {kind!r}"
    return UnsupportedRequest(f"Only text can be passed to the model of this run, not {what}.")


def parse_stop_sequences(value: object) -> tuple[str, ...]:
    """Parse one, several or no stop sequences."""
    sequences = [] if value is None else [value] if isinstance(value, str) else value
    if not isinstance(sequences, list) or not all(isinstance(sequence, str) for sequence in sequences):
        raise MalformedRequest("Stop sequences must be strings.")
    return tuple(sequence for sequence in sequences if sequence)


def parse_token_limit(body: Json, *names: str) -> int | None:
    """The limit for the reply: the first of these fields that is a positive number."""
    limits = (integer_field(body, name) for name in names)
    return next((limit for limit in limits if limit is not None and limit > 0), None)


def parse_tool(definition: Json, parameters_field: str) -> Tool:
    """Parse the definition of a function.

    Its arguments are strict only if the program says so: for strict mode, schemas are changed.
    """
    return Tool(
        name=required_name(definition),
        description=text_field(definition, "description"),
        parameters=object_field(definition, parameters_field),
        strict=bool(flag_field(definition, "strict")),
    )


def required_name(definition: Json) -> str:
    """The name of a tool; raises MalformedRequest if there is none."""
    name = text_field(definition, "name")
    if not name:
        raise MalformedRequest("A tool must have a name.")
    return name


def refuse_hosted_tool(kind: str) -> UnsupportedRequest:
    """The error for a tool that a provider runs itself, such as a web search."""
    return UnsupportedRequest(
        f"The tool {kind} runs on a provider's servers, and the model of this run does not have it. "
        "Switch it off in the settings of the program."
    )


def parse_json_schema(definition: Json, schema_field: str = "schema") -> ReplyFormat:
    """Parse a format with a JSON schema."""
    schema = object_field(definition, schema_field)
    if not schema:
        raise MalformedRequest(f"{schema_field} must be a JSON schema.")
    strict = flag_field(definition, "strict")
    return ReplyFormat(
        json_schema=schema,
        name=text_field(definition, "name"),
        strict=strict,
        description=text_field(definition, "description"),
    )


def build_sampling(**values: object) -> Sampling:
    """Check and collect the settings of a request."""
    try:
        return Sampling.model_validate(values)
    except ValidationError as error:
        problem = error.errors()[0]
        raise MalformedRequest(f"{problem['loc'][0]}: {problem['msg']}.") from error


def effort_for_budget(budget: int) -> str:
    """The level of effort that is nearest to a budget of thinking tokens; a negative budget has no limit."""
    if budget < 0:
        return "default"
    return next((effort for effort, most in MAX_BUDGET_BY_EFFORT.items() if budget <= most), "high")
