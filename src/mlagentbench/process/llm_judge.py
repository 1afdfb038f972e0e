"""Lets a model score a run by the rubric. The record is passed as data, and the answer is validated."""

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

MAX_RECORD_CHARS = 60_000  # of the record in the prompt
MIN_RECORD_CHARS = 2_000  # a model that takes less cannot judge a run
MIN_STEP_CHARS = 300  # a step cut to less is meaningless
MAX_ATTEMPTS = 2
MAX_ANSWER_TOKENS = 1_500


class JudgeAnswer(Record):
    """The answer that the model must give."""

    marks: tuple[CriterionScore, ...]


class UnusableAnswer(ValueError):
    """The answer is not a judgement; the message is sent to the model."""


def judge_run(run: Run, model: Model, name: str) -> Judgement:
    """Judge a finished run once more and store the judgement in its folder.

    Args:
        run: The run to judge.
        model: The model that judges.
        name: The name of the model, as recorded in the judgement.

    Raises:
        UsageError: The run is unfinished or has no steps.
        ModelFault: The model gave no usable answer, or its context is too small.
    """
    if run.result is None:
        raise UsageError(
            f"{run.folder.path} is not finished. Finish it: mlagentbench resume {run.folder.path}"
        )
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
    correction: list[Message] = []
    max_chars, problem = MAX_RECORD_CHARS, ""
    grammar = answer_grammar(len(run.steps)) if model.supports_grammar else ""
    while len(replies) < MAX_ATTEMPTS:
        messages = (*build_judge_messages(run, max_chars), *correction)
        try:
            prompt = Prompt(messages=messages, grammar=grammar, max_tokens=MAX_ANSWER_TOKENS)
            replies.append(model.reply(prompt))
        except PromptTooLong:
            max_chars //= 2
            if max_chars < MIN_RECORD_CHARS:
                raise ModelFault("The context of the model is too small to judge a run") from None
            continue
        try:
            return parse_answer(replies[-1].text, len(run.steps)), replies
        except UnusableAnswer as error:
            problem = str(error)
            request = fill_prompt("judge_again", problem=problem, form=answer_template())
            correction = [
                Message(role="assistant", text=truncate_middle(replies[-1].text, MIN_RECORD_CHARS)),
                Message(role="user", text=request),
            ]
    raise ModelFault(f"The model gave no usable judgement in {MAX_ATTEMPTS} attempts: {problem}")


def build_judge_messages(run: Run, max_chars: int) -> list[Message]:
    """The rubric, and the record between two lines that its author could not predict."""
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
    """All steps in about `max_chars` characters: truncates every step, and omits middle steps if needed."""
    texts = {reply.step: strip_action(reply.text) for reply in Evidence(run).replies if reply.role == "main"}
    share = max(max_chars // len(run.steps), MIN_STEP_CHARS)
    max_steps = max(max_chars // share, 2)
    steps: list[Step | None] = list(run.steps)
    if len(steps) > max_steps:
        steps = [*steps[: max_steps // 2], None, *steps[-(max_steps - max_steps // 2) :]]
    omission = f"[... {len(run.steps) - max_steps} steps omitted ...]"
    return "\n\n".join(
        render_step(step, share, reply_fields=texts.get(step.number, "")) if step else omission
        for step in steps
    )


def parse_answer(text: str, step_count: int) -> tuple[CriterionScore, ...]:
    """The scores in an answer: every criterion once, and only existing steps.

    Raises:
        UnusableAnswer: The answer is malformed.
    """
    try:
        marks = JudgeAnswer.model_validate(parse_object(text, ("marks",))).marks
    except UnreadableObject as error:
        raise UnusableAnswer(f"it is not valid JSON ({error})") from error
    except ValidationError as error:
        raise UnusableAnswer(describe_validation_error(error)) from error
    if tuple(mark.criterion for mark in marks) != rubric_criteria():
        raise UnusableAnswer(
            f"the criteria must be exactly these, in this order: {', '.join(rubric_criteria())}"
        )
    if wrong := [step for mark in marks for step in mark.steps if not 1 <= step <= step_count]:
        raise UnusableAnswer(f"there is no step {wrong[0]}; the steps are 1 to {step_count}")
    return marks


def answer_template() -> str:
    """An example answer that shows the required JSON format."""
    marks: list[dict[str, Any]] = [
        {"criterion": name, "score": 3, "steps": [1, 2], "sentence": "..."} for name in rubric_criteria()
    ]
    return json.dumps({"marks": marks}, indent=1)


def answer_grammar(step_count: int) -> str:
    """The answer format as a grammar, for models that support constrained decoding."""
    marks = ' "," '.join(
        rf'"{{\"criterion\": \"{name}\", \"score\": " [1-5] '
        r'", \"steps\": [" steps "], \"sentence\": \"" words "\"}"'
        for name in rubric_criteria()
    )
    number = " | ".join(f'"{step}"' for step in range(1, step_count + 1))
    return "\n".join(
        [
            rf'root ::= "{{\"marks\": [" {marks} "]}}"',
            'steps ::= step (", " step){0,4}',
            f"step ::= {number}",
            r'words ::= [^"\\\x00-\x1f]{10,300}',
        ]
    )
