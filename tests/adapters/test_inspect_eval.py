"""Evaluations by Inspect on the toy task: real tool calls, real sandboxes, a model with fixed outputs."""

import gc
import json
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from inspect_ai import Task, eval
from inspect_ai._util.error import PrerequisiteError
from inspect_ai.dataset import Sample
from inspect_ai.log import EvalLog, EvalSample
from inspect_ai.model import ModelOutput, ModelUsage, get_model
from inspect_ai.scorer import includes
from inspect_ai.solver import generate, use_tools
from inspect_ai.tool import bash, bash_session, text_editor

from mlagentbench.adapters.inspect.entry import folder_task
from mlagentbench.adapters.inspect.sample_run import SampleRun
from mlagentbench.runner.folder import RunFolder

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")  # Inspect leaves streams to the collector

REFERENCE = (Path(__file__).parents[1] / "toy" / "reference" / "train.py").read_text()
Outputs = Sequence[ModelOutput] | Callable[..., Any]
Evaluate = Callable[..., EvalLog]


def _with_usage(output: ModelOutput) -> ModelOutput:
    output.usage = ModelUsage(input_tokens=30, output_tokens=10, total_tokens=40)
    return output


def text_output(text: str) -> ModelOutput:
    return _with_usage(ModelOutput.from_content("mockllm", text))


def call_output(tool: str, **args: Any) -> ModelOutput:
    return _with_usage(ModelOutput.for_tool_call("mockllm", tool, args, content="I think so."))


def script(code: str) -> list[ModelOutput]:
    return [
        call_output("write_file", file_name="x.py", content=code),
        call_output("execute_script", script_name="x.py"),
    ]


SOLUTION = [
    call_output("write_file", file_name="train.py", content=REFERENCE),
    call_output("execute_script", script_name="train.py"),
    call_output("final_answer", final_answer="done"),
]
RESEARCH = (
    "Reflection: r\nResearch Plan and Status: p\nFact Check: f\nThought: t\nAction: {}\nAction Input: {}"
)


@pytest.fixture(scope="module", autouse=True)
def collected() -> Iterator[None]:
    """Collect what Inspect leaves here, where its warnings are ignored."""
    yield
    gc.collect()


@pytest.fixture
def evaluate(toy: Path, tmp_path: Path) -> Iterator[Evaluate]:
    """Evaluate the toy task: evaluate(outputs, agent="research", epochs=2)."""

    def run(
        outputs: Outputs, task: Path = toy, roles: dict[str, Outputs] | None = None, **options: Any
    ) -> EvalLog:
        task_options = {
            name: options.pop(name) for name in ("agent", "steps", "hours", "isolation") if name in options
        }
        inspect_task = folder_task(task_folder=str(task), runs=str(tmp_path / "runs"), **task_options)
        role_models = {role: _model(role_outputs) for role, role_outputs in (roles or {}).items()}
        logs = eval(
            inspect_task,
            _model(outputs),
            model_roles=role_models,
            log_dir=str(tmp_path / "logs"),
            display="none",
            **options,
        )
        return logs[0]

    yield run
    assert not SampleRun.active  # nothing may be left open


def _model(outputs: Outputs) -> Any:
    return get_model("mockllm/model", custom_outputs=outputs, memoize=False)


def single_sample(log: EvalLog) -> EvalSample:
    assert log.samples and len(log.samples) == 1
    return log.samples[0]


def score_values(sample: EvalSample) -> dict[str, Any]:
    assert sample.scores
    return sample.scores["verdict"].as_dict()


def run_folder(sample: EvalSample) -> RunFolder:
    return RunFolder(Path(sample.metadata["run_folder"]))


def test_inspects_react_agent_uses_the_actions_and_is_graded_by_the_grader(evaluate):
    log = evaluate(SOLUTION)
    sample = single_sample(log)
    assert log.status == "success"
    values = score_values(sample)
    assert math.isnan(values.pop("progress"))  # the toy has no expert
    assert values == {"success": 1.0, "improvement": 1.0, "score": 0.0, "valid": 1.0}
    assert {score.name: score.metrics["mean"].value for score in log.results.scores}["improvement"] == 1.0
    run = run_folder(sample)
    assert [step.call.action for step in run.steps()] == ["Write File", "Execute Script", "Final Answer"]
    assert run.steps()[0].call.thought == "I think so."
    assert (run.result.ending, run.result.success, run.result.tokens) == ("submitted", True, 120)
    assert [call.reply.calls[0].name for call in run.calls()] == [
        "write_file",
        "execute_script",
        "final_answer",
    ]


