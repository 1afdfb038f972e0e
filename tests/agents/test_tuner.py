import math
from collections.abc import Callable
from pathlib import Path

import pytest

from mlagentbench.agents.tuner import Tuner, find_hyperparameters, parse_validation_score, set_hyperparameter
from mlagentbench.environment.environment import Environment
from mlagentbench.records import Call, Result
from mlagentbench.runner.folder import RunFolder
from mlagentbench.runner.setup import Setup, prepare_setup

SOURCE = '''"""ünï: 3"""
RATE = 0.1; TREES: int = 100
seed = 7
model = make(depth=3, rate=RATE, random_state=1, shuffle=True, name="x", offset=0, bias=-2)  # é
other = make(depth=5)
x, y = 1, 2
'''


def test_hyperparameters_are_numbers_with_a_name() -> None:
    hyperparameters = {
        (parameter.name, parameter.occurrence): (parameter.value, parameter.is_int)
        for parameter in find_hyperparameters(SOURCE)
    }
    assert hyperparameters == {
        ("RATE", 0): (0.1, False),
        ("TREES", 0): (100, True),
        ("depth", 0): (3, True),
        ("depth", 1): (5, True),
    }


def test_setting_a_hyperparameter_changes_one_number_and_nothing_else() -> None:
    by_name = {
        (parameter.name, parameter.occurrence): parameter for parameter in find_hyperparameters(SOURCE)
    }
    assert set_hyperparameter(SOURCE, by_name["RATE", 0], 0.3) == SOURCE.replace("RATE = 0.1", "RATE = 0.3")
    assert set_hyperparameter(SOURCE, by_name["TREES", 0], 200) == SOURCE.replace("int = 100", "int = 200")
    assert set_hyperparameter(SOURCE, by_name["depth", 1], 10) == SOURCE.replace("depth=5", "depth=10")
    windows = SOURCE.replace("\n", "\r\n")
    assert set_hyperparameter(windows, by_name["depth", 0], 6) == windows.replace("depth=3", "depth=6")


@pytest.mark.parametrize(
    "source", ["", "def f(:\n", "\0", "print('no numbers')\n", "Error: train.py does not exist"]
)
def test_a_script_may_have_no_hyperparameters(source: str) -> None:
    assert find_hyperparameters(source) == []


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("validation error: 1.5", 1.5),
        ("noise\nvalidation mean absolute error: -2e-3\nmore", -0.002),
        ("validation a: 1\nvalidation a: 2\n", 2.0),
        ("Validation accuracy: 0.9 (best)", 0.9),
    ],
)
def test_the_last_validation_score_counts(text: str, value: float) -> None:
    assert parse_validation_score(text) == value


@pytest.mark.parametrize(
    "text", ["", "validation error: nan", "validation a: 1\nvalidation a: nan", "validation a: 1.2.3"]
)
def test_output_without_a_valid_score_gives_nan(text: str) -> None:
    assert math.isnan(parse_validation_score(text))


@pytest.fixture
def tune(variant: Callable[..., Path], open_env: Callable[..., Environment]) -> Callable[..., Environment]:
    def run_tuner(script: str, **limits: object) -> Environment:
        setup = prepare_setup(str(variant({"starter/train.py": script})), "open", "bwrap", lambda line: None)
        env = open_env(setup=setup, **limits)
        Tuner().run(env)
        return env

    return run_tuner


def test_the_tuner_improves_the_toy_and_submits_its_best_script(
    open_env: Callable[..., Environment], setup: Setup
) -> None:
    env = open_env()
    Tuner().run(env)
    assert env.ending == "submitted" and len(env.steps) <= env.spec.limits.steps
    assert env.steps[-1].call.args["final_answer"] == "best validation score: 2.76"
    root = env.context.workspace.root
    assert "GUESS = 2.85" in (root / "train.py").read_text()
    assert (root / "submission.csv").read_text().startswith("id,value\n0,2.85\n")
    written = [step.call.args["content"] for step in env.steps if step.call.action == "Write File"]
    assert len(written) - len(set(written)) <= 1  # only the best script is ever written twice
    resumed = open_env()
    Tuner().run(resumed)  # a resumed run repeats the same steps
    assert not resumed.next_recorded_call and [step.call for step in resumed.steps] == [
        step.call for step in env.steps
    ]


@pytest.mark.parametrize("steps", [1, 2, 3, 4, 6, 7])
def test_the_tuner_respects_a_small_step_limit_and_submits_if_it_can(
    open_env: Callable[..., Environment], steps: int
) -> None:
    env = open_env(steps=steps)
    Tuner().run(env)
    assert len(env.steps) <= steps
    assert env.ending == ("submitted" if steps > 2 else "steps")


@pytest.mark.parametrize(
    "script",
    [
        "print('no hyperparameters')\n",
        "def broken(:\n",
        "RATE = 0.5\nraise SystemExit('fails whatever the rate')\n",
        "RATE = 0.5\nprint('validation error: nan')\n",
        "RATE = 0.5\nprint('no score at all')\n",
        "# " + "long " * 5000 + "\nRATE = 0.5\nprint('validation error: 1')\n",
    ],
    ids=["no hyperparameters", "unparsable", "fails", "nan", "no score", "too long to read"],
)
def test_a_script_that_cannot_be_tuned_is_left_unchanged(
    tune: Callable[..., Environment], script: str
) -> None:
    env = tune(script, steps=12)
    assert env.ending == "submitted" and not env.fault
    assert (env.context.workspace.root / "train.py").read_text() == script


def test_a_change_that_makes_a_failing_script_work_is_kept(tune: Callable[..., Environment]) -> None:
    script = "DEPTH = 4\nassert DEPTH < 4\nprint('validation error: 1')\n"
    assert "DEPTH = 2" in (tune(script).context.workspace.root / "train.py").read_text()


def test_the_tuner_maximizes_if_higher_is_better(
    variant: Callable[..., Path], open_env: Callable[..., Environment]
) -> None:
    folder = variant({"starter/train.py": "SIZE = 2\nprint('validation accuracy:', -abs(SIZE - 8))\n"})
    toml = (folder / "task.toml").read_text().replace('"lower"', '"higher"')
    (folder / "task.toml").write_text(toml)
    env = open_env(setup=prepare_setup(str(folder), "open", "bwrap", lambda line: None))
    Tuner().run(env)
    assert "SIZE = 8" in (env.context.workspace.root / "train.py").read_text()


def test_the_tuner_stops_when_little_time_is_left(open_env: Callable[..., Environment]) -> None:
    env = open_env(hours=1 / 3600)
    Tuner().run(env)
    assert len(env.steps) == 3 and env.ending == "submitted"


def test_the_agents_nothing_baseline_and_reference_score_as_expected(
    setup: Setup, play: Callable[..., Result], tmp_path: Path
) -> None:
    from mlagentbench.agents.base import load_agent_class
    from mlagentbench.runner.start import start_run

    expected = {"nothing": (None, 1), "baseline": (5.0, 2), "reference": (0.0, 3)}
    for name, (score, steps) in expected.items():
        result = start_run(setup, name, tmp_path / name)
        assert (result.score, result.steps, result.ending) == (score, steps, "submitted")
        assert result.success == (name == "reference")
    assert not load_agent_class("reference").ranked and load_agent_class("tuner").ranked
    last = RunFolder(tmp_path / "reference").steps()[-1].call
    assert last == Call(action="Final Answer", args={"final_answer": "the task's reference solution"})
