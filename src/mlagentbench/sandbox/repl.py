"""A Python interpreter inside the sandbox, which lives from step to step and is paused in between."""

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
from mlagentbench.sandbox.base import CommandService, Sandbox, SandboxProcess, SandboxSpec
from mlagentbench.sandbox.output import CommandOutput
from mlagentbench.sandbox.programs import repl

# To receive a command; if it takes longer, the interpreter is still busy with an earlier one.
HANDOVER_TIMEOUT_S = 10


class Repl:
    """One interpreter. After it has exited, the caller creates a new one for the next command."""

    def __init__(self, sandbox: Sandbox, spec: SandboxSpec, service: CommandService | None = None) -> None:
        program = Path(repl.__file__)
        inside = sandbox.path_inside(program, "/opt/repl.py")
        spec = replace(spec, mounts=(*spec.mounts, (program, inside)))
        argv = ["python", "-u", "-P", inside]
        self._process: SandboxProcess = sandbox.start_with_service(argv, spec, service, stdin=subprocess.PIPE)

    def run(self, code: str, timeout_s: float, output: CommandOutput) -> Execution | None:
        """Run code. Returns None if the interpreter is ready for more, or how it exited if it did."""
        process = self._process
        process.started_at = monotonic()
        process.resume()
        assert process.child.stdin is not None
        with socket(fileno=os.dup(process.child.stdin.fileno())) as channel:
            if self._run_command(channel, code, timeout_s, output):
                process.pause()
                process.drain_output(output)
                return None
        return process.finish(output)

    @property
    def stayed_paused(self) -> bool:
        """Whether it has used no CPU time since its last command."""
        return self._process.tree.cpu_seconds_while_paused == 0

    @property
    def mapped_inodes(self) -> set[int]:
        """The inodes of files that it can write through shared memory mappings."""
        return self._process.tree.find_mapped_inodes()

    def _run_command(self, channel: socket, code: str, timeout_s: float, output: CommandOutput) -> bool:
        """Whether the interpreter completed the command and is ready for more.

        It reports completion on the channel with a random token, which printed output cannot imitate.
        """
        token = secrets.token_hex(16).encode()
        channel.settimeout(min(timeout_s, HANDOVER_TIMEOUT_S))
        try:
            with suppress(ConnectionError):  # it has exited, which pump_output reports below
                channel.sendall(json.dumps({"code": code, "token": token.decode()}).encode() + b"\n")
        except TimeoutError:
            self._process.limit = "time"
            return False
        deadline, received = monotonic() + timeout_s, b""
        message_fd: int | None = channel.fileno()
        while not received.endswith(token):
            if self._process.pump_output(output, deadline - monotonic(), message_fd) != "message":
                return False
            data = b""
            with suppress(ConnectionError):
                data = channel.recv(1 << 12)
            received = (received + data)[-len(token) :]
            message_fd = message_fd if data else None  # it closed the channel, and can only exit now
        return True

    def close(self) -> None:
        """Kill the interpreter with everything that it started."""
        self._process.close()
