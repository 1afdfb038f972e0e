"""An interpreter inside the sandbox, which lives from step to step and is frozen in between."""

import json
import os
import secrets
import subprocess
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from socket import socket
from time import monotonic

from mlagentbench.records import Execution
from mlagentbench.sandbox.base import Sandbox, SandboxProcess, SandboxSpec
from mlagentbench.sandbox.output import CommandOutput
from mlagentbench.sandbox.programs import repl

HANDOVER_TIMEOUT_S = (
    10  # seconds to take a command; more means that an earlier one is still in the interpreter's way
)


class Repl:
    """One interpreter; when it dies, the next command begins a new one."""

    def __init__(self, sandbox: Sandbox, box: SandboxSpec) -> None:
        driver = Path(repl.__file__)
        inside = str(driver) if sandbox.name == "none" else "/opt/repl.py"
        box = replace(box, mounts=(*box.mounts, (driver, inside)))
        self._process: SandboxProcess = sandbox.start(
            ["python", "-u", "-P", inside], box, stdin=subprocess.PIPE
        )

    def run(self, code: str, timeout_s: float, output: CommandOutput) -> Execution | None:
        """The outcome if the interpreter ended, or None if it waits for the next command."""
        process = self._process
        process.started_at = monotonic()
        process.tree.resume()
        assert process.child.stdin is not None
        with socket(fileno=os.dup(process.child.stdin.fileno())) as channel:
            if self._run_command(channel, code, timeout_s, output):
                process.tree.pause()
                process.drain_output(output)
                return None
        return process.finish(output)

    @property
    def stayed_paused(self) -> bool:
        """Whether it has done nothing since its last command."""
        return self._process.tree.cpu_seconds_while_paused == 0

    @property
    def mapped_inodes(self) -> set[int]:
        """The files that its memory is, by inode."""
        return self._process.tree.find_mapped_inodes()

    def _run_command(self, channel: socket, code: str, seconds: float, output: CommandOutput) -> bool:
        """Whether the interpreter did it and is there for the next; its word comes apart from what it prints."""
        mark = secrets.token_hex(16).encode()
        channel.settimeout(min(seconds, HANDOVER_TIMEOUT_S))
        try:
            with suppress(ConnectionError):  # it has ended meanwhile, which is seen below
                channel.sendall(json.dumps({"code": code, "mark": mark.decode()}).encode() + b"\n")
        except TimeoutError:
            self._process.limit = "time"
            return False
        deadline, heard = monotonic() + seconds, b""
        news: int | None = channel.fileno()
        while not heard.endswith(mark):
            if self._process.pump_output(output, deadline - monotonic(), news) != "news":
                return False
            said = b""
            with suppress(ConnectionError):
                said = channel.recv(1 << 12)
            heard = (heard + said)[-len(mark) :]
            news = news if said else None  # it hung up, and can only end
        return True

    def close(self) -> None:
        """End the interpreter with everything that it started."""
        self._process.close()
