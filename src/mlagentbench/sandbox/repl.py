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
from mlagentbench.sandbox import repl_driver
from mlagentbench.sandbox.base import Box, Process, Sandbox
from mlagentbench.sandbox.output import Output

HANDOVER = 10  # seconds to take a command; more means that an earlier one is still in the interpreter's way


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
        process.started = monotonic()
        process.tree.unpause()
        assert process.child.stdin is not None
        with socket(fileno=os.dup(process.child.stdin.fileno())) as channel:
            if self._command(channel, code, seconds, output):
                process.tree.pause()
                process.drain(output)
                return None
        return process.finish(output)

    @property
    def at_rest(self) -> bool:
        """Whether it has done nothing since its last command."""
        return self._process.tree.stirred == 0

    @property
    def mapped(self) -> set[int]:
        """The files that its memory is, by inode."""
        return self._process.tree.mapped()

    def _command(self, channel: socket, code: str, seconds: float, output: Output) -> bool:
        """Whether the interpreter did it and is there for the next; its word comes apart from what it prints."""
        mark = secrets.token_hex(16).encode()
        channel.settimeout(min(seconds, HANDOVER))
        try:
            with suppress(ConnectionError):  # it has ended meanwhile, which is seen below
                channel.sendall(json.dumps({"code": code, "mark": mark.decode()}).encode() + b"\n")
        except TimeoutError:
            self._process.limit = "time"
            return False
        deadline, heard = monotonic() + seconds, b""
        news: int | None = channel.fileno()
        while not heard.endswith(mark):
            if self._process.pump(output, deadline - monotonic(), news) != "news":
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
