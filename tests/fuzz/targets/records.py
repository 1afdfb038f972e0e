"""Every record that crosses a file or a process: read from JSON as it is, or refused in one line."""

import json
from pathlib import Path
from random import Random

from mutation import dumped, grafted
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

RAISES = ()
WEIGHT, SHORT = 100, 400
RECORDED = Path(__file__).parents[2] / "formats" / "1"


def _lines(name: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in (RECORDED / name).read_text().splitlines()]


TOLD = ToolCall(id="c", name="read", arguments="{}")
ASKED = Prompt(
    messages=(Message(role="assistant", text="x", calls=(TOLD,)),),
    tools=(Tool(name="t", description="", parameters={}),),
)
SEEDS: dict[type[Record], list[object]] = {
    RunSpec: [json.loads((RECORDED / "run.json").read_text())],
    Result: [json.loads((RECORDED / "result.json").read_text())],
    Step: [*_lines("trace.jsonl")],
    ModelCall: [*_lines("model_calls.jsonl")],
    Access: [*_lines("access/step-0005.jsonl")[:5]],
    Prompt: [ASKED.model_dump(mode="json")],
    Reply: [Reply(text="x", calls=(TOLD,), dollars=0.5).model_dump(mode="json")],
    Call: [Call(action="a", args={"b": [1, {"c": None}]}).model_dump(mode="json")],
}
FOUND = [(Reply, b'{"a\\n\\u001b[2J": 0}')]
MAKERS = {kind: grafted(seeds) for kind, seeds in SEEDS.items()}


def make(random: Random) -> tuple[type[Record], bytes]:
    kind = random.choice([*MAKERS])
    return kind, dumped(MAKERS[kind](random))


def attempt(case: tuple[type[Record], bytes], room: Path) -> None:
    kind, data = case
    try:
        record = kind.model_validate_json(data)
    except ValidationError as error:
        told = describe_validation_error(error)
        assert told.isprintable() and len(told) < 1000, told
        return
    written = record.model_dump_json()
    assert "\n" not in written
    again = kind.model_validate_json(written)
    assert again.model_dump_json() == written
