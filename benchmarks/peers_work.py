"""The scripted work of peers.py: tool calls, what each must lead to, and their plainest execution.

Nothing here imports the harness: what a peer imports counts as its start and its memory.
"""

import subprocess
from pathlib import Path
from typing import NamedTuple

LARGE_FILES = 100  # of 1 MB each
COUNT_SCRIPT = """
lines = open("note.txt").read().splitlines()
print(f"counted {len(lines)} lines")
open("executions.txt", "a").write("x")
"""
LARGE_SCRIPT = f"""
import os
os.makedirs("large")
for number in range({LARGE_FILES}):
    open(f"large/{{number}}.bin", "wb").write(os.urandom(2**20))
print("counted 1 lines")
open("executions.txt", "a").write("x")
"""


class ToolCall(NamedTuple):
    action: str
    args: dict[str, str]


def write_call(name: str, content: str) -> ToolCall:
    return ToolCall("Write File", {"file_name": name, "content": content})


class Work:
    """The calls of a part, and the observations and files that they must lead to.

    Args:
        part: The number of steps, with "-large" for 100 MB in the workspace.
        python: What executes the scripts without a sandbox.
    """

    def __init__(self, part: str, python: str) -> None:
        self.python = python
        number, self.large = int(part.removesuffix("-large")), part.endswith("-large")
        self.lines = ["line 0"]
        self.executions = 0
        self.calls = [write_call("note.txt", "line 0\n"), write_call("count.py", COUNT_SCRIPT)]
        self.expected = ["", ""]  # text that each observation must contain
        if self.large:
            self.calls.append(write_call("large.py", LARGE_SCRIPT))
            self.expected.append("")
            self._add_execution("large.py")
        for step in range(number):
            (self._add_list, self._add_read, self._add_append, self._add_count)[step % 4]()

    def _add(self, action: str, expected: str, **args: str) -> None:
        self.calls.append(ToolCall(action, args))
        self.expected.append(expected)

    def _add_list(self) -> None:
        self._add("List Files", "large" if self.large else "note.txt", dir_path=".")

    def _add_read(self) -> None:
        self._add("Read File", self.lines[-1], file_name="note.txt")

    def _add_append(self) -> None:
        self.lines.append(f"line {len(self.lines)}")
        self._add("Append File", "", file_name="note.txt", content=self.lines[-1] + "\n")

    def _add_execution(self, script: str) -> None:
        self.executions += 1
        self._add("Execute Script", f"counted {len(self.lines)} lines", script_name=script)

    def _add_count(self) -> None:
        self._add_execution("count.py")

    def check_observations(self, observations: list[str]) -> None:
        """Raise if an observation is missing or does not have the expected text."""
        if len(observations) != len(self.calls):
            raise SystemExit(f"{len(observations)} observations of {len(self.calls)} calls")
        for call, expected, text in zip(self.calls, self.expected, observations, strict=True):
            if expected not in text:
                raise SystemExit(f"{call.action} {call.args}: expected {expected!r}, got {text[:500]!r}")

    def check_files(self, note: str, executions: str, large_files: int) -> None:
        """Raise if the workspace is not what the calls must have made of it."""
        expected = ("".join(f"{line}\n" for line in self.lines), "x" * self.executions)
        if (note, executions, large_files) != (*expected, LARGE_FILES if self.large else 0):
            raise SystemExit(f"wrong files: {note[-200:]!r}, {executions!r}, {large_files} large files")

    def check_workspace(self, folder: Path) -> None:
        texts = [(folder / name).read_text() for name in ("note.txt", "executions.txt")]
        self.check_files(texts[0], texts[1], len(list(folder.glob("large/*.bin"))))


def act_directly(folder: Path, python: str, call: ToolCall) -> str:
    """The floor: the effect of a call, without a sandbox or a record."""
    args = call.args
    match call.action:
        case "List Files":
            return "\n".join(sorted(path.name for path in folder.iterdir()))
        case "Read File":
            return (folder / args["file_name"]).read_text()
        case "Write File" | "Append File":
            with (folder / args["file_name"]).open("w" if call.action == "Write File" else "a") as file:
                file.write(args["content"])
            return "done"
        case "Execute Script":
            command = [python, "-u", args["script_name"]]
            return subprocess.check_output(command, cwd=folder, text=True)
    raise ValueError(call.action)
