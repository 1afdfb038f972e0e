"""The problem statement: a task's description, and the resources and limits of the run."""

from mlagentbench.formatting import format_quantity, format_score
from mlagentbench.language.prompts import fill_prompt
from mlagentbench.levels import (
    MIN_GAP_CLOSED,
    MIN_IMPROVEMENT,
    SIGNIFICANCE_LEVEL,
    goal_score,
    is_success_possible,
    required_score,
)
from mlagentbench.records import Hardware, Levels, Limits, RunSpec, Scale, Start
from mlagentbench.task import Task


def build_problem_statement(
    task: Task,
    edition: str,
    limits: Limits,
    hardware: Hardware,
    gpu: str = "",
    start: Start = "starter",
    levels: Levels | None = None,
    has_model: bool = False,
) -> str:
    """Build the text that describes the problem to an agent, the same in every interface.

    Args:
        task: The task to work on.
        edition: The edition of its data.
        limits: The limits of the run.
        hardware: The machine on which scripts run.
        gpu: The GPUs that the run may use, as in `RunSpec.gpu`.
        start: The solution that the agent starts from.
        levels: The levels for the data of the run, by default those of the edition.
        has_model: Whether the run has a model, which the task may grant to scripts.
    """
    resources = fill_prompt(
        "resources",
        cores=format_quantity(hardware.cores, "CPU core"),
        gpu=_describe_gpus(gpu, hardware),
        script_minutes=format_quantity(limits.script_minutes, "minute"),
        memory=f"{min(limits.memory_gb, hardware.memory_gb):g}",
        processes=f"{limits.processes:,}",
        disk=f"{limits.disk_gb:g}",
        files=f"{limits.files:,}",
        steps=f"{limits.steps:,}",
        hours=format_quantity(limits.hours, "hour")
        if limits.hours >= 1
        else format_quantity(limits.hours * 60, "minute"),
        budget=_describe_budget(limits),
    )
    if task.config.grants.model:
        resources += "\n" + fill_prompt("granted_model" if has_model else "granted_model_absent")
    goal = _describe_goal(task, start, task.edition(edition).levels if levels is None else levels)
    return "\n\n".join([task.describe(edition).strip(), goal, resources]) + "\n"


def describe_run(task: Task, spec: RunSpec, has_model: bool) -> str:
    """Build the problem statement of a run that has been set up, from its specification."""
    return build_problem_statement(
        task,
        spec.edition,
        spec.limits,
        spec.hardware,
        spec.gpu,
        spec.start,
        spec.known_levels,
        has_model,
    )


def _describe_goal(task: Task, start: Start, levels: Levels) -> str:
    """Describe the code that the agent starts from, its score, and the score that counts as a success."""
    config, baseline = task.config, levels.solution(start)
    code = fill_prompt("starter") if start == "starter" else fill_prompt("hard_start", level=start)
    required = required_score(levels, start, config.better, config.scale)
    if baseline is None or required is None:
        return f"{code}\n{fill_prompt('goal_unknown')}"
    facts = {
        "score": format_score(baseline.mean),
        "metric": config.metric,
        "better": config.better,
        "measurement": (
            f"the mean of {format_quantity(baseline.n, 'run')} with different seeds, whose standard deviation"
            f" is {format_score(baseline.sd)}"
            if baseline.n > 1
            else "measured in one run"
        ),
    }
    if not is_success_possible(levels, start, config.better, config.scale):
        reason = "it was measured once, so its noise is not known"
        if baseline.n > 1:
            reason = "the best possible score is within its noise"
        return f"{code}\n{fill_prompt('goal_unreachable', **facts, reason=reason)}"
    goal = fill_prompt(
        "goal",
        **facts,
        required=format_score(required),
        rule=_describe_rule(start, goal_score(levels, start, config.better, config.scale), config.scale),
        significance=f"{SIGNIFICANCE_LEVEL:.0%}",
    )
    return f"{code}\n{goal}"


def _describe_rule(start: Start, goal: float | None, scale: Scale) -> str:
    """Describe what the required score means, after "It then"."""
    if goal is None:
        return f"is at least {MIN_IMPROVEMENT:.0%} better than this code"
    level = "the expert solution"
    if start == "expert":
        level = "the ceiling, an estimate of the best possible score,"
    log = ", on a logarithmic scale" if scale == "log" else ""
    return f"closes at least {MIN_GAP_CLOSED:.0%} of the gap to {level} at {format_score(goal)}{log}"


def _describe_gpus(gpu: str, hardware: Hardware) -> str:
    if not gpu:
        return "no GPU"
    names = [name for name in hardware.gpu.split("; ") if name]
    count = len(names) if gpu == "all" else len(gpu.split(","))
    models = ", ".join(dict.fromkeys(names))
    return format_quantity(count, "GPU") + (f" ({models})" if models else "")


def _describe_budget(limits: Limits) -> str:
    parts = [f"{limits.tokens:,} model tokens"] if limits.tokens is not None else []
    parts += [f"{limits.dollars:g} dollars of model calls"] if limits.dollars is not None else []
    return "".join(f", or {part}" for part in parts)
