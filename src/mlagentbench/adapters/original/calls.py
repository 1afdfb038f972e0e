"""What the original's agents and actions asked of models: a prompt, an answer and two numbers in each log file."""

import re
from collections.abc import Iterator, Sequence
from itertools import islice

from mlagentbench.adapters.original.logs import Logs
from mlagentbench.adapters.original.traces import Deed, words
from mlagentbench.records import Message, ModelCall, Prompt, Reply, Role

MOST = 10_000  # calls of one run
BIGGEST = 4 << 20  # bytes of one log file
HEAD = re.compile(
    r"^=+(?:(?P<prompt>prompt)|(?P<model>[^\n=]+) response \([^\n)]*\)|(?P<tokens>tokens))=+\n", re.MULTILINE
)
TOKENS = re.compile(r"Number of prompt tokens: (\d{1,9})\nNumber of sampled tokens: (\d{1,9})")
NUMBER = re.compile(r"step_(\d+)_")
BESIDES = ("Retrieval from Research Log", "Append Summary to Research Log")  # done by the agent's frame, not by it


def read_calls(logs: Logs, deeds: Sequence[Deed]) -> list[ModelCall]:
    """All of them, those of a step together."""
    found = sorted(islice(_calls(logs, deeds), MOST), key=lambda call: (call.step, call.inside))
    return [call.but(number=number) for number, call in enumerate(found, 1)]


def _calls(logs: Logs, deeds: Sequence[Deed]) -> Iterator[ModelCall]:
    own = [number for number, deed in enumerate(deeds, 1) if deed.action not in BESIDES]
    for name in logs.names("agent_log"):
        if name.endswith(".log") or "_log.log_" in name:
            at = _number(name)
            step = own[at] if at < len(own) else max(len(deeds), 1)
            yield from _in(logs, f"agent_log/{name}", step, False, "fast" if "summar" in name else "main")
    for name in logs.names("env_log/tool_logs"):
        step = min(_number(name) + 1, max(len(deeds), 1))
        edits = step <= len(deeds) and deeds[step - 1].action.startswith("Edit Script")
        yield from _in(logs, f"env_log/tool_logs/{name}", step, True, "edit" if edits else "fast")


def _number(name: str) -> int:
    found = NUMBER.match(name)
    return int(found[1][:6]) if found else 0


def _in(logs: Logs, path: str, step: int, inside: bool, role: Role) -> Iterator[ModelCall]:
    for said, model, reply, tokens in _replies(logs.text(path, cap=BIGGEST)):
        prompt = Prompt(messages=(Message(role="user", text=words(said.strip())),))
        answer = Reply(text=words(reply), model=words(model), input_tokens=tokens[0], output_tokens=tokens[1])
        yield ModelCall(
            number=0, step=step, inside=inside, role=role, model=answer.model, prompt=prompt, reply=answer, seconds=0.0
        )


def _replies(text: str) -> Iterator[tuple[str, str, str, tuple[int, int]]]:
    """Prompt, model, reply and tokens, each under its head; what looks like a head elsewhere is part of a text."""
    asked: re.Match[str] | None = None
    answered: re.Match[str] | None = None
    for head in HEAD.finditer(text):
        if asked is None:
            asked = head if head["prompt"] else None
        elif answered is None:
            answered = head if head["model"] else None
        elif head["tokens"] and (counted := TOKENS.match(text, head.end())):
            said, reply = text[asked.end() : answered.start()], text[answered.end() : head.start()].removesuffix("\n")
            yield said, answered["model"], reply, (int(counted[1]), int(counted[2]))
            asked = answered = None
