"""The problem statement: a task's description, and the resources and limits of the run."""

from mlagentbench.formatting import format_quantity
from mlagentbench.language.prompts import fill_prompt
from mlagentbench.records import Hardware, Limits, Start
from mlagentbench.task import Task


def build_problem_statement(
    task: Task,
    edition: str,
    limits: Limits,
    hardware: Hardware,
    gpu: str = "",
    start: Start = "starter",
) -> str:
    """Build the text that describes the problem to an agent, the same in every interface.

    Args:
        task: The task to work on.
        edition: The edition of its data.
        limits: The limits of the run.
        hardware: The machine on which scripts run.
        gpu: The GPUs that the run may use, as in `RunSpec.gpu`.
        start: The solution that the agent starts from.
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
    parts = [task.describe(edition).strip(), resources]
    if start != "starter":
        parts.insert(1, fill_prompt("hard_start"))
    return "\n\n".join(parts) + "\n"


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
