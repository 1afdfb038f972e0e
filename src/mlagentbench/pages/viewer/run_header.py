"""The header of a run page: the verdict, the numbers behind it, and the settings of the run."""

from collections.abc import Iterator
from typing import NamedTuple

from mlagentbench.analysis.runs import Run
from mlagentbench.formatting import describe_verdict, format_duration, format_percent, format_score
from mlagentbench.levels import MIN_GAP_CLOSED, MIN_IMPROVEMENT, SIGNIFICANCE_LEVEL
from mlagentbench.records import Result

ENDING_SENTENCES = {
    "submitted": "the agent submitted",
    "steps": "step limit reached",
    "time": "time limit reached",
    "tokens": "token limit reached",
    "money": "cost limit reached",
    "stopped": "the agent stopped without submitting",
    "crashed": "the agent's own code crashed",
    "fault": "fault of the benchmark",
}
LabeledValues = tuple[tuple[str, str], ...]
HeadlineFigures = tuple[tuple[str, str, str], ...]  # label, value, note


class RunHeader(NamedTuple):
    """The texts of the header."""

    badge_class: str  # good, bad, warn, accent or empty
    verdict: str
    explanation: str
    figures: HeadlineFigures
    usage: LabeledValues
    settings: LabeledValues
    notices: tuple[str, ...]


def build_header(run: Run, is_running: bool = False) -> RunHeader:
    """Build the header of a run's page."""
    badge_class, verdict, explanation = (
        _explain_verdict(run.result) if run.result else _explain_unfinished(is_running)
    )
    return RunHeader(
        badge_class=badge_class,
        verdict=verdict,
        explanation=explanation,
        figures=tuple(_headline_figures(run)),
        usage=tuple(_usage(run)),
        settings=tuple(_settings(run)),
        notices=_notices(run),
    )


def _explain_verdict(result: Result) -> tuple[str, str, str]:
    verdict, _, explanation = describe_verdict(result).partition(": ")
    failed = result.ending == "fault" or not result.valid
    if result.success:
        badge_class = "good"
    elif failed:
        badge_class = "bad"
    else:
        badge_class = "warn" if result.baseline is not None else ""
    return badge_class, verdict[:1].upper() + verdict[1:].lower(), explanation


def _explain_unfinished(is_running: bool) -> tuple[str, str, str]:
    if is_running:
        return "accent", "Running", "no result yet"
    return "warn", "Unfinished", "the run was stopped or killed; it has no result and can be resumed"


def _headline_figures(run: Run) -> Iterator[tuple[str, str, str]]:
    spec, result = run.spec, run.result
    metric = f"{spec.metric}, {spec.better} is better" if spec.metric else f"{spec.better} is better"
    if result:
        yield "Score", format_score(result.score), metric
    if baseline := spec.baseline:
        spread = f"± {format_score(baseline.sd)} over {baseline.n} runs"
        details = spread if result else f"{spread}; {metric}"
        yield spec.start.capitalize(), format_score(baseline.mean), details
    if result and result.progress is not None:
        yield "Progress", f"{result.progress:.0%}", "0% is the starter, 100% the expert"
    if result and result.p_value is not None:
        if result.gap_closed is None:
            needed = f"success requires more than {MIN_IMPROVEMENT:.0%}"
            yield "Improvement", format_percent(result.improvement), needed
        else:
            needed = f"to the next level; success requires {MIN_GAP_CLOSED:.0%}"
            yield "Gap closed", format_percent(result.gap_closed), needed
        meaning = "probability of a score this good by chance"
        yield (
            "p-value",
            f"{result.p_value:.2g}",
            f"{meaning}; success requires less than {SIGNIFICANCE_LEVEL:g}",
        )


def _usage(run: Run) -> Iterator[tuple[str, str]]:
    limits, result, last_step = run.spec.limits, run.result, run.steps[-1] if run.steps else None
    totals = result or last_step
    if result:
        yield "Ended", ENDING_SENTENCES[result.ending]
    yield "Steps", f"{len(run.steps)} of {limits.steps}"
    seconds = result.seconds if result else last_step.clock if last_step else 0.0
    yield "Time", f"{format_duration(seconds)} of {limits.hours:g} h"
    tokens, dollars = (totals.tokens, totals.dollars) if totals else (0, 0.0)
    if tokens or limits.tokens:
        yield "Tokens", f"{tokens:,}" + (f" of {limits.tokens:,}" if limits.tokens else "")
    if dollars or limits.dollars:
        yield "Cost", f"${dollars:.4f}" + (f" of ${limits.dollars:g}" if limits.dollars else "")


def _settings(run: Run) -> Iterator[tuple[str, str]]:
    spec, limits, machine = run.spec, run.spec.limits, run.spec.hardware
    yield "Task", f"{run.task} ({spec.edition} edition{f', {spec.kind} data' if spec.kind else ''})"
    yield "Agent", run.agent_label
    yield "Seed", str(spec.seed)
    yield "Started", spec.started
    gpu, access_log = f", GPU {spec.gpu}" if spec.gpu else "", ", access log" if spec.record_access else ""
    yield "Sandbox", f"{spec.sandbox}{gpu}{access_log}"
    if spec.sandbox_limitations:
        yield "Limits of the sandbox", "; ".join(spec.sandbox_limitations)
    yield (
        "Limits per script",
        f"{limits.script_minutes:g} min, {limits.memory_gb:g} GB memory, {limits.disk_gb:g} GB disk,"
        f" {limits.processes} processes",
    )
    machine_gpu = f", {machine.gpu}" if machine.gpu else ""
    yield "Machine", f"{machine.cpu}, {machine.cores} cores, {machine.memory_gb:g} GB{machine_gpu}"
    yield "Software", f"mlagentbench {spec.version}, Python {machine.python}, {machine.system}"
    for name, value in spec.hashes.model_dump().items():
        yield f"Hash of the {name}", value
    if run.result and run.result.trace:
        yield "Hash of the trace", run.result.trace
        yield "Hash of the last snapshot", run.result.snapshot
    yield "Folder", run.name


def _notices(run: Run) -> tuple[str, ...]:
    result = run.result
    notices = []
    if run.spec.sandbox == "none" or (result and result.unsandboxed):
        notices.append("Unsandboxed: nothing prevented the agent from reading the answers.")
    if result:
        notices += [f"Rule violation: {violation}" for violation in result.violations]
        if result.note and result.valid and result.ending != "fault":
            notices.append(result.note)
    return tuple(notices)
