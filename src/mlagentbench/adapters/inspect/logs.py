"""A run of ours as a log that `inspect view` opens: messages, tool calls, models asked, scores, usage."""

import math
import sys
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

from mlagentbench.adapters.inspect.attempt import PLACE
from mlagentbench.adapters.inspect.events import events_of, usage_of
from mlagentbench.adapters.inspect.scoring import score_of
from mlagentbench.adapters.inspect.talk import messages_of
from mlagentbench.errors import UsageError
from mlagentbench.records import Result
from mlagentbench.runner.folder import RunFolder
from mlagentbench.task import Task

SCORER = "verdict"
NOBODY = "none/none"  # as Inspect calls it when no model is asked


def write(run_folder: Path, target: Path) -> None:
    """Write a run, finished or not, as FILE.eval (or FILE.json)."""
    if target.suffix not in (".eval", ".json"):
        raise UsageError(f"a log of Inspect is called NAME.eval, or NAME.json, and not {target.name}")
    folder = RunFolder(run_folder)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        write_eval_log(log_of(folder), str(target))
    except OSError as error:
        raise UsageError(f"cannot write {target}: {error.strerror or error}") from error


def log_of(folder: RunFolder) -> EvalLog:
    """The run as an evaluation of one sample."""
    spec, result = folder.spec, folder.result
    name = spec.task.rpartition("/")[2]
    sample = condense_sample(_sample(folder, name))
    return EvalLog(
        status="started" if result is None else "error" if sample.error else "success",
        eval=EvalSpec(
            eval_id=spec.id,
            run_id=spec.id,
            task_id=spec.id,
            created=spec.started,
            task=f"mlagentbench/{name.replace('-', '_')}",
            task_version=spec.hashes.task[:16],
            task_args={"edition": spec.edition, "seed": spec.seed, **spec.limits.model_dump(exclude_none=True)},
            solver=spec.agent,
            solver_args=spec.options,
            dataset=EvalDataset(name=name, samples=1, sample_ids=[name]),
            model=spec.model or NOBODY,
            config=EvalConfig(epochs=1),
            packages={"mlagentbench": spec.version},
            metadata=spec.model_dump(mode="json"),
        ),
        plan=EvalPlan(name=spec.agent, steps=[EvalPlanStep(solver=spec.agent, params=spec.options)]),
        results=_results(sample) if result else None,
        stats=EvalStats(
            started_at=spec.started,
            completed_at=sample.completed_at if result and sample.completed_at else "",
            model_usage=sample.model_usage,
            role_usage=sample.role_usage,
        ),
        error=sample.error,
        samples=[sample],
    )


def _sample(folder: RunFolder, name: str) -> EvalSample:
    spec, result, steps = folder.spec, folder.result, folder.steps()
    told = _description(spec.task)
    scores = {SCORER: score_of(result)} if result and result.ending != "fault" and not result.ungraded else {}
    seconds = steps[-1].clock if steps else 0.0
    ended = datetime.fromisoformat(spec.started) + timedelta(seconds=seconds)
    events = [*events_of(folder), *(ScoreEvent(timestamp=ended, score=s, scorer=SCORER) for s in scores.values())]
    model = spec.model or NOBODY
    return EvalSample(
        id=name,
        epoch=1,
        input=told,
        target="",
        messages=[ChatMessageUser(content=told), *(said for step in steps for said in messages_of(step, model))],
        output=ModelOutput.from_content(model, steps[-1].observation if steps else ""),
        scores=scores,
        metadata={PLACE: str(folder.path), "edition": spec.edition, "seed": spec.seed},
        events=events,
        model_usage=_usage(folder, "model"),
        role_usage=_usage(folder, "role"),
        started_at=spec.started,
        completed_at=ended.isoformat(),
        total_time=seconds,
        working_time=seconds,
        uuid=spec.id,
        error=_error(result),
        limit=_limit(folder, result),
    )


def _description(task: str) -> str:
    """What the agent was told, if the task is on this machine."""
    with suppress(UsageError):
        return Task.load(task).description
    return f"(the task {task} is not on the machine on which this log was written)"


def _error(result: Result | None) -> EvalError | None:
    if result is None or result.ending != "fault":
        return None
    return EvalError(message=result.note, traceback=result.note, traceback_ansi=result.note)


def _limit(folder: RunFolder, result: Result | None) -> EvalSampleLimit | None:
    limits = folder.spec.limits
    known: dict[str, tuple[Any, float | None]] = {
        "steps": ("custom", limits.steps),
        "time": ("time", limits.hours * 3600),
        "tokens": ("token", limits.tokens),
        "money": ("cost", limits.dollars),
    }
    if result is None or result.ending not in known:
        return None
    kind, limit = known[result.ending]
    return EvalSampleLimit(type=kind, limit=limit or 0)


def _usage(folder: RunFolder, by: str) -> dict[str, ModelUsage]:
    found: dict[str, ModelUsage] = {}
    for call in folder.calls():
        if call.reply:
            name = str(getattr(call, by)) or "unknown"
            found[name] = found.get(name, ModelUsage()) + usage_of(call.reply)
    return found


def _results(sample: EvalSample) -> EvalResults:
    scores = [each for score in (sample.scores or {}).values() for each in _metrics(score)]
    return EvalResults(total_samples=1, completed_samples=0 if sample.error else 1, scores=scores)


def _metrics(score: Score) -> list[EvalScore]:
    known = {
        name: value for name, value in score.as_dict().items() if isinstance(value, float) and not math.isnan(value)
    }
    return [
        EvalScore(name=name, scorer=SCORER, scored_samples=1, metrics={"mean": EvalMetric(name="mean", value=value)})
        for name, value in known.items()
    ]


def main() -> None:
    """RUN -o FILE.eval."""
    words = sys.argv[1:]
    if len(words) != 3 or words[1] != "-o":
        sys.exit("usage: python -m mlagentbench.adapters.inspect.logs RUN -o FILE.eval")
    try:
        write(Path(words[0]), Path(words[2]))
    except UsageError as error:
        print(f"mlagentbench: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
