"""plan.toml: tasks, agents, models, seeds and limits. Every combination is a run."""

import tomllib
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

from pydantic import (
    AliasChoices,
    Field,
    StrictBool,
    StrictInt,
    ValidationError,
    field_validator,
    model_validator,
)

from mlagentbench.errors import UsageError
from mlagentbench.models import base as models
from mlagentbench.models.base import Model
from mlagentbench.records import AgentSpec, Limits, Record, Start
from mlagentbench.runner.batch.job import Job
from mlagentbench.runner.batch.subprocess_runner import inspect_agent
from mlagentbench.runner.start import require_tools
from mlagentbench.sandbox.access_log.recording import require_access_log_support
from mlagentbench.sandbox.selection import create_sandbox
from mlagentbench.system.key_suggestions import suggest_key
from mlagentbench.task import Task, describe_validation_error

# The fields of Limits that a plan may set.
LIMIT_KEYS = ("steps", "hours", "tokens", "dollars", "script_minutes", "memory_gb")
# An override of the first key removes the second one from the file.
REPLACED_KEYS = (("seeds", "repetitions"), ("repetitions", "seeds"), ("record_access", "ledger"))


class AgentPlan(Record):
    """An agent and its options."""

    name: str
    options: dict[str, Any] = Field(default_factory=dict)


class Budget(Record):
    """Limits for the sum over all runs; hours are wall-clock hours of the runs."""

    dollars: float | None = Field(gt=0, default=None, strict=True)
    hours: float | None = Field(gt=0, default=None, strict=True)


class Plan(Record):
    """The keys of plan.toml. Unknown keys are errors, and so are texts for numbers.

    `tries` is the number of attempts for a run that ends with a fault. `pause` is the delay before the second
    attempt in seconds; it doubles with each further one.
    """

    tasks: tuple[str, ...] = Field(min_length=1)
    agents: tuple[AgentPlan, ...] = Field(min_length=1)
    models: tuple[str, ...] = ()
    fast_model: str = ""
    edit_model: str = ""
    repetitions: int = Field(gt=0, default=1, strict=True)
    seeds: tuple[StrictInt, ...] = ()
    edition: str = "open"
    instance: str = ""
    start: Start = "starter"
    sandbox: str = "auto"
    record_access: StrictBool = Field(default=False, validation_alias=AliasChoices("record_access", "ledger"))
    limits: dict[str, Any] = Field(default_factory=dict)
    budget: Budget = Budget()
    tries: int = Field(gt=0, default=3, strict=True)
    pause: float = Field(ge=0, default=30.0, strict=True)

    @model_validator(mode="before")
    @classmethod
    def _check_seeds(cls, given: Any) -> Any:
        if isinstance(given, dict) and given.get("seeds") and "repetitions" in given:
            raise ValueError("repetitions and seeds are mutually exclusive")
        return given

    @field_validator("agents", mode="before")
    @classmethod
    def _expand_agent_names(cls, given: Any) -> Any:
        if not isinstance(given, list | tuple):
            return given
        return [{"name": agent} if isinstance(agent, str) else agent for agent in given]

    @field_validator("limits")
    @classmethod
    def _check_limits(cls, given: dict[str, Any]) -> dict[str, Any]:
        if unknown := set(given) - set(LIMIT_KEYS):
            raise ValueError(f"no such limit: {sorted(unknown)[0]!r}; available: {', '.join(LIMIT_KEYS)}")
        try:
            checked = Limits.model_validate(given, strict=True).model_dump()
        except ValidationError as error:
            raise ValueError(describe_validation_error(error)) from error
        return {name: checked[name] for name in sorted(given)}

    def expand_jobs(self) -> list[Job]:
        """Create one job for each combination.

        Jobs are ordered by seed, so that a batch that is stopped early has results for every combination.

        Raises:
            UsageError: A task, agent, model or sandbox does not exist or does not fit.
        """
        sandbox = create_sandbox(self.sandbox).name
        if self.record_access:
            require_access_log_support(sandbox)
        tasks = [_resolve_task(name, self.edition, self.start) for name in self.tasks]
        agent_specs = [agent_spec for agent in self.agents for agent_spec in self._agent_specs(agent)]
        seeds = self.seeds or range(self.repetitions)
        common: dict[str, Any] = {
            "edition": self.edition,
            "instance": self.instance,
            "start": self.start,
            "sandbox": sandbox,
            "record_access": self.record_access,
            "limits": self.limits,
        }
        jobs = [
            Job(task=task, agent_spec=agent_spec, seed=seed, **common)
            for seed, task, agent_spec in product(seeds, tasks, agent_specs)
        ]
        return list({job.name: job for job in jobs}.values())  # a plan may name a task or an agent twice

    def _agent_specs(self, agent: AgentPlan) -> Iterator[AgentSpec]:
        file = Path(agent.name).absolute() if agent.name.endswith(".py") else None
        agent_spec = AgentSpec(agent=str(file or agent.name), options=agent.options)
        traits = inspect_agent(agent_spec, self.sandbox)
        if traits.interactive:
            raise UsageError(f"The agent {agent.name} is interactive and cannot run in a batch")
        if not traits.needs_model:
            yield agent_spec
            return
        if not self.models:
            raise UsageError(
                f"The agent {agent.name} needs a model. Add `models` to the plan or pass --model NAME."
            )
        for model in self.models if traits.needs_tools else ():
            require_tools(agent.name, model)
        for name in (*self.models, self.fast_model, self.edit_model):
            if name:
                self._require_price(name, models.load_model(name))
        for model in self.models:
            yield agent_spec.replace(model=model, fast_model=self.fast_model, edit_model=self.edit_model)

    def _require_price(self, name: str, model: Model) -> None:
        has_dollar_limit = self.budget.dollars is not None or self.limits.get("dollars") is not None
        if has_dollar_limit and model.price is None:
            raise UsageError(
                f"A limit in dollars needs a price, but no price is known for {name}. Limit tokens instead."
            )


