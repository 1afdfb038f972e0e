import re
from collections.abc import Callable

import pytest

from mlagentbench.environment.environment import Environment

Do = Callable[..., str]
OUTCOME_LINE = re.compile(r"\[exit code 0, \d+\.\d s, peak memory \d+ MB\]")


def test_a_script_runs_and_its_outcome_is_reported(env: Environment, do: Do) -> None:
    observation = do(env, "Execute Script", script_name="train.py")
    outcome, _, output = observation.partition("\n")
    assert OUTCOME_LINE.fullmatch(outcome)
    assert output == "validation mean absolute error: 5.0"
    assert "submission.csv" in do(env, "List Files")
    execution = env.steps[0].execution
    assert execution and execution.exit_code == 0 and execution.output_file == "step-0001.txt"
    assert (env.context.outputs_dir / "step-0001.txt").read_text() == output + "\n"


def test_arguments_reach_the_script_as_a_shell_would_split_them(env: Environment, do: Do) -> None:
    do(env, "Write File", file_name="args.py", content="import sys\nprint(sys.argv[1:])\n")

    def received(arguments: str) -> str:
        return do(env, "Execute Script", script_name="args.py", arguments=arguments).partition("\n")[2]

    assert received("--rate 0.1 'two words' $HOME `ls`") == "['--rate', '0.1', 'two words', '$HOME', '`ls`']"
    assert received("") == "[]"
    assert do(env, "Execute Script", script_name="args.py", arguments="'open").startswith(
        "Error: The arguments cannot be parsed"
    )
    assert "no NUL" in do(env, "Execute Script", script_name="args.py", arguments="a\0b")
    assert "fewer than 50,000 characters" in do(
        env, "Execute Script", script_name="args.py", arguments="x" * 200_000
    )
    assert "At most 1,000 arguments are allowed." in do(
        env, "Execute Script", script_name="args.py", arguments="y " * 2000
    )
    assert received("y " * 1000).count("'y'") == 1000


@pytest.mark.parametrize(
    "name", ["with space.py", "two\nlines.py", "-c.py", "--help.py", "ünï.py", "a'b\"c.py", "$x.py"]
)
def test_a_script_with_any_name_runs(env: Environment, do: Do, name: str) -> None:
    do(env, "Write File", file_name=name, content="print('ran')\n")
    assert do(env, "Execute Script", script_name=name).endswith("ran")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("missing.py", "missing.py does not exist"),
        ("questions.csv", "not a Python script (its name must end in .py)"),
        ("folder.py", "folder.py is a folder"),
        ("link.py", "is a link"),
        ("data", "not a Python script"),
        ("", "the path is empty"),
        ("train.py\0", "NUL"),
    ],
)
def test_a_path_that_is_not_a_script_is_refused_with_a_message(
    env: Environment, do: Do, name: str, message: str
) -> None:
    (env.context.workspace.root / "folder.py").mkdir()
    (env.context.workspace.root / "link.py").symlink_to("train.py")
    observation = do(env, "Execute Script", script_name=name)
    assert observation.startswith("Error: ") and message in observation
    assert env.steps[-1].execution is None


def test_a_script_that_fails_shows_why(env: Environment, do: Do) -> None:
    do(env, "Write File", file_name="broken.py", content="def f(:\n")
    assert re.match(
        r"\[exit code 1, .*\n.*SyntaxError", do(env, "Execute Script", script_name="broken.py"), re.DOTALL
    )
    do(env, "Write File", file_name="binary.py", content="\x00\x01")
    assert "[exit code 1" in do(env, "Execute Script", script_name="binary.py")
    do(env, "Write File", file_name="killed.py", content="import os\nos.kill(os.getpid(), 9)\n")
    assert re.match(r"\[exit code (137|-9)", do(env, "Execute Script", script_name="killed.py"))
    assert not any(step.failed for step in env.steps)  # the action itself succeeded


def test_a_script_gets_the_seed_of_the_run_and_no_other_environment_variable_of_the_harness(
    env: Environment, do: Do, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "hunter2")
    do(env, "Write File", file_name="env.py", content="import os\nprint(dict(os.environ))\n")
    observation = do(env, "Execute Script", script_name="env.py")
    assert "'SEED': '0'" in observation and "hunter2" not in observation


def test_the_observation_names_the_limit_that_was_hit(open_env: Callable[..., Environment], do: Do) -> None:
    env = open_env(script_minutes=0.4 / 60)
    do(env, "Write File", file_name="loop.py", content="while True: pass\n")
    assert do(env, "Execute Script", script_name="loop.py").startswith(
        "[killed: time limit 0.00667 minutes, "
    )
    assert not env.done
    allocate = "x = [bytearray(b'x' * 2**20) for _ in range(3000)]\n"
    env = open_env("small", memory_gb=0.2)
    do(env, "Write File", file_name="allocate.py", content=allocate)
    assert do(env, "Execute Script", script_name="allocate.py").startswith("[killed: memory limit 0.2 GB, ")
    assert env.steps[-1].execution and env.steps[-1].execution.limit == "memory"


def test_long_output_is_shown_by_its_beginning_and_end(env: Environment, do: Do) -> None:
    do(
        env,
        "Write File",
        file_name="long.py",
        content="print('first')\nprint('x' * 3_000_000)\nprint('last')\n",
    )
    observation = do(env, "Execute Script", script_name="long.py")
    assert len(observation) < 20_000
    assert (
        observation.split("\n")[1] == "first"
        and observation.endswith("last")
        and "bytes left out" in observation
    )
    assert (env.context.outputs_dir / "step-0002.txt").stat().st_size > 3_000_000


def test_output_that_is_not_text_is_recorded(env: Environment, do: Do) -> None:
    do(env, "Write File", file_name="b.py", content="import os\nos.write(1, bytes(range(256)))\n")
    assert "\ufffd" in do(env, "Execute Script", script_name="b.py")
    assert not env.fault
