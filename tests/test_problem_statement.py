"""Agents and adapters all show the same text: the task's description, and the run's resources and limits."""

import io
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from fake_model import FakeModel

from mlagentbench import discovery
from mlagentbench.adapters.gym import ResearchEnv
from mlagentbench.adapters.inspect.entry import folder_task
from mlagentbench.adapters.inspect.logs import build_log
from mlagentbench.agents import base as agents
from mlagentbench.agents.command import Command
from mlagentbench.agents.human import Human
from mlagentbench.environment.environment import Environment
from mlagentbench.environment.problem_statement import build_problem_statement
from mlagentbench.errors import ModelFault, UsageError
from mlagentbench.records import Hardware, Limits, Result
from mlagentbench.runner.folder import RunFolder
from mlagentbench.system.hardware import detect_hardware
from mlagentbench.task import Task

AGENTS_WITH_MODEL = [
    name
    for name in discovery.plugin_names("agents")
    if agents.load_agent_class(name).needs_model
    and not issubclass(agents.load_agent_class(name), Command)  # programs are tested below
]
MACHINE = Hardware(cpu="any", cores=4, memory_gb=32, system="Linux", python="3.11")
OpenEnv = Callable[..., Environment]
Variant = Callable[..., Path]


def test_the_problem_statement_is_the_description_and_the_limits_of_the_run(toy: Path) -> None:
    limits = Limits(
        steps=1200, hours=5, script_minutes=90, memory_gb=6.5, disk_gb=3, files=5000, processes=64
    )
    text = build_problem_statement(Task.load(str(toy)), "open", limits, MACHINE)
    assert text.startswith((toy / "description.md").read_text().strip())
    stated = [
        "4 CPU cores",
        "no GPU",
        "90 minutes",
        "6.5 GB of memory",
        "64 processes",
        "3 GB and 5,000 files",
        "One script or one Python REPL command",
        "it is neither checked nor used for the score",
    ]
    for phrase in (*stated, "1,200 steps or 5 hours of wall-clock time."):
        assert phrase in text


@pytest.mark.parametrize(
    ("limits", "phrase"),
    [
        ({"hours": 1}, "or 1 hour of wall-clock time."),
        ({"hours": 0.5}, "or 30 minutes of wall-clock time."),
        ({"tokens": 50_000}, "of wall-clock time, or 50,000 model tokens."),
        ({"tokens": 9, "dollars": 2.5}, "time, or 9 model tokens, or 2.5 dollars of model calls."),
        ({"memory_gb": 100}, "may use 32 GB of memory"),  # the machine has no more
    ],
)
def test_limits_are_stated_in_readable_units(toy: Path, limits: dict[str, float], phrase: str) -> None:
    task = Task.load(str(toy))
    assert phrase in build_problem_statement(task, "open", Limits.model_validate(limits), MACHINE)


@pytest.mark.parametrize(
    ("gpu", "names", "phrase"),
    [
        ("0", "NVIDIA H200", "1 GPU (NVIDIA H200)"),
        ("0,2", "NVIDIA H200; NVIDIA H200; NVIDIA H200", "2 GPUs (NVIDIA H200)"),
        ("all", "NVIDIA H200; NVIDIA A100", "2 GPUs (NVIDIA H200, NVIDIA A100)"),
        ("0", "", "1 GPU."),
    ],
)
def test_granted_gpus_are_named(toy: Path, gpu: str, names: str, phrase: str) -> None:
    hardware = MACHINE.replace(gpu=names)
    assert phrase in build_problem_statement(Task.load(str(toy)), "open", Limits(), hardware, gpu)


def test_a_resumed_run_states_the_machine_on_which_it_started(open_env: OpenEnv) -> None:
    env = open_env()
    assert env.problem_statement == open_env().problem_statement
    assert f"{env.spec.hardware.cores} CPU core" in env.problem_statement


@pytest.mark.parametrize("name", AGENTS_WITH_MODEL)
def test_every_agent_shows_the_problem_statement_to_its_model(name: str, open_env: OpenEnv) -> None:
    model = FakeModel([ModelFault("the first prompt is enough")])
    env = open_env(models={"main": model})
    with pytest.raises(ModelFault):
        agents.load_agent_class(name)().run(env)
    assert env.problem_statement.strip() in "\n".join(message.text for message in model.prompts[0].messages)


