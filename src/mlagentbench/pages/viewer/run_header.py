"""What stands above the steps: the verdict in words, the figures behind it, and what they depend on."""

from collections.abc import Iterator
from typing import NamedTuple

from mlagentbench.analysis.runs import Run
from mlagentbench.formatting import describe_verdict, format_duration, format_percent, format_score
from mlagentbench.grading.verdict import MIN_IMPROVEMENT, SIGNIFICANCE_LEVEL
from mlagentbench.records import Result

ENDING_PHRASES = {
    "submitted": "the agent submitted",
    "steps": "the steps were used up",
    "time": "the time was used up",
    "tokens": "the tokens were used up",
    "money": "the money was used up",
    "stopped": "the agent stopped without submitting",
    "crashed": "the agent's own code failed",
    "fault": "a fault of the benchmark",
}
LabeledValues = tuple[tuple[str, str], ...]
HeadlineFigures = tuple[tuple[str, str, str], ...]  # what, how much, beside what to read it


class RunHeader(NamedTuple):
    """All of it, in words."""

    badge_class: str  # good, bad, warn, accent or none
    verdict: str
    explanation: str
    figures: HeadlineFigures
    usage: LabeledValues
    settings: LabeledValues
    notices: tuple[str, ...]


def build_header(run: Run, is_running: bool = False) -> RunHeader:
    """The head of a run's page."""
    result = run.result
    tone, word, sentence = _describe_verdict(result) if result else _describe_unfinished(is_running)
    return RunHeader(
        tone,
        word,
        sentence,
        tuple(_headline_figures(run)),
        tuple(_usage(run)),
        tuple(_settings(run)),
        _notices(run),
    )


def _describe_verdict(result: Result) -> tuple[str, str, str]:
    word, _, sentence = describe_verdict(result).partition(": ")
    bad = result.ending == "fault" or not result.valid
    tone = "good" if result.success else "bad" if bad else "warn" if result.baseline is not None else ""
    return tone, word[:1].upper() + word[1:].lower(), sentence


def _describe_unfinished(going: bool) -> tuple[str, str, str]:
    if going:
        return "accent", "Still going", "there is no result yet"
    return "warn", "Unfinished", "it was stopped or killed, and can be resumed; there is no result"


def _headline_figures(run: Run) -> Iterator[tuple[str, str, str]]:
    spec, result = run.spec, run.result
    metric = f"{spec.metric}, {spec.better} is better" if spec.metric else f"{spec.better} is better"
    if result:
        yield "Score", format_score(result.score), metric
    if spec.baseline:
        known = spec.baseline
        spread = f"± {format_score(known.sd)} over {known.n} runs"
        yield "Starter", format_score(known.mean), spread if result else f"{spread}; {metric}"
    if result and result.p_value is not None:
        yield "Improvement", format_percent(result.improvement), f"success needs over {MIN_IMPROVEMENT:.0%}"
        yield (
            "p-value",
            f"{result.p_value:.2g}",
            f"chance that the starter does as well; success needs below {SIGNIFICANCE_LEVEL:g}",
        )


def _usage(run: Run) -> Iterator[tuple[str, str]]:
    limits, result, last = run.spec.limits, run.result, run.steps[-1] if run.steps else None
    spent = result or last
    if result:
        yield "Ended", ENDING_PHRASES[result.ending]
    yield "Steps", f"{len(run.steps)} of {limits.steps}"
    seconds = result.seconds if result else last.clock if last else 0.0
    yield "Time", f"{format_duration(seconds)} of {limits.hours:g} h"
    tokens, dollars = (spent.tokens, spent.dollars) if spent else (0, 0.0)
    if tokens or limits.tokens:
        yield "Tokens", f"{tokens:,}" + (f" of {limits.tokens:,}" if limits.tokens else "")
    if dollars or limits.dollars:
        yield "Dollars", f"${dollars:.4f}" + (f" of ${limits.dollars:g}" if limits.dollars else "")


def _settings(run: Run) -> Iterator[tuple[str, str]]:
    spec, limits, machine = run.spec, run.spec.limits, run.spec.hardware
    yield "Task", f"{run.task} ({spec.edition} edition{f', {spec.kind} data' if spec.kind else ''})"
    yield "Agent", run.agent_label
    yield "Seed", str(spec.seed)
    yield "Started", spec.started
    yield (
        "Sandbox",
        spec.sandbox + (f", GPU {spec.gpu}" if spec.gpu else "") + (", access ledger" * spec.record_access),
    )
    yield (
        "Each script",
        f"{limits.script_minutes:g} min, {limits.memory_gb:g} GB memory, {limits.disk_gb:g} GB disk,"
        f" {limits.processes} processes",
    )
    yield (
        "Machine",
        f"{machine.cpu}, {machine.cores} cores, {machine.memory_gb:g} GB{_gpu_suffix(machine.gpu)}",
    )
    yield "Software", f"mlagentbench {spec.version}, Python {machine.python}, {machine.system}"
    for name, value in spec.hashes.model_dump().items():
        yield f"Hash of the {name}", value
    if run.result and run.result.trace:
        yield "Hash of the trace", run.result.trace
        yield "Hash of the last snapshot", run.result.snapshot
    yield "Folder", run.name


def _gpu_suffix(gpu: str) -> str:
    return f", {gpu}" if gpu else ""


def _notices(run: Run) -> tuple[str, ...]:
    result = run.result
    found = []
    if run.spec.sandbox == "none" or (result and result.unsandboxed):
        found.append("Unsandboxed: nothing kept the agent from the answers.")
    if result:
        found += [f"Rule broken: {violation}" for violation in result.violations]
        if result.note and result.valid and result.ending != "fault":
            found.append(result.note)
    return tuple(found)
