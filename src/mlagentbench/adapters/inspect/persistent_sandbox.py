"""A sandbox that lives as long as an Inspect sample: its commands share their files, and may leave others running."""

import itertools
import json
import math
import os
import subprocess
import threading
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from socket import MSG_DONTWAIT, socket
from typing import Any

from mlagentbench.actions.execute_script import format_outcome
from mlagentbench.errors import SandboxFault, Stopped
from mlagentbench.records import Limit
from mlagentbench.sandbox.base import Sandbox, SandboxProcess, SandboxSpec
from mlagentbench.sandbox.output import CommandOutput
from mlagentbench.sandbox.programs import command_server
from mlagentbench.sandbox.programs.command_server import HEADER, Response, encode_message
from mlagentbench.system.stop_token import StopToken

DRIVER_PATH = "/opt/resident.py"
MAX_HEADER_BYTES = 1 << 20  # bytes of an answer besides what was asked for
RECEIVE_BYTES = 1 << 20  # bytes taken at once


class SandboxEnded(Exception):
    """The sandbox ended before it answered."""

    def __init__(self, why: str, limit: Limit | None) -> None:
        super().__init__(why)
        self.limit = limit


@dataclass
class PendingRequest:
    """What the sandbox was asked, and how long its answer may be."""

    number: int
    max_bytes: int
    response: "Future[Response]" = field(default_factory=Future)


class PersistentSandbox:
    """One sandbox at work; questions may come from many threads."""

    def __init__(self, sandbox: Sandbox, box: SandboxSpec) -> None:
        driver = (Path(command_server.__file__), DRIVER_PATH)
        self._sandbox = sandbox
        self._box = replace(box, mounts=(*box.mounts, driver), stop_token=StopToken(), run_as_init=True)
        self._output = CommandOutput()
        self._process: SandboxProcess = sandbox.start(
            ["python", "-u", "-P", DRIVER_PATH], self._box, stdin=subprocess.PIPE
        )
        assert self._process.child.stdin is not None
        self._channel = socket(fileno=os.dup(self._process.child.stdin.fileno()))
        self._buffer = bytearray()
        self._numbers = itertools.count(1)
        self._pending: dict[int, PendingRequest] = {}
        self._send_lock = threading.Lock()  # of those who speak
        self.ended: SandboxEnded | None = None
        self._watcher = threading.Thread(target=self._watch, name="sandbox-attendant", daemon=True)
        self._watcher.start()

    def new_request(self, max_bytes: int = 0) -> PendingRequest:
        """A question to be asked, whose answer may have this many bytes."""
        return PendingRequest(next(self._numbers), max_bytes + MAX_HEADER_BYTES)

    def send(self, question: PendingRequest, asked: dict[str, Any], given: bytes = b"") -> None:
        """Send it something to do; the answer comes into the question's future, or Gone does."""
        with self._send_lock:
            if self.ended:
                raise self.ended
            self._pending[question.number] = question
            with suppress(OSError):  # it has just ended: whoever attends to it says why
                self._channel.sendall(encode_message({**asked, "id": question.number}, given))

    def cancel(self, question: PendingRequest) -> None:
        """End a command whose outcome nobody waits for."""
        with self._send_lock:
            if not self.ended:
                with suppress(OSError):
                    self._channel.sendall(encode_message({"do": "end", "id": question.number}))

    def close(self) -> None:
        """End everything inside."""
        self._box.stop_token.request()
        self._watcher.join()

    def _watch(self) -> None:
        """Hear answers and look at the limits, until it ends."""
        gone = SandboxEnded("the sandbox was closed", None)
        try:
            news: int | None = self._channel.fileno()
            while self._process.pump_output(self._output, math.inf, news) == "message":
                news = news if self._receive() else None  # it hung up, and can only end
            done = self._process.finish(self._output)
            gone = SandboxEnded(
                f"{format_outcome(done, self._box.limits, 0)} {self._output.text}".strip(), done.limit
            )
        except Stopped:
            pass
        except Exception as error:  # noqa: BLE001 - whoever waits for an answer must hear of it
            gone = SandboxEnded(f"{type(error).__name__}: {error}", None)
        finally:
            self._shut_down(gone)

    def _shut_down(self, gone: SandboxEnded) -> None:
        try:
            self._process.close()
            self._sandbox.release_workspace(self._box)
        finally:
            with self._send_lock:
                self.ended = gone
                self._channel.close()
            for question in self._pending.values():
                question.response.set_exception(gone)

    def _receive(self) -> bool:
        """Take what it says; what inside runs is anybody's code, and so it may not say more than was asked."""
        try:
            said = self._channel.recv(RECEIVE_BYTES, MSG_DONTWAIT)
        except ConnectionError:
            return False
        self._buffer += said
        while len(self._buffer) >= HEADER.size:
            length, size = HEADER.unpack_from(self._buffer)
            if length > MAX_HEADER_BYTES:
                raise SandboxFault("the sandbox answers with something else")
            start = HEADER.size + length
            if len(self._buffer) < start:
                break
            head = json.loads(self._buffer[HEADER.size : start])
            if size > self._pending[head["id"]].max_bytes:
                raise SandboxFault("the sandbox answers more than it was asked for")
            if len(self._buffer) < start + size:
                break
            body = bytes(self._buffer[start : start + size])
            del self._buffer[: start + size]
            self._pending.pop(head["id"]).response.set_result((head, body))
        return bool(said)
