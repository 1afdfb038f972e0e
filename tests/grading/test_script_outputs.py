"""The rule that a script must have written the submission is checked from the record."""

from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest
from fake_model import FakeModel

from mlagentbench.agents.command import Command
from mlagentbench.environment.environment import Environment
from mlagentbench.errors import UsageError
from mlagentbench.records import AgentSpec, Result
from mlagentbench.runner.folder import RunFolder
from mlagentbench.runner.run import execute_run
from mlagentbench.runner.setup import Setup, prepare_setup
from mlagentbench.runner.verify import verify_run
from mlagentbench.task import Task

Variant = Callable[..., Path]
CONTENT = "id,value\n" + "".join(f"{i},5\n" for i in range(10))
WRITE = f"open('submission.csv', 'w').write({CONTENT!r})\n"
BY_HAND = ("Write File", {"file_name": "submission.csv", "content": CONTENT})
BY_REPL = ("Python REPL", {"command": WRITE})
NEW_SCRIPT = ("Write File", {"file_name": "train.py", "content": WRITE})
RUN_SCRIPT = ("Execute Script", {"script_name": "train.py"})


def task_toml(toy: Path, files: str = '["submission.csv"]') -> str:
    return f"script_outputs = {files}\n{(toy / 'task.toml').read_text()}"


@pytest.fixture
def setup_with_rule(variant: Variant, toy: Path) -> Setup:
    """The toy task with the rule that submission.csv must be the output of a script."""
    return prepare_setup(str(variant({"task.toml": task_toml(toy)})), "open", "bwrap", lambda line: None)


@pytest.fixture
def violations(play: Callable[..., Result], do: Callable[..., str], setup_with_rule: Setup):
    """The violations of a run that takes some steps and submits."""
    run_numbers = count()

    def run_actions(*actions: tuple[str, dict[str, str]]) -> tuple[str, ...]:
        def behave(env: Environment) -> None:
            for action, args in actions:
                do(env, action, **args)
            do(env, "Final Answer", final_answer="")

        result = play(behave, f"run-{next(run_numbers)}", setup=setup_with_rule)
        assert result.valid, result.note
        return result.violations

    return run_actions


def test_a_submission_that_a_script_wrote_breaks_no_rule(violations) -> None:
    assert violations(NEW_SCRIPT, RUN_SCRIPT) == ()


@pytest.mark.parametrize("write", [BY_HAND, BY_REPL], ids=["by hand", "in the REPL"])
def test_a_submission_that_no_script_wrote_is_a_violation(violations, write) -> None:
    message = "submission.csv was not written by a script: it was last changed at step 2 by"
    assert violations(RUN_SCRIPT, write) == (f"{message} {write[0]}",)


def test_a_script_that_writes_the_same_content_again_settles_it(violations) -> None:
    assert violations(NEW_SCRIPT, BY_REPL, RUN_SCRIPT) == ()


def test_a_script_that_only_runs_does_not_settle_it(violations) -> None:
    other = ("Write File", {"file_name": "train.py", "content": "open('other', 'w').write('x')"})
    assert len(violations(other, BY_HAND, RUN_SCRIPT)) == 1


def test_the_output_of_a_script_may_be_saved_and_copied_back(violations) -> None:
    save = ("Copy File", {"source": "submission.csv", "destination": "best.csv"})
    restore = ("Copy File", {"source": "best.csv", "destination": "submission.csv"})
    worse = ("Write File", {"file_name": "train.py", "content": WRITE.replace("5", "7")})
    assert violations(NEW_SCRIPT, RUN_SCRIPT, save, worse, RUN_SCRIPT, restore) == ()


def test_verify_finds_the_violation_again(play, do, setup_with_rule: Setup) -> None:
    def behave(env: Environment) -> None:
        do(env, BY_REPL[0], **BY_REPL[1])

    result = play(behave, setup=setup_with_rule)
    assert result.violations
    folder = RunFolder(Path(result.folder))
    assert all(check.holds for check in verify_run(folder, setup_with_rule))
    folder.write_result(result.replace(violations=()))
    failed = [check.what for check in verify_run(folder, setup_with_rule) if not check.holds]
    assert failed == ["result.json: violations"]


def test_an_external_program_is_not_blamed(setup_with_rule: Setup, tmp_path: Path) -> None:
    spec = setup_with_rule.create_run_spec(AgentSpec(agent="command"), 0, setup_with_rule.task.config.limits)
    folder = RunFolder.create(tmp_path / "run", spec)
    agent = Command(command=f'python -c "{WRITE.strip()}"')
    agent.models = {"main": FakeModel([])}
    with folder.lock():
        result = execute_run(setup_with_rule, agent, folder)
    assert result.valid and result.violations == ()


def test_a_file_that_the_description_does_not_mention_is_an_error(variant: Variant, toy: Path) -> None:
    folder = variant({"task.toml": task_toml(toy, '["submision.csv"]')})
    with pytest.raises(UsageError, match=r"description.md does not mention the file 'submision.csv'"):
        Task.load(str(folder))


@pytest.mark.parametrize("name", Task.names())
def test_tasks_that_state_the_rule_declare_it(name: str) -> None:
    task = Task.load(name)
    for edition in task.config.editions:
        states_rule = "`submission.csv` must be the output of `train.py`" in task.describe(edition)
        assert states_rule == ("submission.csv" in task.config.script_outputs)


def test_what_an_agent_of_another_framework_leaves_may_be_the_output_of_a_script(play, do, setup_with_rule):
    def work_outside(env: Environment) -> None:
        (env.context.workspace.root / "submission.csv").write_text(CONTENT)
        do(env, "Outside Work", framework="other", record="7")

    result = play(work_outside, setup=setup_with_rule)
    assert result.score is not None and not result.violations
