"""A loopback model for real coding agents: it calls the shell tool that a program offers, then is done."""

import json
from typing import Any

from api_formats import Completion
from fake_provider import FakeProvider, RecordedRequest, ScriptedReply

SHELL_WORDS = ("bash", "shell", "terminal", "exec", "command")
SHELL_ARGUMENTS = ("command", "cmd", "script")
DEFAULTS: dict[str, Any] = {"string": "solve the task", "boolean": False, "integer": 60, "number": 60}


class CodingModel(FakeProvider):
    """Solves the toy task with one shell command, or with the texts of `script` if it has some."""

    def __init__(self, command: str, *script: ScriptedReply) -> None:
        super().__init__(*script)
        self.command = command

    def next_reply(self, request: RecordedRequest) -> ScriptedReply:
        if self.script:
            return super().next_reply(request)
        self.requests.append(request)
        tools = {tool["function"]["name"]: tool["function"] for tool in request.body.get("tools") or ()}
        shell = find_shell(tools)
        if request.body.get("tool_choice") not in (None, "auto", "none"):  # the program wants a tool called
            name = next(iter(tools))
            return Completion("", ((name, fill_arguments(tools[name], self.command)),))
        answered = any(message["role"] == "tool" for message in request.body["messages"])
        if shell and not answered:
            return Completion("I write the solution.", ((shell, fill_arguments(tools[shell], self.command)),))
        for name in ("finish", "final_answer", "attempt_completion"):
            if name in tools and answered:
                return Completion("", ((name, fill_arguments(tools[name], "done")),))
        return "The submission is written."


def find_shell(tools: dict[str, Any]) -> str:
    """The name of the tool that runs shell commands."""
    for name, tool in tools.items():
        properties = tool.get("parameters", {}).get("properties", {})
        if any(word in name.lower() for word in SHELL_WORDS) and set(properties) & set(SHELL_ARGUMENTS):
            return name
    return ""


def fill_arguments(tool: dict[str, Any], command: str) -> dict[str, Any]:
    """Arguments that satisfy the schema, with the command in its place."""
    parameters = tool.get("parameters", {})
    arguments = {}
    for name, schema in parameters.get("properties", {}).items():
        if name in SHELL_ARGUMENTS:
            arguments[name] = ["bash", "-lc", command] if schema.get("type") == "array" else command
        elif name in parameters.get("required", ()):
            arguments[name] = schema["enum"][0] if "enum" in schema else DEFAULTS.get(schema.get("type"), "x")
    return json.loads(json.dumps(arguments))
