"""The scripted work of peers.py as an evaluation of Inspect: one sample, a mock model, four tools."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.log import EvalLog
from inspect_ai.model import ChatMessageTool, ModelOutput, ModelUsage, get_model
from inspect_ai.solver import Generate, Solver, TaskState, generate, solver, use_tools
from inspect_ai.tool import Tool, ToolDef
from inspect_ai.util import sandbox
from peers_work import ToolCall

Files = tuple[str, str, int]


def build_tools(python: str) -> list[Tool]:
    """The actions with what Inspect's sandboxes offer: exec, read_file and write_file."""

    async def list_files(dir_path: str) -> str:
        return (await sandbox().exec(["ls", "-1", dir_path])).stdout

    async def read_file(file_name: str) -> str:
        return await sandbox().read_file(file_name)

    async def write_file(file_name: str, content: str) -> str:
        await sandbox().write_file(file_name, content)
        return "done"

    async def append_file(file_name: str, content: str) -> str:
        await sandbox().write_file(file_name, await sandbox().read_file(file_name) + content)
        return "done"

    async def execute_script(script_name: str) -> str:
        result = await sandbox().exec([python, "-u", script_name])
        if not result.success:
            raise RuntimeError(result.stderr)
        return result.stdout

    texts = {"dir_path": "a folder", "file_name": "a file", "content": "text", "script_name": "a script"}
    functions: dict[Callable[..., Any], list[str]] = {
        list_files: ["dir_path"],
        read_file: ["file_name"],
        write_file: ["file_name", "content"],
        append_file: ["file_name", "content"],
        execute_script: ["script_name"],
    }
    return [
        ToolDef(function, description="Act.", parameters={name: texts[name] for name in names}).as_tool()
        for function, names in functions.items()
    ]


def evaluate(calls: list[ToolCall], sandbox_name: str, python: str, folder: Path) -> tuple[list[str], Files]:
    """Evaluate a model that makes the calls.

    Returns:
        The results of the tools; note.txt, executions.txt and the number of large files.
    """
    files: list[Files] = []

    @solver
    def read_files() -> Solver:
        async def solve(state: TaskState, generate: Generate) -> TaskState:
            texts = [await sandbox().read_file(name) for name in ("note.txt", "executions.txt")]
            listing = await sandbox().exec(["sh", "-c", "ls large 2>/dev/null || true"])
            files.append((texts[0], texts[1], len(listing.stdout.split())))
            return state

        return solve

    outputs = [_call_tool(call) for call in calls]
    outputs.append(ModelOutput.from_content("mockllm", "done"))
    for output in outputs:  # otherwise Inspect downloads a tokenizer to count tokens
        output.usage = ModelUsage(input_tokens=100, output_tokens=10, total_tokens=110)
    task = Task(
        name="peer",
        dataset=[Sample(input="Do the work.")],
        solver=[use_tools(build_tools(python)), generate(tool_calls="loop"), read_files()],
        sandbox=sandbox_name,
    )
    model = get_model("mockllm/model", custom_outputs=outputs, memoize=False)
    [log] = eval(task, model, log_dir=str(folder / "logs"), display="none", message_limit=None)
    return _read_results(log), files[0]


def _call_tool(call: ToolCall) -> ModelOutput:
    return ModelOutput.for_tool_call("mockllm", call.action.lower().replace(" ", "_"), call.args)


def _read_results(log: EvalLog) -> list[str]:
    if log.status != "success" or not log.samples:
        raise SystemExit(f"Inspect failed: {log.error}")
    tools = [message for message in log.samples[0].messages if isinstance(message, ChatMessageTool)]
    return [message.error.message if message.error else message.text for message in tools]
