"""Exports a run as a log for `inspect view`: messages, tool calls, model calls, scores and usage."""

import math
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from inspect_ai.event import ScoreEvent
from inspect_ai.log import (
    EvalConfig,
    EvalDataset,
    EvalError,
    EvalLog,
    EvalMetric,
    EvalPlan,
    EvalPlanStep,
    EvalResults,
    EvalSample,
    EvalSampleLimit,
    EvalScore,
    EvalSpec,
    EvalStats,
    condense_sample,
    write_eval_log,
)
from inspect_ai.model import ChatMessageUser, ModelOutput, ModelUsage
from inspect_ai.scorer import Score

from mlagentbench.adapters.inspect.events import build_events, to_model_usage
from mlagentbench.adapters.inspect.sample_run import RUN_FOLDER_KEY
from mlagentbench.adapters.inspect.scoring import to_score
from mlagentbench.adapters.inspect.step_messages import step_to_messages
from mlagentbench.environment.problem_statement import describe_run
from mlagentbench.errors import UsageError
from mlagentbench.records import Result, RunSpec
from mlagentbench.runner.folder import RunFolder
from mlagentbench.task import Task

SCORER_NAME = "verdict"
NO_MODEL = "none/none"  # Inspect's name for no model


def write_log(run_folder: Path, target: Path) -> None:
    """Write a run, finished or not, to FILE.eval or FILE.json."""
    if target.suffix not in (".eval", ".json"):
        raise UsageError(f"An Inspect log must be named NAME.eval or NAME.json, not {target.name}.")
    folder = RunFolder(run_folder)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        write_eval_log(build_log(folder), str(target))
    except OSError as error:
        raise UsageError(f"Cannot write {target}: {error.strerror or error}") from error


def build_log(folder: RunFolder) -> EvalLog:
    """Convert a run to an evaluation with one sample."""
    spec, result = folder.spec, folder.result
    name = spec.task.rpartition("/")[2]
    sample = condense_sample(_build_sample(folder, name))
    return EvalLog(
        status="started" if result is None else "error" if sample.error else "success",
        eval=EvalSpec(
            eval_id=spec.id,
            run_id=spec.id,
            task_id=spec.id,
            created=spec.started,
            task=f"mlagentbench/{name.replace('-', '_')}",
            task_version=spec.hashes.task[:16],
            task_args={
                "edition": spec.edition,
                "seed": spec.seed,
                **spec.limits.model_dump(exclude_none=True),
            },
            solver=spec.agent,
            solver_args=spec.options,
            dataset=EvalDataset(name=name, samples=1, sample_ids=[name]),
            model=spec.model or NO_MODEL,
            config=EvalConfig(epochs=1),
            packages={"mlagentbench": spec.version},
            metadata=spec.model_dump(mode="json"),
        ),
        plan=EvalPlan(name=spec.agent, steps=[EvalPlanStep(solver=spec.agent, params=spec.options)]),
        results=_build_results(sample) if result else None,
        stats=EvalStats(
            started_at=spec.started,
            completed_at=sample.completed_at if result and sample.completed_at else "",
            model_usage=sample.model_usage,
            role_usage=sample.role_usage,
        ),
        error=sample.error,
        samples=[sample],
    )


def _build_sample(folder: RunFolder, name: str) -> EvalSample:
    spec, result, steps = folder.spec, folder.result, folder.steps()
    statement = _problem_statement(spec)
    scores = (
        {SCORER_NAME: to_score(result)} if result and result.ending != "fault" and not result.ungraded else {}
    )
    seconds = steps[-1].clock if steps else 0.0
    ended = datetime.fromisoformat(spec.started) + timedelta(seconds=seconds)
    events = [
        *build_events(folder),
        *(ScoreEvent(timestamp=ended, score=s, scorer=SCORER_NAME) for s in scores.values()),
    ]
    model = spec.model or NO_MODEL
    return EvalSample(
        id=name,
        epoch=1,
        input=statement,
        target="",
        messages=[
            ChatMessageUser(content=statement),
            *(message for step in steps for message in step_to_messages(step, model)),
        ],
        output=ModelOutput.from_content(model, steps[-1].observation if steps else ""),
        scores=scores,
        metadata={RUN_FOLDER_KEY: str(folder.path), "edition": spec.edition, "seed": spec.seed},
        events=events,
        model_usage=_sum_usage(folder, "model"),
        role_usage=_sum_usage(folder, "role"),
        started_at=spec.started,
        completed_at=ended.isoformat(),
        total_time=seconds,
        working_time=seconds,
        uuid=spec.id,
        error=_sample_error(result),
        limit=_sample_limit(folder, result),
    )


def _problem_statement(spec: RunSpec) -> str:
    """The problem statement of the task, if it is on this machine."""
    with suppress(UsageError):
        return describe_run(Task.load(spec.task), spec, bool(spec.model))
    return f"(the task {spec.task} was not available on the machine that wrote this log)"


def _sample_error(result: Result | None) -> EvalError | None:
    if result is None or result.ending != "fault":
        return None
    return EvalError(message=result.note, traceback=result.note, traceback_ansi=result.note)


def _sample_limit(folder: RunFolder, result: Result | None) -> EvalSampleLimit | None:
    limits = folder.spec.limits
    limit_by_ending: dict[str, tuple[Any, float | None]] = {
        "steps": ("custom", limits.steps),
        "time": ("time", limits.hours * 3600),
        "tokens": ("token", limits.tokens),
        "money": ("cost", limits.dollars),
    }
    if result is None or result.ending not in limit_by_ending:
        return None
    limit_type, limit = limit_by_ending[result.ending]
    return EvalSampleLimit(type=limit_type, limit=limit or 0)


def _sum_usage(folder: RunFolder, field: str) -> dict[str, ModelUsage]:
    usage: dict[str, ModelUsage] = {}
    for call in folder.calls():
        if call.reply:
            name = str(getattr(call, field)) or "unknown"
            usage[name] = usage.get(name, ModelUsage()) + to_model_usage(call.reply)
    return usage


def _build_results(sample: EvalSample) -> EvalResults:
    scores = [metric for score in (sample.scores or {}).values() for metric in _build_metrics(score)]
    return EvalResults(total_samples=1, completed_samples=0 if sample.error else 1, scores=scores)


def _build_metrics(score: Score) -> list[EvalScore]:
    values = {
        name: value
        for name, value in score.as_dict().items()
        if isinstance(value, float) and not math.isnan(value)
    }
    return [
        EvalScore(
            name=name,
            scorer=SCORER_NAME,
            scored_samples=1,
            metrics={"mean": EvalMetric(name="mean", value=value)},
        )
        for name, value in values.items()
    ]
