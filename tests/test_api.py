"""The Python interface, the examples and the notebook."""

import ast
import json
import re
import runpy
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest

import mlagentbench
from mlagentbench import (
    Agent,
    Call,
    Environment,
    RunFolder,
    RunOver,
    UsageError,
    load_task,
    read_run,
    resume,
    resume_session,
    run,
    session,
)
from mlagentbench.runner.setup import Setup
from mlagentbench.runner.verify import verify_run

EXAMPLES = Path(__file__).parents[1] / "examples"
SUBMIT = Call(action="Final Answer", args={"final_answer": "done"})
PERFECT = "id,value\n" + "".join(f"{n},{n}\n" for n in range(10))
WRITE = Call(action="Write File", args={"file_name": "submission.csv", "content": PERFECT})


def solve(env: Environment) -> None:
    env.step(WRITE)
    env.step(SUBMIT)


class Repeating(Agent):
    def __init__(self, seed: int = 0, tries: int = 1) -> None:
        super().__init__(seed)
        self.tries = tries

    def run(self, env: Environment) -> None:
        for _ in range(self.tries):
            env.step(Call(action="Execute Script", args={"script_name": "train.py"}))
        env.step(SUBMIT)


def test_an_agent_can_be_a_function(toy: Path, tmp_path: Path, setup: Setup) -> None:
    result = run(str(toy), solve, out=tmp_path / "run", seed=2, limits={"steps": 5})
    assert (result.score, result.success, result.ending, result.agent) == (
        0.0,
        True,
        "submitted",
        "python:solve",
    )
    folder = read_run(result.folder)
    assert (folder.spec.limits.steps, folder.spec.seed, len(folder.steps())) == (5, 2, 2)
    assert [check.what for check in verify_run(folder, setup) if not check.holds] == []


@pytest.mark.parametrize("agent", [Repeating, Repeating(0, 2), "baseline"])
def test_an_agent_can_be_a_class_an_object_or_a_name(
    toy: Path, tmp_path: Path, agent: type[Agent] | Agent | str
) -> None:
    options = {"tries": 2} if agent is Repeating else {}
    result = run(str(toy), agent, out=tmp_path / "run", options=options)
    assert (result.score, result.steps) == (5.0, 2 if agent == "baseline" else 3)


def test_an_error_of_the_agent_is_in_the_result_and_a_mistake_of_the_caller_is_raised(
    toy: Path, tmp_path: Path
) -> None:
    def crashing(env: Environment) -> None:
        raise KeyError("x")

    result = run(str(toy), crashing, out=tmp_path / "run")
    assert result.ending == "crashed" and "KeyError: 'x'" in result.note
    for mistake in (
        lambda: run("no-such-task", solve),
        lambda: run(str(toy), "no-such-agent", out=tmp_path / "other"),
        lambda: run(str(toy), solve, out=tmp_path / "run"),
        lambda: run(str(toy), solve, out=tmp_path / "other", limits={"stepz": 3}),
        lambda: run(str(toy), Repeating, out=tmp_path / "other", options={"trials": 3}),
        lambda: load_task("no-such-task"),
        lambda: read_run(tmp_path),
    ):
        with pytest.raises(UsageError):
            mistake()


def test_a_run_is_resumed_with_the_same_agent(toy: Path, tmp_path: Path) -> None:
    def interrupted(env: Environment) -> None:
        env.step(WRITE)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(str(toy), interrupted, out=tmp_path / "run")
    with pytest.raises(UsageError, match="taken by another program"):
        resume(tmp_path / "run")
    result = resume(tmp_path / "run", solve)
    assert (result.score, result.steps) == (0.0, 2)
    assert resume(tmp_path / "run", solve, from_step=1).steps == 2


def test_steps_can_be_taken_without_an_agent(toy: Path, tmp_path: Path) -> None:
    with session(str(toy), out=tmp_path / "run") as played:
        assert "the id itself" in played.env.problem_statement
        assert played.step(WRITE).observation == "File submission.csv written."
        played.step(SUBMIT)
        played.suspend()
    assert played.result is None
    with resume_session(tmp_path / "run") as again:
        assert again.done
        with pytest.raises(RunOver):
            again.step(SUBMIT)
    assert again.result and again.result.success and again.result.agent == "python:session"


