"""Run folders without a run: what reports read of one, with any result that a test needs."""

import json
from pathlib import Path
from typing import Any

from mlagentbench.analysis.runs import Run
from mlagentbench.grading.verdict import compute_verdict
from mlagentbench.records import Baseline, Call, Hardware, Hashes, Limits, Result, RunSpec, Step
from mlagentbench.runner.folder import RunFolder

BASELINE = Baseline(mean=10.0, sd=0.1, n=8)
HASHES = Hashes(task="t" * 64, grader="a" * 64, data="d" * 64, runtime="r" * 64)
MACHINE = Hardware(cpu="a chip", cores=2, memory_gb=8, system="Linux", python="3.11")


def make(place: Path, improvement: float | None = None, said: tuple[str, ...] = (), **changes: Any) -> Run:
    """A finished run whose score is so much better than a baseline of 10, lower being better; None is invalid.

    `changes` are of fields of the spec and of the result; ending=None leaves it unfinished.
    """
    told = {name: value for name, value in changes.items() if name in RunSpec.model_fields}
    asked: dict[str, Any] = {
        "task": "toy",
        "edition": "open",
        "agent": "played",
        "seed": 0,
        "baseline": BASELINE,
    }
    asked |= {"limits": Limits(), "sandbox": "bwrap", "metric": "error", "better": "lower", "hashes": HASHES}
    asked |= {"version": "0", "id": str(place), "hardware": MACHINE, "started": "2026-01-01T00:00:00"}
    spec = RunSpec(**{**asked, **told})
    folder = RunFolder.create(place, spec)
    for number, words in enumerate(said, 1):
        step = Step(
            number=number, call=Call(action="Execute Script"), observation=words, seconds=1, clock=number
        )
        folder.trace.append(step.model_dump_json())
    ending = changes.get("ending", "submitted")
    if ending is not None:
        folder.write_result(_result(spec, improvement, ending, changes))
    return Run(RunFolder(place), folder.result)


def _result(spec: RunSpec, improvement: float | None, ending: str, changes: dict[str, Any]) -> Result:
    found: dict[str, Any] = {
        "task": spec.task,
        "edition": spec.edition,
        "agent": spec.agent,
        "model": spec.model,
    }
    found |= {"ending": ending, "steps": 3, "seconds": 60.0, "hashes": spec.hashes, "seed": spec.seed}
    found |= {"unsandboxed": spec.sandbox == "none"}
    mean = spec.baseline.mean if spec.baseline else 10.0
    if improvement is not None and ending != "fault":
        score = mean * (1 - improvement) if spec.better == "lower" else mean * (1 + improvement)
        found |= {"score": score, "valid": True}
        if spec.baseline:
            found |= compute_verdict(score, spec.baseline, spec.better).model_dump()
    found |= {
        name: value
        for name, value in changes.items()
        if name in {"tokens", "dollars", "seconds", "trace", "violations"}
    }
    return Result.model_validate_json(json.dumps(found, default=lambda value: value.model_dump()))
