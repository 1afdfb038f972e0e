"""Write run folders without running anything: all that the analysis reads, with any result a test needs."""

import json
from pathlib import Path
from typing import Any

from mlagentbench.analysis.runs import Run
from mlagentbench.grading.verdict import judge_score
from mlagentbench.records import Baseline, Call, Hardware, Hashes, Limits, Result, RunSpec, Step
from mlagentbench.runner.folder import RunFolder

BASELINE = Baseline(mean=10.0, sd=0.1, n=8)
HASHES = Hashes(task="t" * 64, grader="a" * 64, data="d" * 64, runtime="r" * 64)
MACHINE = Hardware(cpu="a chip", cores=2, memory_gb=8, system="Linux", python="3.11")
RESULT_FIELDS = {"tokens", "dollars", "seconds", "trace", "violations", "note"}


def make_run(
    path: Path, improvement: float | None = None, observations: tuple[str, ...] = (), **changes: Any
) -> Run:
    """Write a finished run with this improvement over a baseline of 10, lower is better; None is invalid.

    Each observation becomes a step. `changes` are fields of the spec or of the result; ending=None leaves the
    run unfinished.
    """
    defaults: dict[str, Any] = {
        "task": "toy",
        "edition": "open",
        "agent": "played",
        "seed": 0,
        "baseline": BASELINE,
        "limits": Limits(),
        "sandbox": "bwrap",
        "metric": "error",
        "better": "lower",
        "hashes": HASHES,
        "version": "0",
        "id": str(path),
        "hardware": MACHINE,
        "started": "2026-01-01T00:00:00",
    }
    spec_changes = {name: value for name, value in changes.items() if name in RunSpec.model_fields}
    spec = RunSpec(**{**defaults, **spec_changes})
    folder = RunFolder.create(path, spec)
    for number, text in enumerate(observations, 1):
        call = Call(action="Execute Script")
        step = Step(number=number, call=call, observation=text, seconds=1, clock=number)
        folder.trace.append(step.model_dump_json())
    ending = changes.get("ending", "submitted")
    if ending is not None:
        folder.write_result(_make_result(spec, improvement, ending, changes))
    return Run(RunFolder(path), folder.result)


def _make_result(spec: RunSpec, improvement: float | None, ending: str, changes: dict[str, Any]) -> Result:
    fields: dict[str, Any] = {
        "task": spec.task,
        "edition": spec.edition,
        "agent": spec.agent,
        "model": spec.model,
        "ending": ending,
        "steps": 3,
        "seconds": 60.0,
        "hashes": spec.hashes,
        "seed": spec.seed,
        "unsandboxed": spec.sandbox == "none",
    }
    mean = spec.baseline.mean if spec.baseline else 10.0
    if improvement is not None and ending != "fault":
        score = mean * (1 - improvement) if spec.better == "lower" else mean * (1 + improvement)
        fields |= {"score": score, "valid": True}
        if verdict := judge_score(score, spec):
            fields |= verdict.model_dump()
    fields |= {name: value for name, value in changes.items() if name in RESULT_FIELDS}
    return Result.model_validate_json(json.dumps(fields, default=lambda value: value.model_dump()))
