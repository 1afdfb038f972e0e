"""`[grants] model = true`: scripts call the run's model, within its budget, and reach nothing else."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake_model import FakeModel

from mlagentbench.environment.environment import Environment
from mlagentbench.errors import PromptRejected, PromptTooLong, RunOver
from mlagentbench.models.base import Price
from mlagentbench.records import Prompt, Reply, Result
from mlagentbench.runner.folder import RunFolder
from mlagentbench.runner.setup import Setup, prepare_setup
from mlagentbench.runner.verify import verify_run
from mlagentbench.system.progress import ignore_progress

OpenEnv = Callable[..., Environment]
Do = Callable[..., str]
GRANT = "\n[grants]\nmodel = true\n"
ASK = """
import json, os, urllib.error, urllib.request

def ask(text):
    url = os.environ["MLAGENTBENCH_MODEL_URL"] + "/chat/completions"
    body = {"model": "any", "max_tokens": 50, "messages": [{"role": "user", "content": text}]}
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    try:
        return json.load(urllib.request.urlopen(request))["choices"][0]["message"]["content"]
    except urllib.error.HTTPError as error:
        return f"HTTP {error.code}: {json.load(error)['error']['message']}"
"""
PARALLEL = """
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(20) as pool:
    answers = list(pool.map(ask, map(str, range(20))))
print(sum(answer == "yes" for answer in answers), sum("403" in answer for answer in answers))
"""
LOOK = """
import os, socket
print(sorted(name for name in os.environ if "MODEL" in name or "OPENAI" in name or "ANTHROPIC" in name))
for port in (8791, 80):
    try:
        socket.create_connection(("127.0.0.1", port), 1)
        print("reached", port)
    except OSError:
        print("refused", port)
