"""Inspect's bridge: a program in our sandbox asks models of the evaluation through a local port."""

from pathlib import Path

import pytest
from inspect_ai import Task, eval
from inspect_ai.agent import Agent, AgentState, agent, sandbox_agent_bridge
from inspect_ai.dataset import Sample
from inspect_ai.model import ModelOutput, ModelUsage, get_model
from inspect_ai.scorer import includes
from inspect_ai.util import sandbox

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")  # Inspect leaves streams to the collector

PROGRAM = """
import json, socket, sys, urllib.request

def ask(messages):
    body = json.dumps({"model": "inspect", "messages": messages}).encode()
    url = f"http://127.0.0.1:{sys.argv[1]}/v1/chat/completions"
    request = urllib.request.Request(url, body, {"content-type": "application/json"})
    return json.load(urllib.request.urlopen(request))["choices"][0]["message"]["content"]

while socket.socket().connect_ex(("127.0.0.1", int(sys.argv[1]))):  # Inspect does not wait for its proxy
    pass

messages = [{"role": "user", "content": "What shall I write?"}]
answer = ask(messages)
open("answer.txt", "w").write(answer)
messages += [{"role": "assistant", "content": answer}, {"role": "user", "content": "Is that all?"}]
print(ask(messages))
try:
    socket.create_connection(("1.1.1.1", 53), 2)
except OSError as error:
    print(error)
"""


@agent
def external_program() -> Agent:
    """Runs a program in the sandbox that knows nothing of Inspect."""

    async def execute(state: AgentState) -> AgentState:
        async with sandbox_agent_bridge(state) as bridge:
            await sandbox().write_file("program.py", PROGRAM)
            done = await sandbox().exec(["python", "program.py", str(bridge.port)], timeout=60)
            assert done.stdout == "That is all.\n[Errno 101] Network is unreachable\n", done
            assert await sandbox().read_file("answer.txt") == "Write this."
        return bridge.state

    return execute


@pytest.mark.slow  # Inspect unpacks its tools in the sandbox
def test_a_program_in_the_sandbox_reaches_the_models_of_the_evaluation_and_nothing_else(tmp_path: Path):
    outputs = [ModelOutput.from_content("mockllm", text) for text in ("Write this.", "That is all.")]
    for output in outputs:  # otherwise Inspect counts tokens with a tokenizer that it downloads
        output.usage = ModelUsage(input_tokens=30, output_tokens=10, total_tokens=40)
    model = get_model("mockllm/model", custom_outputs=outputs)
    task = Task(
        [Sample("?", target="That is all.")], solver=external_program(), scorer=includes(), sandbox="bwrap"
    )
    (log,) = eval(task, model, log_dir=str(tmp_path), display="none")
    assert log.status == "success", log.error.message
    (sample,) = log.samples
    assert [message.role for message in sample.messages] == ["user", "assistant", "user", "assistant"]
    assert log.results.scores[0].metrics["accuracy"].value == 1
    assert sum(usage.total_tokens for usage in sample.model_usage.values()) == 80
