"""What people write in Python against this package: examples, the notebook, the promises of the interface."""

import ast
import json
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


def win(env: Environment) -> None:
    env.step(WRITE)
    env.step(SUBMIT)


class Thorough(Agent):
    def __init__(self, seed: int = 0, tries: int = 1) -> None:
        super().__init__(seed)
        self.tries = tries

    def run(self, env: Environment) -> None:
        for _ in range(self.tries):
            env.step(Call(action="Execute Script", args={"script_name": "train.py"}))
        env.step(SUBMIT)


def test_a_function_is_an_agent(toy: Path, tmp_path: Path, setup: Setup) -> None:
    result = run(str(toy), win, out=tmp_path / "run", seed=2, limits={"steps": 5})
    assert (result.score, result.success, result.ending, result.agent) == (
        0.0,
        True,
        "submitted",
        "python:win",
    )
    found = read_run(result.folder)
    assert (found.spec.limits.steps, found.spec.seed, len(found.steps())) == (5, 2, 2)
    assert [check.what for check in verify_run(found, setup) if not check.holds] == []


@pytest.mark.parametrize("agent", [Thorough, Thorough(0, 2), "baseline"])
def test_so_is_a_class_an_object_and_a_name(
    toy: Path, tmp_path: Path, agent: type[Agent] | Agent | str
) -> None:
    options = {"tries": 2} if agent is Thorough else {}
    result = run(str(toy), agent, out=tmp_path / "run", options=options)
    assert (result.score, result.steps) == (5.0, 2 if agent == "baseline" else 3)


def test_what_an_agent_raises_is_its_failure_and_what_a_person_mistypes_is_raised(
    toy: Path, tmp_path: Path
) -> None:
    def clumsy(env: Environment) -> None:
        raise KeyError("oh")

    result = run(str(toy), clumsy, out=tmp_path / "run")
    assert result.ending == "crashed" and "KeyError: 'oh'" in result.note
    for mistake in (
        lambda: run("no-such-task", win),
        lambda: run(str(toy), "no-such-agent", out=tmp_path / "other"),
        lambda: run(str(toy), win, out=tmp_path / "run"),
        lambda: run(str(toy), win, out=tmp_path / "other", limits={"stepz": 3}),
        lambda: run(str(toy), Thorough, out=tmp_path / "other", options={"trials": 3}),
        lambda: load_task("no-such-task"),
        lambda: read_run(tmp_path),
    ):
        with pytest.raises(UsageError):
            mistake()


def test_a_run_goes_on_with_the_same_agent(toy: Path, tmp_path: Path) -> None:
    def leaving(env: Environment) -> None:
        env.step(WRITE)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(str(toy), leaving, out=tmp_path / "run")
    with pytest.raises(UsageError, match="taken by another program"):
        resume(tmp_path / "run")
    result = resume(tmp_path / "run", win)
    assert (result.score, result.steps) == (0.0, 2)
    assert resume(tmp_path / "run", win, from_step=1).steps == 2


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


def test_names_are_there_for_people_and_for_type_checkers() -> None:
    assert (Path(mlagentbench.__file__).parent / "py.typed").is_file()
    tree = ast.parse(Path(mlagentbench.__file__).read_text())
    typed = {
        alias.asname: node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("mlagentbench.")
        for alias in node.names
    }
    assert sorted(filter(None, typed)) == mlagentbench.__all__
    for name, module in typed.items():
        assert getattr(mlagentbench, str(name)) is getattr(import_module(str(module)), str(name))
        assert name in dir(mlagentbench)
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        mlagentbench.nonsense  # noqa: B018
    with pytest.raises(ImportError, match="nonsense"):
        exec("from mlagentbench import nonsense")


def test_an_import_loads_nothing_before_it_is_needed() -> None:
    code = (
        "import sys, mlagentbench; print([name for name in sys.modules if name.startswith('mlagentbench')])"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert loaded == "['mlagentbench']\n"


def example(name: str, *args: object, cwd: Path) -> str:
    command = [sys.executable, "-W", "error", str(EXAMPLES / name), *map(str, args)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_ten_lines_of_the_document_are_the_example() -> None:
    root = Path(__file__).parents[1]
    assert (
        f"```python\n{(root / 'examples' / 'ten_lines.py').read_text()}```"
        in (root / "docs" / "python.md").read_text()
    )


def test_the_ten_lines_beat_the_starter_of_house_price(tmp_path: Path) -> None:
    assert " True " in example("ten_lines.py", cwd=tmp_path).splitlines()[-1]


def test_the_example_for_gymnasium_runs(toy: Path, tmp_path: Path) -> None:
    told = example("gymnasium_episode.py", toy, cwd=tmp_path)
    assert "validation mean absolute error: 5.0 0.0 False False" in told
    assert told.splitlines()[-1].startswith("5.0 False ")


def test_the_example_for_mcp_runs(toy: Path, tmp_path: Path) -> None:
    told = example("mcp_client.py", toy, cwd=tmp_path)
    assert "validation mean absolute error: 5.0" in told and "The run is over: submitted" in told
    (folder,) = (tmp_path / "runs").iterdir()
    result = RunFolder(folder).result
    assert result and result.score == 5.0


def test_the_notebook_renders_a_run(toy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = run(str(toy), Thorough, out=tmp_path / "run")
    monkeypatch.setenv("RUN", result.folder)
    shown = executed(EXAMPLES / "look_at_a_run.ipynb")
    assert "no success: not 10% better than the starter" in shown[1]
    assert "Execute Script train.py" in shown[2] and "5.00</div>" in shown[3]


def executed(path: Path) -> dict[int, str]:
    """What the code cells of a notebook show when they are run one after another, as IPython would."""
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
    "words",
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
def test_an_example_tells_a_person_s_mistake_in_one_line(words: list[str], tmp_path: Path) -> None:
    path = Path(__file__).parents[1] / "examples" / words[0]
    done = subprocess.run(
        [sys.executable, path, *words[1:]], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1 and done.stderr.count("\n") == 1 and "Error" not in done.stderr, done.stderr
