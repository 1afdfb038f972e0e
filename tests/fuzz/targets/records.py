"""Every record that is written to a file or sent to a process: read back unchanged, or refused."""

import json
from pathlib import Path
from random import Random

from mutation import dump_json, mutate_json
from pydantic import ValidationError

from mlagentbench.records import (
    Call,
    Message,
    ModelCall,
    Prompt,
    Record,
    Reply,
    Result,
    RunSpec,
    Step,
    Tool,
    ToolCall,
)
from mlagentbench.sandbox.access_log.records import Access
from mlagentbench.task import describe_validation_error

EXPECTED_ERRORS = ()
CASES_PER_1000, SHORT_CASES = 100, 400
RECORDED = Path(__file__).parents[2] / "formats" / "1"


def _read_lines(name: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in (RECORDED / name).read_text().splitlines()]


TOOL_CALL = ToolCall(id="c", name="read", arguments="{}")
PROMPT = Prompt(
    messages=(Message(role="assistant", text="x", calls=(TOOL_CALL,)),),
    tools=(Tool(name="t", description="", parameters={}),),
)
SEEDS: dict[type[Record], list[object]] = {
    RunSpec: [json.loads((RECORDED / "run.json").read_text())],
    Result: [json.loads((RECORDED / "result.json").read_text())],
    Step: [*_read_lines("trace.jsonl")],
    ModelCall: [*_read_lines("model_calls.jsonl")],
    Access: [*_read_lines("access/step-0005.jsonl")[:5]],
    Prompt: [PROMPT.model_dump(mode="json")],
    Reply: [Reply(text="x", calls=(TOOL_CALL,), dollars=0.5).model_dump(mode="json")],
    Call: [Call(action="a", args={"b": [1, {"c": None}]}).model_dump(mode="json")],
}
REGRESSION_CASES = [(Reply, b'{"a\\n\\u001b[2J": 0}')]
MAKERS = {record_type: mutate_json(seeds) for record_type, seeds in SEEDS.items()}


def make_case(random: Random) -> tuple[type[Record], bytes]:
    record_type = random.choice([*MAKERS])
    return record_type, dump_json(MAKERS[record_type](random))


def run_case(case: tuple[type[Record], bytes], folder: Path) -> None:
    record_type, data = case
    try:
        record = record_type.model_validate_json(data)
    except ValidationError as error:
        message = describe_validation_error(error)
        assert message.isprintable() and len(message) < 1000, message
        return
    written = record.model_dump_json()
    assert "\n" not in written
    again = record_type.model_validate_json(written)
    assert again.model_dump_json() == written
