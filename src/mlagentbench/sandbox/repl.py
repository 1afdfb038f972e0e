"""A Python interpreter inside the sandbox that lives from step to step and is frozen in between."""

import json
import secrets
import subprocess
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from mlagentbench.records import Execution
from mlagentbench.sandbox import repl_driver
from mlagentbench.sandbox.base import Box, Process, Sandbox
from mlagentbench.sandbox.output import Output


class Repl:
    """One interpreter; when it dies, the next command begins a new one."""

    def __init__(self, sandbox: Sandbox, box: Box) -> None:
        driver = Path(repl_driver.__file__)
        inside = str(driver) if sandbox.name == "none" else "/opt/repl.py"
        box = replace(box, mounts=(*box.mounts, (driver, inside)))
        self._process: Process = sandbox.start(["python", "-u", "-P", inside], box, stdin=subprocess.PIPE)

    def run(self, code: str, seconds: float, output: Output) -> Execution | None:
        """The outcome if the interpreter ended, or None if it waits for the next command."""
        process = self._process
        mark = f"\n<{secrets.token_hex(16)}>\n"
        process.unpause()
        with suppress(BrokenPipeError):
            assert process.child.stdin is not None
            process.child.stdin.write(json.dumps({"code": code, "mark": mark}).encode() + b"\n")
            process.child.stdin.flush()
        alive = process.pump(output, seconds, until=lambda: output.ends_with(mark.encode()))
        if alive and output.cut(mark.encode()):
            process.pause()
            return None
        return process.finish(output)

    def close(self) -> None:
        """End the interpreter with everything that it started."""
        self._process.close()
