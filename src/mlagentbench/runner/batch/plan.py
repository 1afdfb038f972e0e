"""plan.toml: tasks, agents, models, seeds and limits, of which every combination is a run."""

import tomllib
from collections.abc import Iterator
from difflib import get_close_matches
from itertools import product
from pathlib import Path
from typing import Any

from pydantic import AliasChoices, Field, ValidationError, field_validator, model_validator

from mlagentbench.errors import UsageError
from mlagentbench.models import base as models
from mlagentbench.models.base import Model
from mlagentbench.records import AgentSpec, Limits, Record
from mlagentbench.runner.batch.job import Job
from mlagentbench.runner.batch.subprocess_runner import inspect_agent
from mlagentbench.sandbox.access_log.recording import require_access_log_support
from mlagentbench.sandbox.selection import create_sandbox
from mlagentbench.task import Task, describe_validation_error

LIMIT_KEYS = ("steps", "hours", "tokens", "dollars", "script_minutes", "memory_gb")


class AgentPlan(Record):
    """An agent, and what it is told."""

    name: str
    options: dict[str, Any] = Field(default_factory=dict)


class Budget(Record):
    """What all runs together may use; hours are those of the runs, added up."""

    dollars: float | None = Field(gt=0, default=None)
    hours: float | None = Field(gt=0, default=None)


class Plan(Record):
    """What plan.toml may say; anything else is an error."""

    tasks: tuple[str, ...] = Field(min_length=1)
    agents: tuple[AgentPlan, ...] = Field(min_length=1)
    models: tuple[str, ...] = ()
    fast_model: str = ""
    edit_model: str = ""
    repetitions: int = Field(gt=0, default=1)
    seeds: tuple[int, ...] = ()
    edition: str = "open"
    instance: str = ""
    sandbox: str = "bwrap"
    record_access: bool = Field(default=False, validation_alias=AliasChoices("record_access", "ledger"))
    limits: dict[str, Any] = Field(default_factory=dict)
    budget: Budget = Budget()
    tries: int = Field(gt=0, default=3)
    pause: float = Field(ge=0, default=30.0)

    @model_validator(mode="before")
    @classmethod
    def _check_seeds(cls, given: Any) -> Any:
        if isinstance(given, dict) and given.get("seeds") and "repetitions" in given:
            raise ValueError("repetitions and seeds exclude each other")
        return given

    @field_validator("agents", mode="before")
    @classmethod
    def _expand_agent_names(cls, given: Any) -> Any:
        if not isinstance(given, list | tuple):
            return given
        return [{"name": each} if isinstance(each, str) else each for each in given]

    @field_validator("limits")
    @classmethod
    def _check_limits(cls, given: dict[str, Any]) -> dict[str, Any]:
        if unknown := set(given) - set(LIMIT_KEYS):
            raise ValueError(f"there is no {sorted(unknown)[0]!r}; there are: {', '.join(LIMIT_KEYS)}")
        try:
            checked = Limits.model_validate(given).model_dump()
        except ValidationError as error:
            raise ValueError(describe_validation_error(error)) from error
        return {name: checked[name] for name in sorted(given)}

    def expand_jobs(self) -> list[Job]:
        """Every combination, once; seed by seed, so that a batch that is cut short has something of everything."""
        create_sandbox(self.sandbox)
        if self.record_access:
            require_access_log_support(self.sandbox)
        tasks = [_resolve_task(name, self.edition) for name in self.tasks]
        contestants = [who for agent in self.agents for who in self._agent_specs(agent)]
        seeds = self.seeds or range(self.repetitions)
        common: dict[str, Any] = {
            "edition": self.edition,
            "instance": self.instance,
            "sandbox": self.sandbox,
            "record_access": self.record_access,
            "limits": self.limits,
        }
        found = [
            Job(task=task, agent_spec=who, seed=seed, **common)
            for seed, task, who in product(seeds, tasks, contestants)
        ]
        return list({job.name: job for job in found}.values())

    def _agent_specs(self, agent: AgentPlan) -> Iterator[AgentSpec]:
        file = Path(agent.name).absolute() if agent.name.endswith(".py") else None
        who = AgentSpec(agent=str(file or agent.name), options=agent.options)
        kind = inspect_agent(who, self.sandbox)
        if kind.interactive:
            raise UsageError(f"the agent {agent.name} needs a person, and cannot work in a batch")
        if not kind.needs_model:
            yield who
            return
        if not self.models:
            raise UsageError(
                f"the agent {agent.name} needs a model: name some as models, or pass --model NAME"
            )
        for name in (*self.models, self.fast_model, self.edit_model):
            if name:
                self._require_price(name, models.load_model(name))
        for model in self.models:
            yield who.replace(model=model, fast_model=self.fast_model, edit_model=self.edit_model)

    def _require_price(self, name: str, model: Model) -> None:
        limited = self.budget.dollars is not None or self.limits.get("dollars") is not None
        if limited and model.price is None:
            raise UsageError(
                f"a limit in dollars needs a price, and none is known for {name}; limit tokens instead"
            )


def _resolve_task(name: str, edition: str) -> str:
    task = Task.load(name)
    task.edition(edition)
    return task.load_name


def read_plan(path: Path | None, overrides: dict[str, Any]) -> Plan:
    """The plan in a file, with what was given besides in place of what it says; or the one that was given whole.

    `options` are for all of its agents.
    """
    overrides = dict(overrides)
    try:
        told = tomllib.loads(path.read_text(encoding="utf-8")) if path else {}
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {getattr(error, 'strerror', error)}") from error
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path}: not valid TOML: {error}") from error
    for one, other in (("seeds", "repetitions"), ("repetitions", "seeds")):
        if one in overrides:
            told.pop(other, None)
    options = overrides.pop("options", {})
    for name in ("limits", "budget"):
        if isinstance(told.get(name, {}), dict) and name in overrides:
            overrides = {**overrides, name: {**told.get(name, {}), **overrides[name]}}
    try:
        plan = Plan.model_validate({**told, **overrides})
        return plan.replace(
            agents=tuple(each.replace(options={**each.options, **options}) for each in plan.agents)
        )
    except ValidationError as error:
        raise UsageError(f"{path or 'the plan'}: {_explain_plan_error(error)}") from error


def _explain_plan_error(error: ValidationError) -> str:
    """What is wrong with a plan, in the words of TOML; for a key that does not exist, the one that may be meant."""
    told = (
        describe_validation_error(error)
        .replace("value error, ", "")
        .replace("valid tuple", "list")
        .removeprefix("it: ")
    )
    unknown = [each["loc"] for each in error.errors() if each["type"] == "extra_forbidden"]
    if not unknown:
        return told
    *above, key = map(str, unknown[0])
    if not above and key in LIMIT_KEYS:
        return f"{told}; it belongs below [limits]"
    tables: dict[str, type[Record]] = {"budget": Budget, "agents": AgentPlan}
    known = list(tables.get(above[0] if above else "", Plan).model_fields)
    near = get_close_matches(key, known, 1, cutoff=0.7)
    return f"{told}; did you mean {near[0]!r}?" if near else f"{told}; there are: {', '.join(known)}"
