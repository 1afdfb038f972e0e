"""What the original's agents and actions asked of models: a prompt, an answer and two numbers in each log file."""

import re
from collections.abc import Iterator, Sequence
from itertools import islice

from mlagentbench.adapters.original.log_folder import LogFolder
from mlagentbench.adapters.original.trace import OriginalAction, clean_text
from mlagentbench.records import Message, ModelCall, Prompt, Reply, Role

MAX_CALLS = 10_000  # calls of one run
MAX_LOG_BYTES = 4 << 20  # bytes of one log file
SECTION_HEADER = re.compile(
    r"^=+(?:(?P<prompt>prompt)|(?P<model>[^\n=]+) response \([^\n)]*\)|(?P<tokens>tokens))=+\n", re.MULTILINE
)
TOKEN_COUNTS = re.compile(r"Number of prompt tokens: (\d{1,9})\nNumber of sampled tokens: (\d{1,9})")
STEP_PREFIX = re.compile(r"step_(\d+)_")
FRAMEWORK_ACTIONS = (
    "Retrieval from Research Log",
    "Append Summary to Research Log",
)  # done by the agent's frame, not by it


def read_model_calls(logs: LogFolder, deeds: Sequence[OriginalAction]) -> list[ModelCall]:
    """All of them, those of a step together."""
    found = sorted(islice(_iter_calls(logs, deeds), MAX_CALLS), key=lambda call: (call.step, call.inside))
    return [call.replace(number=number) for number, call in enumerate(found, 1)]


def _iter_calls(logs: LogFolder, deeds: Sequence[OriginalAction]) -> Iterator[ModelCall]:
    own = [number for number, deed in enumerate(deeds, 1) if deed.action not in FRAMEWORK_ACTIONS]
    for name in logs.list_names("agent_log"):
        if name.endswith(".log") or "_log.log_" in name:
            at = _step_index(name)
            step = own[at] if at < len(own) else max(len(deeds), 1)
            yield from _iter_calls_in_file(
                logs, f"agent_log/{name}", step, False, "fast" if "summar" in name else "main"
            )
    for name in logs.list_names("env_log/tool_logs"):
        step = min(_step_index(name) + 1, max(len(deeds), 1))
        edits = step <= len(deeds) and deeds[step - 1].action.startswith("Edit Script")
        yield from _iter_calls_in_file(
            logs, f"env_log/tool_logs/{name}", step, True, "edit" if edits else "fast"
        )


def _step_index(name: str) -> int:
    found = STEP_PREFIX.match(name)
    return int(found[1][:6]) if found else 0


def _iter_calls_in_file(
    logs: LogFolder, path: str, step: int, inside: bool, role: Role
) -> Iterator[ModelCall]:
    for said, model, reply, tokens in _split_log(logs.read_text(path, max_bytes=MAX_LOG_BYTES)):
        prompt = Prompt(messages=(Message(role="user", text=clean_text(said.strip())),))
        answer = Reply(
            text=clean_text(reply), model=clean_text(model), input_tokens=tokens[0], output_tokens=tokens[1]
        )
        yield ModelCall(
            number=0,
            step=step,
            inside=inside,
            role=role,
            model=answer.model,
            prompt=prompt,
            reply=answer,
            seconds=0.0,
        )


def _split_log(text: str) -> Iterator[tuple[str, str, str, tuple[int, int]]]:
    """Prompt, model, reply and tokens, each under its head; what looks like a head elsewhere is part of a text."""
    asked: re.Match[str] | None = None
    answered: re.Match[str] | None = None
    for head in SECTION_HEADER.finditer(text):
        if asked is None:
            asked = head if head["prompt"] else None
        elif answered is None:
            answered = head if head["model"] else None
        elif head["tokens"] and (counted := TOKEN_COUNTS.match(text, head.end())):
            said, reply = (
                text[asked.end() : answered.start()],
                text[answered.end() : head.start()].removesuffix("\n"),
            )
            yield said, answered["model"], reply, (int(counted[1]), int(counted[2]))
            asked = answered = None
