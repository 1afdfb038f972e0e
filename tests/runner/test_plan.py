import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlagentbench.errors import UsageError
from mlagentbench.records import AgentSpec
from mlagentbench.runner.batch.job import Job
from mlagentbench.runner.batch.plan import LIMIT_KEYS, Plan, read_plan


@pytest.fixture
def read_plan_text(tmp_path: Path) -> Callable[..., Plan]:
    """Writes a plan file with this text and reads it."""

    def write(text: str, **overrides: Any) -> Plan:
        (tmp_path / "plan.toml").write_text(text)
        return read_plan(tmp_path / "plan.toml", overrides)

    return write


@pytest.fixture
def script(tmp_path: Path) -> str:
    """The name of a model with one scripted reply."""
    (tmp_path / "script").write_text("x")
    return f"scripted:{tmp_path / 'script'}"


def test_every_combination_is_a_job_and_agents_without_a_model_run_once(
    read_plan_text: Callable[..., Plan], script: str, tmp_path: Path
) -> None:
    (tmp_path / "other").write_text("y")
    plan = read_plan_text(f"""
        tasks = ["house-price", "imdb"]
        agents = ["tuner", {{ name = "research", options = {{ memory = true }} }}, "react"]
        models = ["{script}", "scripted:{tmp_path / "other"}"]
        repetitions = 3
        limits = {{ steps = 7, hours = 1 }}
    """)
    jobs = plan.expand_jobs()
    assert len(jobs) == 2 * 3 * (1 + 2 + 2) == len({job.name for job in jobs})
    assert [job.seed for job in jobs] == [0] * 10 + [1] * 10 + [2] * 10
    assert {(job.agent_spec.agent, bool(job.agent_spec.model)) for job in jobs} == {
        ("tuner", False),
        ("research", True),
        ("react", True),
    }
    assert all(job.limits == {"steps": 7, "hours": 1.0} for job in jobs)
    assert plan.replace(tasks=("imdb", "house-price", "imdb")).expand_jobs()[0].name in {
        job.name for job in jobs
    }


def test_a_simple_job_has_a_readable_name_and_others_get_a_hash() -> None:
    assert Job(task="imdb", agent_spec=AgentSpec(agent="tuner"), seed=3).name == "imdb.tuner.s3"
    assert Job(task="imdb", agent_spec=AgentSpec(agent="act", model="local")).name == "imdb.act.local.s0"
    named = Job(task="imdb", agent_spec=AgentSpec(agent="act", model="maker:model-4.1/x y")).name
    assert named.startswith("imdb.act.x-y.s0.") and len(named) == 26
    long = Job(task="imdb", agent_spec=AgentSpec(agent="act", model="m" * 300)).name
    assert len(long) < 80
    limited = Job(task="imdb", agent_spec=AgentSpec(agent="tuner"), limits={"steps": 5})
    assert limited.name == Job.model_validate_json(limited.model_dump_json()).name != "imdb.tuner.s0"


parts = st.text(alphabet="ab.-/:s0", min_size=1, max_size=6)
jobs = st.builds(
    Job,
    task=parts,
    agent_spec=st.builds(
        AgentSpec,
        agent=parts,
        model=parts | st.just(""),
        fast_model=parts | st.just(""),
        options=st.dictionaries(parts, st.integers(0, 2) | st.booleans(), max_size=2),
    ),
    seed=st.integers(0, 12),
    edition=st.sampled_from(["open", "paper"]),
    limits=st.dictionaries(st.sampled_from(["steps", "tokens"]), st.integers(1, 3)),
)


@given(jobs, jobs)
def test_two_jobs_share_a_folder_only_if_they_are_the_same(one: Job, other: Job) -> None:
    assert (one.name == other.name) == (one.canonical_json == other.canonical_json)
    assert set(one.name) <= set("abcdef0123456789s.-_") and not one.name.startswith(".")


def test_the_command_line_overrides_the_plan(read_plan_text: Callable[..., Plan]) -> None:
    text = GOOD + "repetitions = 4\n[limits]\nsteps = 5\nhours = 2\n[budget]\nhours = 9"
    plan = read_plan_text(text, seeds=[7], limits={"steps": 6}, tasks=["house-price"])
    assert (plan.tasks, plan.seeds, plan.repetitions) == (("house-price",), (7,), 1)
    assert plan.limits == {"steps": 6, "hours": 2.0} and plan.budget.hours == 9
    assert [job.seed for job in plan.expand_jobs()] == [7]


