"""Reads the model calls of the original's agents and actions: prompt, reply and token counts per log file."""

import re
from collections.abc import Iterator, Sequence
from itertools import islice

from mlagentbench.adapters.original.log_folder import LogFolder
from mlagentbench.adapters.original.trace import OriginalAction, clean_text
from mlagentbench.records import Message, ModelCall, Prompt, Reply, Role

MAX_CALLS = 10_000
MAX_LOG_BYTES = 4 << 20
SECTION_HEADER = re.compile(
    r"^=+(?:(?P<prompt>prompt)|(?P<model>[^\n=]+) response \([^\n)]*\)|(?P<tokens>tokens))=+\n", re.MULTILINE
)
TOKEN_COUNTS = re.compile(r"Number of prompt tokens: (\d{1,9})\nNumber of sampled tokens: (\d{1,9})")
STEP_PREFIX = re.compile(r"step_(\d+)_")
# Called by the original's framework around the agent, not by the agent.
FRAMEWORK_ACTIONS = ("Retrieval from Research Log", "Append Summary to Research Log")


def read_model_calls(logs: LogFolder, actions: Sequence[OriginalAction]) -> list[ModelCall]:
    """Read all calls, ordered by step."""
    calls = sorted(islice(_iter_calls(logs, actions), MAX_CALLS), key=lambda call: (call.step, call.inside))
    return [call.replace(number=number) for number, call in enumerate(calls, 1)]


def _iter_calls(logs: LogFolder, actions: Sequence[OriginalAction]) -> Iterator[ModelCall]:
    agent_steps = [
        number for number, action in enumerate(actions, 1) if action.action not in FRAMEWORK_ACTIONS
    ]
    for name in logs.list_names("agent_log"):
        if name.endswith(".log") or "_log.log_" in name:
            index = _step_index(name)
            step = agent_steps[index] if index < len(agent_steps) else max(len(actions), 1)
            yield from _iter_calls_in_file(
                logs, f"agent_log/{name}", step, False, "fast" if "summar" in name else "main"
            )
    for name in logs.list_names("env_log/tool_logs"):
        step = min(_step_index(name) + 1, max(len(actions), 1))
        edits = step <= len(actions) and actions[step - 1].action.startswith("Edit Script")
        yield from _iter_calls_in_file(
            logs, f"env_log/tool_logs/{name}", step, True, "edit" if edits else "fast"
        )


def _step_index(name: str) -> int:
    match = STEP_PREFIX.match(name)
    return int(match[1][:6]) if match else 0


def _iter_calls_in_file(
    logs: LogFolder, path: str, step: int, inside: bool, role: Role
) -> Iterator[ModelCall]:
    for prompt_text, model, text, tokens in _split_log(logs.read_text(path, max_bytes=MAX_LOG_BYTES)):
        prompt = Prompt(messages=(Message(role="user", text=clean_text(prompt_text.strip())),))
        reply = Reply(
            text=clean_text(text), model=clean_text(model), input_tokens=tokens[0], output_tokens=tokens[1]
        )
        yield ModelCall(
            number=0,
            step=step,
            inside=inside,
            role=role,
            model=reply.model,
            prompt=prompt,
            reply=reply,
            seconds=0.0,
        )


def _split_log(text: str) -> Iterator[tuple[str, str, str, tuple[int, int]]]:
    """Yield prompt, model, reply and tokens; a header out of order is part of the text."""
    prompt: re.Match[str] | None = None
    response: re.Match[str] | None = None
    for header in SECTION_HEADER.finditer(text):
        if prompt is None:
            prompt = header if header["prompt"] else None
        elif response is None:
            response = header if header["model"] else None
        elif header["tokens"] and (counts := TOKEN_COUNTS.match(text, header.end())):
            prompt_text = text[prompt.end() : response.start()]
            reply = text[response.end() : header.start()].removesuffix("\n")
            yield prompt_text, response["model"], reply, (int(counts[1]), int(counts[2]))
            prompt = response = None