def test_public_names_are_available_at_run_time_and_to_type_checkers() -> None:
    assert (Path(mlagentbench.__file__).parent / "py.typed").is_file()
    tree = ast.parse(Path(mlagentbench.__file__).read_text())
    modules = {
        alias.asname: node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("mlagentbench.")
        for alias in node.names
    }
    assert sorted(filter(None, modules)) == mlagentbench.__all__
    for name, module in modules.items():
        assert getattr(mlagentbench, str(name)) is getattr(import_module(str(module)), str(name))
        assert name in dir(mlagentbench)
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        mlagentbench.nonsense  # noqa: B018
    with pytest.raises(ImportError, match="nonsense"):
        exec("from mlagentbench import nonsense")


def test_importing_the_package_loads_no_other_module() -> None:
    code = (
        "import sys, mlagentbench; print([name for name in sys.modules if name.startswith('mlagentbench')])"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert loaded == "['mlagentbench']\n"


def run_example(name: str, *args: object, cwd: Path) -> str:
    command = [sys.executable, "-W", "error", str(EXAMPLES / name), *map(str, args)]
    completed = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd=cwd)
    assert completed.returncode == 0, completed.stderr
    return completed.stdout


def test_the_documentation_contains_the_example_in_ten_lines() -> None:
    page = EXAMPLES.parent / "docs" / "guides" / "python-api.md"
    assert f"```python\n{(EXAMPLES / 'ten_lines.py').read_text()}```" in page.read_text()


@pytest.mark.slow
def test_the_example_in_ten_lines_beats_the_starter_of_house_price(tmp_path: Path) -> None:
    assert " True " in run_example("ten_lines.py", cwd=tmp_path).splitlines()[-1]


def test_the_gymnasium_example_runs(toy: Path, tmp_path: Path) -> None:
    output = run_example("gymnasium_episode.py", toy, cwd=tmp_path)
    assert "validation mean absolute error: 5.0 0.0 False False" in output
    assert output.splitlines()[-1].startswith("5.0 False ")


def test_the_mcp_example_runs(toy: Path, tmp_path: Path) -> None:
    output = run_example("mcp_client.py", toy, cwd=tmp_path)
    assert "validation mean absolute error: 5.0" in output and "[The run is over: submitted. " in output
    (folder,) = (tmp_path / "runs").iterdir()
    result = RunFolder(folder).result
    assert result and result.score == 5.0


def test_the_notebook_renders_a_run(toy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = run(str(toy), Repeating, out=tmp_path / "run")
    monkeypatch.setenv("RUN", str(result.folder))
    shown = execute_notebook(EXAMPLES / "look_at_a_run.ipynb")
    assert "no success: not 10% better than the starter" in shown[1]
    assert "Execute Script train.py" in shown[2] and "5.00</div>" in shown[3]


def execute_notebook(path: Path) -> dict[int, str]:
    """Run the code cells of a notebook in order, as IPython would; returns what each one shows."""
    cells = [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]
    names: dict[str, object] = {}
    shown = {}
    for number, cell in enumerate(cells):
        tree = ast.parse("".join(cell["source"]))
        last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, path.name, "exec"), names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), path.name, "eval"), names)
            render: Callable[[], str] = getattr(value, "_repr_html_", None) or value._repr_markdown_
            shown[number] = render()
    return shown


def test_the_notebook_in_the_repository_was_executed() -> None:
    cells = json.loads((EXAMPLES / "look_at_a_run.ipynb").read_text())["cells"]
    assert all(cell["execution_count"] for cell in cells if cell["cell_type"] == "code")
    assert "SUCCESS" in json.dumps(cells) and "python:try_rates" in json.dumps(cells)


@pytest.mark.parametrize(
    "command",
    [
        ["import_logs.py"],
        ["import_logs.py", "nowhere", "out"],
        ["inspect_eval.py"],
        ["inspect_eval.py", "nobody"],
        ["gymnasium_episode.py", "nowhere"],
        ["mcp_client.py", "nowhere"],
    ],
    ids=" ".join,
)
def test_a_mistake_of_the_user_of_an_example_is_one_line(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = str(EXAMPLES / command[0])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [script, *command[1:]])
    with pytest.raises(SystemExit) as caught:
        runpy.run_path(script, run_name="__main__")
    # Python prints a text to standard error, and its exit code is 1.
    assert isinstance(caught.value.code, str) and not re.search("\n|Error", caught.value.code)
    assert capsys.readouterr().err == ""