def _resolve_task(name: str, edition: str, start: Start) -> str:
    task = Task.load(name)
    task.edition(edition)
    task.solution(start)
    return task.load_name


def read_plan(path: Path | None, overrides: dict[str, Any]) -> Plan:
    """Read a plan file and replace some of its keys.

    Args:
        path: plan.toml; None if `overrides` is the whole plan.
        overrides: Keys that replace those of the file. Tables (`limits`, `budget`) are merged. The extra key
            `options` is added to the options of every agent.

    Raises:
        UsageError: The file cannot be read, or the plan is not valid.
    """
    overrides = dict(overrides)
    try:
        from_file = tomllib.loads(path.read_text(encoding="utf-8")) if path else {}
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"Cannot read {path}: {getattr(error, 'strerror', error)}") from error
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path} is not valid TOML: {error}") from error
    for key, replaced in REPLACED_KEYS:
        if key in overrides:
            from_file.pop(replaced, None)
    options = overrides.pop("options", {})
    for name in ("limits", "budget"):
        if isinstance(from_file.get(name, {}), dict) and name in overrides:
            overrides = {**overrides, name: {**from_file.get(name, {}), **overrides[name]}}
    try:
        plan = Plan.model_validate({**from_file, **overrides})
    except ValidationError as error:
        raise UsageError(f"{path or 'Plan'}: {_explain_plan_error(error)}") from error
    agents = (agent.replace(options={**agent.options, **options}) for agent in plan.agents)
    return plan.replace(agents=tuple(agents))


def _explain_plan_error(error: ValidationError) -> str:
    """Describe what is wrong in terms of TOML, and suggest a key for one that does not exist."""
    message = (
        describe_validation_error(error)
        .replace("value error, ", "")
        .replace("valid tuple", "list")
        .removeprefix("it: ")
    )
    misplaced = [
        problem["loc"]
        for problem in error.errors()
        if problem["type"] == "extra_forbidden" and problem["loc"][0] in LIMIT_KEYS
    ]
    hint = "it belongs in [limits]" if misplaced else suggest_key(error, Plan)
    return f"{message}; {hint}" if hint else message