def test_every_step_is_in_the_transcript_with_its_snapshot(evaluate):
    sample = single_sample(evaluate(SOLUTION))
    notes = [
        event.data for event in sample.events if event.event == "info" and event.source == "mlagentbench"
    ]
    store = run_folder(sample).open_store(writable=False)
    assert [(note["step"], note["snapshot"]) for note in notes] == [
        (n, store.tree_hash(n)) for n in (1, 2, 3)
    ]


def test_epochs_have_their_own_seeds_and_folders(evaluate):
    log = evaluate(lambda *_: SOLUTION[2], epochs=3)
    assert sorted(run_folder(sample).spec.seed for sample in log.samples) == [1, 2, 3]
    assert {score_values(sample)["valid"] for sample in log.samples} == {0.0}


def test_missing_scores_are_left_out_of_the_means_and_are_not_zeros(evaluate):
    log = evaluate([SOLUTION[2]])
    means = {score.name: score for score in log.results.scores}
    assert means["success"].metrics["mean"].value == 0.0
    assert (means["improvement"].scored_samples, means["improvement"].unscored_samples) == (0, 1)
    assert "submission.csv" in single_sample(log).scores["verdict"].explanation


def test_the_research_agent_uses_inspects_models_and_its_steps_are_the_samples_messages(evaluate):
    outputs = [
        text_output(
            RESEARCH.format("Write File", json.dumps({"file_name": "train.py", "content": REFERENCE}))
        ),
        text_output(RESEARCH.format("Execute Script", '{"script_name": "train.py"}')),
        text_output(RESEARCH.format("Final Answer", '{"final_answer": "done"}')),
    ]
    log = evaluate(outputs, agent="research")
    sample = single_sample(log)
    assert score_values(sample)["success"] == 1.0
    run = run_folder(sample)
    assert (run.spec.agent, run.spec.model, run.result.tokens) == ("research", "mockllm/model", 120)
    assert log.stats.model_usage["mockllm/model"].total_tokens == 120
    called_tools = [message.function for message in sample.messages if message.role == "tool"]
    assert called_tools == ["write_file", "execute_script", "final_answer"]


def test_the_roles_fast_and_edit_have_their_own_models(evaluate):
    outputs = [
        call_output("understand_file", file_name="train.py", things_to_look_for="the guess"),
        call_output(
            "edit_script_ai", script_name="train.py", edit_instruction="guess better", save_name="train.py"
        ),
        call_output("execute_script", script_name="train.py"),
        SOLUTION[2],
    ]
    roles = {"fast": [text_output("It guesses 9.5.")], "edit": [text_output(f"```python\n{REFERENCE}```")]}
    log = evaluate(outputs, roles=roles)
    sample = single_sample(log)
    assert score_values(sample)["success"] == 1.0
    assert "It guesses 9.5." in next(message.text for message in sample.messages if message.role == "tool")
    assert [call.role for call in run_folder(sample).calls()] == [
        "main",
        "fast",
        "main",
        "edit",
        "main",
        "main",
    ]
    assert set(log.stats.role_usage) >= {"fast", "edit"}


@pytest.mark.parametrize("agent", [pytest.param("react", marks=pytest.mark.slow), "research"])
def test_a_limit_of_inspect_ends_the_sample_and_the_workspace_is_graded(evaluate, agent):
    later_step = (
        call_output("list_files", dir_path=".")
        if agent == "react"
        else RESEARCH.format("List Files", '{"dir_path": "."}')
    )
    work = [
        call_output("execute_script", script_name="train.py"),
        RESEARCH.format("Execute Script", '{"script_name": "train.py"}'),
    ]
    first = work[0] if agent == "react" else text_output(work[1])
    later = later_step if agent == "react" else text_output(later_step)
    outputs = iter([first])
    sample = single_sample(evaluate(lambda *_: next(outputs, later), agent=agent, message_limit=9))
    assert sample.limit and sample.limit.type == "message"
    assert score_values(sample) | {"improvement": 0, "progress": 0} == {
        "success": 0.0,
        "improvement": 0,
        "progress": 0,
        "score": 5.0,
        "valid": 1.0,
    }
    assert run_folder(sample).result.ending == "stopped"


