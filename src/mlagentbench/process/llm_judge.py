"""A model reads a run and scores it by the rubric; the run is data to it, and what it says is checked."""

import json
import time
from datetime import UTC, datetime
from typing import Any

from pydantic import ValidationError

from mlagentbench.analysis.runs import Run
from mlagentbench.environment.dialogue import render_step, truncate_middle
from mlagentbench.errors import ModelFault, PromptTooLong, UsageError
from mlagentbench.language.lenient_json import UnreadableObject, parse_object
from mlagentbench.language.prompts import fill_prompt
from mlagentbench.models.base import Model
from mlagentbench.process.evidence import Evidence
from mlagentbench.process.judgements import (
    JUDGEMENTS_FILE,
    RUBRIC_PATH,
    CriterionScore,
    Judgement,
    RunJudgements,
    read_judgements,
    rubric_criteria,
)
from mlagentbench.process.replies import strip_action
from mlagentbench.records import Message, Prompt, Record, Reply, Step
from mlagentbench.system.hashing import hash_file
from mlagentbench.task import describe_validation_error

MAX_RECORD_CHARS, MIN_RECORD_CHARS = (
    60_000,
    2_000,
)  # characters of the record that a model is shown, and the fewest that are worth judging
MIN_STEP_CHARS = 300  # characters of a step that say something
MAX_ATTEMPTS = 2
MAX_ANSWER_TOKENS = 1_500  # tokens


class JudgeAnswer(Record):
    """What a model must answer."""

    marks: tuple[CriterionScore, ...]


class UnusableAnswer(ValueError):
    """An answer that is no judgement; the message is for the model."""


def judge_run(run: Run, model: Model, name: str) -> Judgement:
    """One more judgement of a finished run, kept in its folder beside those before."""
    if run.result is None:
        raise UsageError(f"{run.folder.path} is not finished: mlagentbench resume {run.folder.path}")
    if not run.steps:
        raise UsageError(f"{run.folder.path} has no steps to judge")
    earlier = read_judgements(run)
    started = time.monotonic()
    marks, replies = _ask_model(run, model)
    judgement = Judgement(
        model=name,
        rubric=hash_file(RUBRIC_PATH),
        trace=hash_file(run.folder.trace.path),
        judged=datetime.now(UTC).isoformat(timespec="seconds"),
        marks=marks,
        tokens=sum(reply.input_tokens + reply.output_tokens for reply in replies),
        dollars=sum(reply.dollars for reply in replies),
        seconds=round(time.monotonic() - started, 2),
    )
    judged = RunJudgements(judgements=(*(earlier.judgements if earlier else ()), judgement))
    run.folder.write_file(JUDGEMENTS_FILE, judged.model_dump_json(indent=2))
    return judgement


def _ask_model(run: Run, model: Model) -> tuple[tuple[CriterionScore, ...], list[Reply]]:
    replies: list[Reply] = []
    talk: list[Message] = []
    room, problem = MAX_RECORD_CHARS, ""
    while len(replies) < MAX_ATTEMPTS:
        messages = (*build_judge_messages(run, room), *talk)
        try:
            prompt = Prompt(
                messages=messages, grammar=answer_grammar(len(run.steps)) if model.supports_grammar else ""
            )
            replies.append(model.reply(prompt.replace(max_tokens=MAX_ANSWER_TOKENS)))
        except PromptTooLong:
            room //= 2
            if room < MIN_RECORD_CHARS:
                raise ModelFault("the model cannot take enough of a run to judge it") from None
            continue
        try:
            return parse_answer(replies[-1].text, len(run.steps)), replies
        except UnusableAnswer as error:
            problem = str(error)
            again = fill_prompt("judge_again", problem=problem, form=answer_template())
            talk = [
                Message(role="assistant", text=truncate_middle(replies[-1].text, MIN_RECORD_CHARS)),
                Message(role="user", text=again),
            ]
    raise ModelFault(f"the model gave no judgement that can be used, {MAX_ATTEMPTS} times: {problem}")


def build_judge_messages(run: Run, max_chars: int) -> list[Message]:
    """The rubric, and the record between two lines that nobody who wrote it could know."""
    fence = f"=== record {hash_file(run.folder.trace.path)[:16]} ==="
    rubric = RUBRIC_PATH.read_text(encoding="utf-8").strip()
    spec, ending = run.spec, run.result.ending if run.result else "unfinished"
    record = fill_prompt(
        "judge_record",
        fence=fence,
        task=run.task,
        metric=spec.metric or "a hidden score",
        better=spec.better,
        limit=str(spec.limits.steps),
        taken=str(len(run.steps)),
        ending=ending,
        steps=render_record(run, max_chars),
    )
    system = fill_prompt("judge", rubric=rubric, fence=fence, form=answer_template())
    return [Message(role="system", text=system), Message(role="user", text=record)]


def render_record(run: Run, max_chars: int) -> str:
    """All steps within so many characters: each cut to its share, and where that is too little, the middle left out."""
    words = {reply.step: strip_action(reply.text) for reply in Evidence(run).replies if reply.role == "main"}
    share = max(max_chars // len(run.steps), MIN_STEP_CHARS)
    most = max(max_chars // share, 2)
    steps: list[Step | None] = list(run.steps)
    if len(steps) > most:
        steps = [*steps[: most // 2], None, *steps[-(most - most // 2) :]]
    left_out = f"[... {len(run.steps) - most} steps left out ...]"
    return "\n\n".join(
        render_step(step, share, reply_fields=words.get(step.number, "")) if step else left_out
        for step in steps
    )


def parse_answer(said: str, steps: int) -> tuple[CriterionScore, ...]:
    """The marks of an answer: every criterion once, and only steps that there are."""
    try:
        marks = JudgeAnswer.model_validate(parse_object(said, ("marks",))).marks
    except UnreadableObject as error:
        raise UnusableAnswer(f"it cannot be read as JSON ({error})") from error
    except ValidationError as error:
        raise UnusableAnswer(describe_validation_error(error)) from error
    if tuple(mark.criterion for mark in marks) != rubric_criteria():
        raise UnusableAnswer(
            f"the criteria must be these, each once, in this order: {', '.join(rubric_criteria())}"
        )
    if wrong := [step for mark in marks for step in mark.steps if not 1 <= step <= steps]:
        raise UnusableAnswer(f"there is no step {wrong[0]}; the steps are 1 to {steps}")
    return marks


def answer_template() -> str:
    """The shape of an answer."""
    marks: list[dict[str, Any]] = [
        {"criterion": name, "score": 3, "steps": [1, 2], "sentence": "..."} for name in rubric_criteria()
    ]
    return json.dumps({"marks": marks}, indent=1)


def answer_grammar(steps: int) -> str:
    """The same for a model that can be bound to it."""
    marks = ' "," '.join(
        rf'"{{\"criterion\": \"{name}\", \"score\": " [1-5] ", \"steps\": [" steps "], \"sentence\": \"" words "\"}}"'
        for name in rubric_criteria()
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