GOOD = 'tasks = ["imdb"]\nagents = ["tuner"]\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tasks = [", "not valid TOML"),
        ("agents = ['tuner']", "tasks: field required"),
        (GOOD + "colour = 'red'", "colour: no such key; available: tasks, agents, models"),
        (GOOD + "edit_modle = 'red'", "edit_modle: no such key; did you mean 'edit_model'?"),
        (GOOD + "steps = 3", "steps: no such key; it belongs in [limits]"),
        (GOOD + "seeds = 3", "seeds: input should be a list"),
        (GOOD + "[limits]\nsteps = 0", "limits: steps: input should be greater than 0"),
        (GOOD + "[limits]\nfeet = 3", "limits: no such limit: 'feet'; available: steps, hours"),
        (GOOD + "[budget]\neuros = 3", "budget.euros: no such key; available: dollars, hours"),
        (GOOD + "repetitions = 2\nseeds = [1]", "plan.toml: repetitions and seeds are mutually exclusive"),
        (GOOD + "tries = 0", "tries"),
        (GOOD + 'repetitions = "2"', "repetitions: input should be a valid integer"),
        (GOOD + "repetitions = 2.0", "repetitions: input should be a valid integer"),
        (GOOD + 'seeds = ["1"]', "seeds.0: input should be a valid integer"),
        (GOOD + "record_access = 1", "record_access: input should be a valid boolean"),
        (GOOD + '[limits]\nsteps = "5"', "limits: steps: input should be a valid integer"),
        (GOOD + '[budget]\nhours = "9"', "budget.hours: input should be a valid number"),
        (GOOD + "instance = 2026-01-01", "instance"),
        (
            GOOD.replace("tuner", "tools") + "models = ['local']",
            "The agent tools needs a model that calls tools",
        ),
        (GOOD + "sandbox = 'bag'", "No such sandbox: 'bag'"),
        (GOOD + "edition = 'pocket'", "has no edition 'pocket'"),
        (GOOD.replace("imdb", "atlantis"), "No such task: 'atlantis'"),
        (GOOD.replace("tuner", "genius"), "No such agent: 'genius'"),
        (GOOD.replace("tuner", "human"), "human is interactive and cannot run in a batch"),
        (GOOD.replace("tuner", "react"), "The agent react needs a model"),
        (GOOD.replace("tuner", "react") + "models = ['scripted:nowhere']", "scripted:nowhere cannot be read"),
        (
            GOOD.replace("'tuner'", "").replace('"tuner"', '{ name = "tuner", options = { x = 1 } }'),
            "no option 'x'",
        ),
        (GOOD.replace("tuner", "nowhere.py"), "No such file: "),
    ],
)
def test_an_error_in_a_plan_is_one_line(read_plan_text: Callable[..., Plan], text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_plan_text(text).expand_jobs()
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_a_missing_plan_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"Cannot read .*plan\.toml: No such file"):
        read_plan(tmp_path / "plan.toml", {})


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (
            "import os; os._exit(0)",
            r"crashing\.py exited the interpreter \(exit code 0\) while it was imported",
        ),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", r"crashing\.py was killed by SIGSEGV"),
        ("x = 1", "must define exactly one Agent, but defines 0"),
        ("1 / 0", "cannot be imported: ZeroDivisionError"),
    ],
)
def test_an_agent_file_that_cannot_be_imported_is_a_usage_error(
    tmp_path: Path, code: str, message: str
) -> None:
    (tmp_path / "crashing.py").write_text(code)
    with pytest.raises(UsageError, match=message):
        Plan(tasks=("imdb",), agents=[str(tmp_path / "crashing.py")]).expand_jobs()  # type: ignore[arg-type]


def test_the_guide_documents_every_key_and_its_example_is_valid() -> None:
    guide = (Path(__file__).parents[2] / "docs" / "guides" / "batches.md").read_text()
    table = guide.partition("| key |")[2].partition("\n\n")[0]
    keys = {key for row in table.splitlines()[2:] for key in re.findall(r"`(\w+)`", row.split("|")[1])}
    assert keys == set(Plan.model_fields)
    assert all(f"`{key}`" in table for key in LIMIT_KEYS)
    Plan.model_validate(tomllib.loads(guide.partition("```toml\n")[2].partition("```")[0]))
