"""The tasks of the benchmark as a taskset. Rewards come from our graders, outside the sandbox."""

from collections.abc import Iterable
from typing import Literal

from pydantic import Field
from verifiers.v1 import Task as VerifiersTask
from verifiers.v1 import (
    TaskConfig,
    TaskData,
    TaskError,
    Taskset,
    TasksetConfig,
    TaskTimeout,
    Trace,
    metric,
    reward,
)

from mlagentbench.adapters.verifiers.runtime import BubblewrapRuntime
from mlagentbench.environment.problem_statement import build_problem_statement
from mlagentbench.errors import UsageError
from mlagentbench.language.prompts import fill_prompt
from mlagentbench.records import Result, Start
from mlagentbench.system.hardware import detect_hardware
from mlagentbench.task import Task, parse_start

RewardName = Literal["success", "progress"]


class BenchmarkTaskConfig(TaskConfig):  # type: ignore[misc]  # verifiers is not installed here
    """How an episode is rewarded."""

    reward: RewardName = "success"
    """success: 1 for a significant improvement over the start, else 0. progress: 0 at the starter, 1 at the
    expert, not capped; 0 without a valid submission."""


class BenchmarkTasksetConfig(TasksetConfig):  # type: ignore[misc]
    """Which tasks are loaded, and how their runs are set up."""

    tasks: list[str] = Field(default_factory=lambda: ["house-price"])
    """Names of tasks, or their folders."""
    edition: str = "open"
    instance: str = ""
    start: str = "starter"
    hours: float | None = None
    """Time limit of an episode; by default that of the task."""
    runs: str = "runs/verifiers"
    """The folder for the run folders of the episodes."""
    gpu: str = ""
    task: BenchmarkTaskConfig = BenchmarkTaskConfig()


class BenchmarkTaskData(TaskData):  # type: ignore[misc]
    """What describes one task in verifiers' records."""

    task: str
    edition: str = "open"
    instance: str = ""
    start: Start = "starter"
    hours: float
    runs: str = ""
    gpu: str = ""


class BenchmarkTask(VerifiersTask[BenchmarkTaskData]):  # type: ignore[misc]
    """One task, graded from the workspace that the episode leaves."""

    config: BenchmarkTaskConfig

    @reward  # type: ignore[untyped-decorator]
    async def verdict(self, trace: Trace, runtime: BubblewrapRuntime) -> float:
        """The success or the progress of the run; a fault of the harness is an error, never a zero."""
        result = await self._grade(trace, runtime)
        value = result.success if self.config.reward == "success" else result.progress
        if result.valid and value is None:
            raise TaskError(
                f"The {self.config.reward} of {result.task} is not defined: a level is not known."
            )
        return float(value or 0.0)

    @metric  # type: ignore[untyped-decorator]
    async def outcome(self, trace: Trace, runtime: BubblewrapRuntime) -> dict[str, float]:
        """Everything that the grader found."""
        result = await self._grade(trace, runtime)
        values = {
            "success": result.success,
            "valid": result.valid,
            "violations": len(result.violations),
            "progress": result.progress,
            "improvement": result.improvement,
            "score": result.score,
        }
        return {name: float(value) for name, value in values.items() if value is not None}

    async def _grade(self, trace: Trace, runtime: BubblewrapRuntime) -> Result:
        result = await runtime.finish(trace.id)
        if result.ending == "fault":
            raise TaskError(result.note)
        return result


class BenchmarkTaskset(Taskset[BenchmarkTask, BenchmarkTasksetConfig]):  # type: ignore[misc]
    """The tasks that the option `--env.taskset.tasks` names."""

    def load(self) -> Iterable[BenchmarkTask]:
        """Describe each task."""
        for name in self.config.tasks:
            yield BenchmarkTask(self._describe(name), self.config.task)

    def _describe(self, name: str) -> BenchmarkTaskData:
        task, config, start = Task.load(name), self.config, parse_start(self.config.start)
        task.edition(config.edition)
        task.solution(start)
        limits = task.config.limits
        if config.hours is not None:
            if config.hours <= 0:
                raise UsageError("hours must be positive.")
            limits = limits.replace(hours=config.hours)
        statement = build_problem_statement(
            task, config.edition, limits, detect_hardware(), config.gpu, start
        )
        return BenchmarkTaskData(
            name=task.name,
            description=task.config.title,
            prompt=f"{statement}{fill_prompt('harbor')}\n",
            workdir="/workspace",
            timeout=TaskTimeout(agent=limits.hours * 3600),
            task=task.load_name,
            edition=config.edition,
            instance=config.instance,
            start=start,
            hours=limits.hours,
            runs=config.runs,
            gpu=config.gpu,
        )