@pytest.mark.parametrize("agent", ["react", pytest.param("research", marks=pytest.mark.slow)])
def test_a_time_limit_of_inspect_terminates_a_script_with_all_its_processes(evaluate, agent, until):
    code = (
        "import subprocess, time\nprint(1, flush=True)\n"
        "subprocess.Popen(['sleep', '98761'])\ntime.sleep(98761)"
    )
    write, run = json.dumps({"file_name": "x.py", "content": code}), '{"script_name": "x.py"}'
    replies = [RESEARCH.format("Write File", write), RESEARCH.format("Execute Script", run)]
    outputs = script(code) if agent == "react" else [text_output(reply) for reply in replies]
    sample = single_sample(evaluate(outputs, agent=agent, time_limit=4))
    assert sample.limit and sample.limit.type == "time"
    assert score_values(sample)["valid"] == 0.0
    assert len(run_folder(sample).steps()) == 1
    until(lambda: not any(b"98761" in command for command in running_commands()))


def running_commands() -> Iterator[bytes]:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(FileNotFoundError, ProcessLookupError):  # the process may exit meanwhile
            yield path.read_bytes()


def test_a_fault_is_an_error_of_the_sample_and_never_a_zero(evaluate, variant):
    broken = variant({"grade.py": "def grade(submission, private):\n    raise ValueError(1)\n"})
    log = evaluate([call_output("execute_script", script_name="train.py"), SOLUTION[2]], task=broken)
    sample = single_sample(log)
    assert (log.status, sample.scores) == ("error", {})
    assert "TaskFault" in sample.error.message
    assert run_folder(sample).result.ending == "fault"


def test_a_failing_model_is_a_fault_too(evaluate):
    log = evaluate([], agent="research")
    assert log.status == "error"
    assert "ModelFault" in single_sample(log).error.message
    assert run_folder(single_sample(log)).result.ending == "fault"


def test_the_step_limit_of_the_run_ends_the_react_agent(evaluate):
    sample = single_sample(evaluate(lambda *_: call_output("list_files", dir_path="."), steps=2))
    assert run_folder(sample).result.ending == "steps"
    assert len(sample.messages) == 6


def test_many_samples_run_in_parallel(evaluate):
    code = "import time; print(time.time(), flush=True); time.sleep(1.5); print(time.time())"
    outputs = {"write_file": script(code)[0], "execute_script": script(code)[1], "final_answer": SOLUTION[2]}

    def next_output(messages, *_):
        done = [message.function for message in messages if message.role == "tool"]
        return list(outputs.values())[len(done)]

    log = evaluate(next_output, epochs=5, max_samples=5)
    times = [
        [float(word) for word in run_folder(s).steps()[1].observation.splitlines()[1:]] for s in log.samples
    ]
    assert max(start for start, _ in times) < min(end for _, end in times)


def test_any_inspect_solver_finds_the_actions_among_its_tools(evaluate):
    sample = single_sample(evaluate([*SOLUTION[:2], text_output("I am done.")], solver=generate()))
    assert score_values(sample)["success"] == 1.0
    assert run_folder(sample).result.ending == "stopped"


def test_a_usage_error_is_one_line(toy):
    with pytest.raises(PrerequisiteError, match=r"No such agent: 'nobody'\. Available: "):
        folder_task(task_folder=str(toy), agent="nobody")
    with pytest.raises(PrerequisiteError, match="needs a person"):
        folder_task(task_folder=str(toy), agent="human")


@pytest.mark.slow  # Inspect copies tens of megabytes into the sandbox
def test_tools_that_inspect_injects_work_in_the_bwrap_sandbox(tmp_path):
    outputs = [
        call_output("bash", command="cat given.txt; sleep 1000 >/dev/null & echo started"),
        call_output("text_editor", command="create", path="/workspace/new.txt", file_text="made"),
        call_output(
            "bash_session", action="type_submit", input="cd /workspace; echo $((6 * 7)) $(cat new.txt)"
        ),
        text_output("done"),
    ]
    tools = use_tools(bash(timeout=10), text_editor(), bash_session())
    sample = Sample(
        input="?", target="done", files={"given.txt": "given"}, setup="echo ' and set up' >> given.txt"
    )
    task = Task([sample], solver=[tools, generate()], scorer=includes(), sandbox="bwrap")
    (log,) = eval(task, _model(outputs), log_dir=str(tmp_path), display="none")
    results = [message.text for message in single_sample(log).messages if message.role == "tool"]
    assert results[0].splitlines() == ["given and set up", "started"]
    assert "42 made" in results[2]