def test_a_person_reads_the_problem_statement(
    env: Environment, capsys: pytest.CaptureFixture[str], monkeypatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    with pytest.raises(KeyboardInterrupt):
        Human().run(env)
    assert env.problem_statement.strip() in capsys.readouterr().err


def test_an_external_program_gets_the_problem_statement_as_an_argument_and_as_a_file(
    open_env: OpenEnv,
) -> None:
    env = open_env(models={"main": FakeModel([])})
    code = "import shutil, sys; open('argument', 'w').write(sys.argv[1]); shutil.copy(sys.argv[2], 'file')"
    Command(command=f'python -c "{code}" {{description}} {{task}}').run(env)
    for name in ("argument", "file"):
        text = (env.context.workspace.root / name).read_text()
        assert text.startswith(env.problem_statement)
        assert "Each of your requests to the model counts as one step." in text


def test_gymnasium_observes_the_problem_statement(toy: Path, tmp_path: Path) -> None:
    env = ResearchEnv(str(toy), out=tmp_path, limits={"steps": 7})
    _, info = env.reset()
    spec = RunFolder(Path(info["folder"])).spec
    env.close()
    statement = build_problem_statement(Task.load(str(toy)), "open", spec.limits, spec.hardware)
    assert "7 steps" in statement and statement.strip() in info["text"]


def test_inspect_has_the_problem_statement_in_the_sample_and_in_an_exported_log(
    toy: Path, tmp_path: Path, play: Callable[..., Result]
) -> None:
    task = folder_task(task_folder=str(toy), runs=str(tmp_path), steps=7, hours=2)
    limits = Task.load(str(toy)).config.limits.replace(steps=7, hours=2)
    statement = build_problem_statement(Task.load(str(toy)), "open", limits, detect_hardware())
    assert statement.strip() in task.dataset[0].input[0].text
    play(lambda env: None, steps=9)
    log = build_log(RunFolder(tmp_path / "run"))
    assert log.samples and "9 steps" in log.samples[0].input
    assert "## Resources and limits" in log.samples[0].input


# The test of the MCP server, which needs a client, is in tests/adapters/test_mcp.py.

TOML = (Path(__file__).parent / "toy" / "task.toml").read_text()
EDITIONS = TOML + '\n[editions.open.placeholders]\nrows = "10"\n[editions.paper]\nsize = "large"\n'
PAPER = '[editions.paper.placeholders]\nrows = "1,000"\n'


def test_placeholders_are_filled_for_each_edition_and_other_braces_stay(variant: Variant) -> None:
    text = "There are {{rows}} rows, and {{other}} is plain text.\n"
    task = Task.load(str(variant({"task.toml": EDITIONS + PAPER, "description.md": text})))
    assert task.describe("open") == "There are 10 rows, and {{other}} is plain text.\n"
    assert task.describe("paper") == "There are 1,000 rows, and {{other}} is plain text.\n"
    with pytest.raises(UsageError, match="no edition 'third'"):
        task.describe("third")


@pytest.mark.parametrize(
    ("paper", "description", "message"),
    [
        ("", "There are {{rows}} rows.", "Task toy: edition paper lacks the placeholder 'rows'"),
        (PAPER, "There are some rows.", "Task toy: description.md does not use the placeholder 'rows'"),
    ],
)
def test_a_placeholder_that_is_missing_or_unused_is_an_error(
    paper: str, description: str, message: str, variant: Variant
) -> None:
    with pytest.raises(UsageError, match=message):
        Task.load(str(variant({"task.toml": EDITIONS + paper, "description.md": description})))


@pytest.mark.parametrize("name", Task.names())
def test_a_description_has_no_open_placeholder_and_does_not_mention_editions(name: str) -> None:
    task = Task.load(name)
    for edition in task.config.editions:
        text = " ".join(task.describe(edition).split())
        assert "{{" not in text and "edition" not in text.lower()
        assert "the run ends" in text and "checked" in text.lower()
