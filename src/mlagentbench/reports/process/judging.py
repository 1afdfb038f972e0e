"""A model reads a run and scores it by the rubric; the run is data to it, and what it says is checked."""

import json
import time
from datetime import UTC, datetime
from typing import Any

from pydantic import ValidationError

from mlagentbench.dialogue import cut, told
from mlagentbench.errors import ModelFault, PromptTooLong, UsageError
from mlagentbench.hashing import file_hash
from mlagentbench.language.objects import Unreadable, read_object
from mlagentbench.language.prompts import fill
from mlagentbench.models.base import Model
from mlagentbench.records import Message, Prompt, Record, Reply, Step
from mlagentbench.reports.process.evidence import Evidence
from mlagentbench.reports.process.judge import FILE, RUBRIC, Judged, Judgement, Mark, criteria, judgement_of
from mlagentbench.reports.process.talk import spoken
from mlagentbench.reports.runs import Run
from mlagentbench.task import explain

ROOM, LEAST = 60_000, 2_000  # characters of the record that a model is shown, and the fewest that are worth judging
STEP = 300  # characters of a step that say something
TRIES = 2
ANSWER = 1_500  # tokens


class Marks(Record):
    """What a model must answer."""

    marks: tuple[Mark, ...]


class Unusable(ValueError):
    """An answer that is no judgement; the message is for the model."""


def judge(run: Run, model: Model, name: str) -> Judgement:
    """One more judgement of a finished run, kept in its folder beside those before."""
    if run.result is None:
        raise UsageError(f"{run.folder.path} is not finished: mlagentbench resume {run.folder.path}")
    if not run.steps:
        raise UsageError(f"{run.folder.path} has no steps to judge")
    earlier = judgement_of(run)
    started = time.monotonic()
    marks, replies = _asked(run, model)
    judgement = Judgement(
        model=name,
        rubric=file_hash(RUBRIC),
        trace=file_hash(run.folder.trace.path),
        judged=datetime.now(UTC).isoformat(timespec="seconds"),
        marks=marks,
        tokens=sum(reply.input_tokens + reply.output_tokens for reply in replies),
        dollars=sum(reply.dollars for reply in replies),
        seconds=round(time.monotonic() - started, 2),
    )
    judged = Judged(judgements=(*(earlier.judgements if earlier else ()), judgement))
    run.folder.keep(FILE, judged.model_dump_json(indent=2))
    return judgement


def _asked(run: Run, model: Model) -> tuple[tuple[Mark, ...], list[Reply]]:
    replies: list[Reply] = []
    talk: list[Message] = []
    room, problem = ROOM, ""
    while len(replies) < TRIES:
        messages = (*messages_about(run, room), *talk)
        try:
            prompt = Prompt(messages=messages, grammar=grammar(len(run.steps)) if model.bound else "")
            replies.append(model.reply(prompt.but(max_tokens=ANSWER)))
        except PromptTooLong:
            room //= 2
            if room < LEAST:
                raise ModelFault("the model cannot take enough of a run to judge it") from None
            continue
        try:
            return read(replies[-1].text, len(run.steps)), replies
        except Unusable as error:
            problem = str(error)
            again = fill("judge_again", problem=problem, form=form())
            talk = [Message(role="assistant", text=cut(replies[-1].text, LEAST)), Message(role="user", text=again)]
    raise ModelFault(f"the model gave no judgement that can be used, {TRIES} times: {problem}")


def messages_about(run: Run, room: int) -> list[Message]:
    """The rubric, and the record between two lines that nobody who wrote it could know."""
    fence = f"=== record {file_hash(run.folder.trace.path)[:16]} ==="
    rubric = RUBRIC.read_text(encoding="utf-8").strip()
    spec, ending = run.spec, run.result.ending if run.result else "unfinished"
    record = fill(
        "judge_record",
        fence=fence,
        task=run.task,
        metric=spec.metric or "a hidden score",
        better=spec.better,
        limit=str(spec.limits.steps),
        taken=str(len(run.steps)),
        ending=ending,
        steps=record_of(run, room),
    )
    system = fill("judge", rubric=rubric, fence=fence, form=form())
    return [Message(role="system", text=system), Message(role="user", text=record)]


def record_of(run: Run, room: int) -> str:
    """All steps within so many characters: each cut to its share, and where that is too little, the middle left out."""
    words = {reply.step: spoken(reply.text) for reply in Evidence(run).said if reply.role == "main"}
    share = max(room // len(run.steps), STEP)
    most = max(room // share, 2)
    steps: list[Step | None] = list(run.steps)
    if len(steps) > most:
        steps = [*steps[: most // 2], None, *steps[-(most - most // 2) :]]
    left_out = f"[... {len(run.steps) - most} steps left out ...]"
    return "\n\n".join(told(step, share, entries=words.get(step.number, "")) if step else left_out for step in steps)


def read(said: str, steps: int) -> tuple[Mark, ...]:
    """The marks of an answer: every criterion once, and only steps that there are."""
    try:
        marks = Marks.model_validate(read_object(said, ("marks",))).marks
    except Unreadable as error:
        raise Unusable(f"it cannot be read as JSON ({error})") from error
    except ValidationError as error:
        raise Unusable(explain(error)) from error
    if tuple(mark.criterion for mark in marks) != criteria():
        raise Unusable(f"the criteria must be these, each once, in this order: {', '.join(criteria())}")
    if wrong := [step for mark in marks for step in mark.steps if not 1 <= step <= steps]:
        raise Unusable(f"there is no step {wrong[0]}; the steps are 1 to {steps}")
    return marks


def form() -> str:
    """The shape of an answer."""
    marks: list[dict[str, Any]] = [
        {"criterion": name, "score": 3, "steps": [1, 2], "sentence": "..."} for name in criteria()
    ]
    return json.dumps({"marks": marks}, indent=1)


def grammar(steps: int) -> str:
    """The same for a model that can be bound to it."""
    marks = ' "," '.join(
        rf'"{{\"criterion\": \"{name}\", \"score\": " [1-5] ", \"steps\": [" steps "], \"sentence\": \"" words "\"}}"'
        for name in criteria()
    )
    number = " | ".join(f'"{step}"' for step in range(1, steps + 1))
    return "\n".join(
        [
            rf'root ::= "{{\"marks\": [" {marks} "]}}"',
            'steps ::= step (", " step){0,4}',
            f"step ::= {number}",
            r'words ::= [^"\\\x00-\x1f]{10,300}',
        ]
    )
