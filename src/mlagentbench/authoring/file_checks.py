"""Checks of the contract that read the folder of a task: files, description and levels."""

import re
import sys
from itertools import pairwise

from mlagentbench.authoring.contract import CheckFailed, CheckSkipped, TaskUnderTest
from mlagentbench.formatting import format_score
from mlagentbench.grading.verdict import compute_verdict, find_unreachable_success, is_at_least_as_good
from mlagentbench.levels import SIGNIFICANCE_LEVEL
from mlagentbench.records import STARTS, Baseline
from mlagentbench.runtimes.base import read_requirements, runtime_names

MIN_SEEDS = 8  # over which the starter is measured
VALIDATION_LINE = re.compile(r"print\(\s*f?[\"'](validation [^:{]*: )")


def check_files(subject: TaskUnderTest) -> None:
    """All required files exist, and task.toml is valid."""
    task = subject.task
    task.edition(subject.edition)
    if not (task.starter / "train.py").is_file():
        raise CheckFailed("starter/train.py is missing. Agents and `mlagentbench baseline` run it.")
    if task.config.runtime not in runtime_names():
        available = ", ".join(runtime_names())
        raise CheckFailed(f"task.toml: no such runtime: {task.config.runtime!r}. Available: {available}.")


def check_modules(subject: TaskUnderTest) -> None:
    """No module of the task has the name of a package."""
    modules = {path.stem for path in subject.task.folder.glob("*.py")} - {"prepare", "grade"}
    packages = {
        line.partition("==")[0].replace("-", "_")
        for runtime in runtime_names()
        for line in read_requirements(runtime)
    }
    if shadowing := sorted(modules & (packages | set(sys.stdlib_module_names))):
        raise CheckFailed(f"{shadowing[0]}.py has the name of a package. Rename it.")


def check_validation_line(subject: TaskUnderTest) -> None:
    """The starter prints `validation NAME: NUMBER` once, and the description says so."""
    task = subject.task
    printed = VALIDATION_LINE.findall((task.starter / "train.py").read_text(encoding="utf-8"))
    if len(printed) != 1:
        raise CheckFailed(
            f'starter/train.py has {len(printed)} statements print(f"validation NAME: {{number}}");'
            " there must be one, as its last output. The tuner agent and people read it."
        )
    line = f"`{printed[0]}<number>`"
    if line not in " ".join(task.describe(subject.edition).split()):
        raise CheckFailed(f"description.md does not say that train.py prints {line} last.")


def check_rules(subject: TaskUnderTest) -> None:
    """A task with rules declares code that breaks one, so that the audit can test it."""
    if not subject.task.has_rules:
        raise CheckSkipped("grade.py has no function violations")
    if subject.task.config.traits.rule_violation is None:
        raise CheckFailed("grade.py defines violations, but task.toml has no [traits.rule_violation].")


def check_levels(subject: TaskUnderTest) -> None:
    """Starter and reference are measured, and every level is better than the one below, beyond noise."""
    task, levels = subject.task, subject.levels
    measure = f"mlagentbench baseline {task.load_name}"
    if levels.starter is None:
        raise CheckFailed(f"The starter is not measured. Run: {measure} -n {MIN_SEEDS}")
    if levels.starter.n < MIN_SEEDS:
        raise CheckFailed(
            f"The starter is measured with n = {levels.starter.n}, not {MIN_SEEDS} seeds."
            f" Run: {measure} -n {MIN_SEEDS}"
        )
    if levels.reference is None:
        raise CheckFailed(f"The reference is not measured. Run: {measure} --start reference")
    verdict = compute_verdict(levels.reference.mean, levels.starter, task.config.better)
    if not verdict.success:
        raise CheckFailed(
            f"The reference ({format_score(levels.reference.mean)}) does not beat the starter"
            f" ({_format_level(levels.starter)}) by more than 10 % and beyond noise."
            " Weaken the starter or improve the reference."
        )
    measured = [(start, level) for start in STARTS if (level := levels.solution(start))]
    for (lower, below), (higher, above) in pairwise(measured):
        verdict = compute_verdict(above.mean, below, task.config.better)
        if verdict.p_value >= SIGNIFICANCE_LEVEL:
            raise CheckFailed(
                f"The {higher} ({format_score(above.mean)}) is not better than the {lower}"
                f" ({_format_level(below)}) beyond noise."
            )


def check_ceiling(subject: TaskUnderTest) -> None:
    """No measured level is better than the ceiling."""
    ceiling = subject.levels.ceiling
    if ceiling is None:
        raise CheckSkipped("task.toml has no ceiling")
    for start in STARTS:
        level = subject.levels.solution(start)
        if level and not is_at_least_as_good(ceiling.score, level.mean, subject.task.config.better):
            raise CheckFailed(
                f"The {start} ({_format_level(level)}) is better than the ceiling"
                f" ({format_score(ceiling.score)})."
            )


def check_success_possible(subject: TaskUnderTest) -> None:
    """A perfect submission would be a success."""
    config = subject.task.config
    if subject.levels.starter is None:
        raise CheckSkipped("the starter has not been measured")
    if problem := find_unreachable_success(subject.levels, config.metric, config.better):
        raise CheckFailed(problem)


def _format_level(level: Baseline) -> str:
    return f"{format_score(level.mean)} ± {format_score(level.sd)}"