print(os.path.exists("/opt/endpoint"))
"""


@pytest.fixture
def granting(toy: Path, variant: Callable[..., Path]) -> Setup:
    """The toy task, which grants the model."""
    folder = variant({"task.toml": (toy / "task.toml").read_text() + GRANT})
    return prepare_setup(str(folder), "open", "bwrap", ignore_progress)


def run_script(env: Environment, do: Do, code: str) -> str:
    do(env, "Write File", file_name="ask.py", content=ASK + code)
    return do(env, "Execute Script", script_name="ask.py").partition("]\n")[2]


def test_scripts_and_the_interpreter_call_the_model_and_every_call_is_recorded_and_counted(
    open_env: OpenEnv, do: Do, granting: Setup, tmp_path: Path
) -> None:
    model = FakeModel(["Paris", "Rome", "Oslo"])
    env = open_env(setup=granting, models={"main": model})
    assert run_script(env, do, "print(ask('France?'), ask('Italy?'))") == "Paris Rome"
    do(env, "Python REPL", command=ASK)
    assert do(env, "Python REPL", command="answer = ask('Norway?'); answer") == "'Oslo'"
    calls = list(RunFolder(tmp_path / "run").calls())
    assert [call.prompt.messages[0].text for call in calls] == ["France?", "Italy?", "Norway?"]
    assert [(call.step, call.inside, call.role) for call in calls] == [
        (2, True, "main"),
        (2, True, "main"),
        (4, True, "main"),
    ]
    assert [step.tokens for step in env.steps] == [0, 80, 80, 120]
    assert env.steps[-1].dollars == pytest.approx(0.03) and env.ending is None
    assert "can call a language model" in env.problem_statement


@pytest.mark.parametrize("granted", [True, False])
def test_without_a_grant_or_a_model_there_are_no_variables_and_no_port(
    granted: bool, open_env: OpenEnv, do: Do, setup: Setup, granting: Setup
) -> None:
    model = {} if granted else {"main": FakeModel([])}
    env = open_env(setup=granting if granted else setup, models=model)
    assert run_script(env, do, LOOK).splitlines() == ["[]", "refused 8791", "refused 80", "False"]
    assert ("has no language model for scripts" in env.problem_statement) == granted


def test_a_script_with_a_model_reaches_nothing_but_the_model(
    open_env: OpenEnv, do: Do, granting: Setup
) -> None:
    env = open_env(setup=granting, models={"main": FakeModel([])})
    names, *ports, mounted = run_script(env, do, LOOK).splitlines()
    assert "MLAGENTBENCH_MODEL_URL" in names and "OPENAI_BASE_URL" in names and "ANTHROPIC_BASE_URL" in names
    assert (ports, mounted) == (["reached 8791", "refused 80"], "True")


class MeteredModel(FakeModel):
    """Writes ten tokens, or as many as it may."""

    price = Price(input=0.001, output=0.001)

    def __init__(self) -> None:
        super().__init__([])

    def reply(self, prompt: Prompt) -> Reply:
        self.prompts.append(prompt)
        tokens = min(prompt.max_tokens or 10, 10)
        return Reply(text="yes", input_tokens=1, output_tokens=tokens, dollars=0.001 * (1 + tokens))


@pytest.mark.parametrize(("limits", "ending"), [({"tokens": 50}, "tokens"), ({"dollars": 0.056}, "money")])
def test_parallel_calls_cannot_exceed_the_budget_and_the_run_ends_after_the_step(
    limits: dict[str, Any], ending: str, open_env: OpenEnv, do: Do, granting: Setup
) -> None:
    model = MeteredModel()
    env = open_env(setup=granting, models={"main": model}, **limits)
    output = run_script(env, do, PARALLEL + "open('kept.txt', 'w').close()")
    assert re.fullmatch(r"\d+ \d+", output), output
    answered, refused = map(int, output.split())
    assert answered == len(model.prompts) > 1 and answered + refused == 20
    assert env.model_calls.tokens <= limits.get("tokens", 1000)
    assert env.model_calls.dollars <= limits.get("dollars", 1000)
    assert env.ending == ending and env.fault is None
    assert "kept.txt" in env.context.store.state(2)  # the script went on, and its step is recorded
    with pytest.raises(RunOver):
        do(env, "List Files")


def test_a_call_that_the_model_cannot_answer_is_the_scripts_problem_and_no_fault(
    open_env: OpenEnv, do: Do, granting: Setup
) -> None:
    model = FakeModel([PromptTooLong("too long"), PromptRejected("no tools"), "fine"])
    env = open_env(setup=granting, models={"main": model})
    answers = run_script(env, do, "for n in range(3):\n    print(ask(str(n)))").splitlines()
    assert answers == ["HTTP 400: too long", "HTTP 400: no tools", "fine"]
    assert env.fault is None


class NoModel(FakeModel):
    """Fails if it is asked: all replies must come from the record."""

    def __init__(self) -> None:
        super().__init__([])

    def reply(self, prompt: Prompt) -> Reply:
        raise AssertionError(prompt)


def test_a_resumed_run_replays_the_calls_of_scripts_and_of_the_interpreter(
    open_env: OpenEnv, do: Do, granting: Setup, tmp_path: Path
) -> None:
    env = open_env(setup=granting, models={"main": FakeModel(["Paris", "Oslo"])}, tokens=1000)
    commands = [ASK, "answer = ask('Norway?')"]
    assert run_script(env, do, "print(ask('France?'))") == "Paris"
    for command in commands:
        do(env, "Python REPL", command=command)
    env.close()
    again = open_env(setup=granting, models={"main": NoModel()})
    assert run_script(again, do, "print(ask('France?'))") == "Paris"
    for command in commands:
        do(again, "Python REPL", command=command)
    assert again.next_recorded_call is None
    assert do(again, "Python REPL", command="answer") == "'Oslo'"  # the interpreter was rebuilt
    assert (again.model_calls.tokens, len(list(RunFolder(tmp_path / "run").calls()))) == (80, 2)


def test_a_script_that_was_in_progress_gets_the_recorded_replies_first(
    open_env: OpenEnv, do: Do, granting: Setup, tmp_path: Path
) -> None:
    env = open_env(setup=granting, models={"main": FakeModel(["one", "two"])})
    run_script(env, do, "print(ask('1'), ask('2'))")
    env.close()
    trace = RunFolder(tmp_path / "run").trace.path
    trace.write_text(trace.read_text().splitlines(keepends=True)[0])  # killed before the step was recorded
    calls = RunFolder(tmp_path / "run").model_calls.path
    calls.write_text(calls.read_text().splitlines(keepends=True)[0])
    model = FakeModel(["one", "other"])
    again = open_env(setup=granting, models={"main": model})
    assert run_script(again, do, "print(ask('1'), ask('2'))") == "one other"
    assert [prompt.messages[0].text for prompt in model.prompts] == ["2"] and again.model_calls.tokens == 80


GRADE = """
import numpy as np
from mlagentbench.grading.program import Program

def grade(submission, private):
    with Program(submission, "seen", "see") as program:
        answers, _ = program.ask(np.zeros(1), timeout_s=20, max_bytes=1000)
        return float(answers[0][0])
"""
SEEN = """
import os, socket
import numpy as np

def see(question):
    with socket.socket() as connection:
        reached = connection.connect_ex(("127.0.0.1", 8791)) == 0
    return np.array([reached + sum("MODEL" in name or "OPENAI" in name for name in os.environ)], float)
"""


def test_there_is_no_model_while_a_submission_is_graded_and_the_run_verifies(
    toy: Path, variant: Callable[..., Path], play: Callable[..., Result], do: Do
) -> None:
    config = 'submission = "."\n' + (toy / "task.toml").read_text() + GRANT
    folder = variant({"task.toml": config, "grade.py": GRADE})
    setup = prepare_setup(str(folder), "open", "bwrap", ignore_progress)

    def see(env: Environment) -> None:
        do(env, "Write File", file_name="seen.py", content=SEEN)
        assert do(env, "Python REPL", command="import seen; print(seen.see(0)[0] > 1)") == "True"
        assert do(env, "Python REPL", command=f"{ASK}\nask('France?')") == "'Paris'"
        do(env, "Final Answer", final_answer="")

    result = play(see, setup=setup, models={"main": FakeModel(["Paris"])})
    assert (result.score, result.note, result.tokens) == (0.0, "", 40)
    checks = verify_run(RunFolder(Path(result.folder)), setup)
    assert [check for check in checks if not check.holds] == []
