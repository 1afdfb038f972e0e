"""A sandbox that lives as long as an Inspect sample: commands share files and may run in the background."""

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

DRIVER_PATH = "/opt/command_server.py"
MAX_HEADER_BYTES = 1 << 20
RECEIVE_BYTES = 1 << 20  # read at once


class SandboxEnded(Exception):
    """The sandbox ended before it responded."""

    def __init__(self, reason: str, limit: Limit | None) -> None:
        super().__init__(reason)
        self.limit = limit


@dataclass
class PendingRequest:
    """A request to the sandbox, and the maximum size of its response."""

    number: int
    max_bytes: int
    response: "Future[Response]" = field(default_factory=Future)


class PersistentSandbox:
    """A running sandbox; requests may come from several threads."""

    def __init__(self, sandbox: Sandbox, spec: SandboxSpec) -> None:
        driver = (Path(command_server.__file__), DRIVER_PATH)
        self._sandbox = sandbox
        self._spec = replace(spec, mounts=(*spec.mounts, driver), stop_token=StopToken(), run_as_init=True)
        self._output = CommandOutput()
        self._process: SandboxProcess = sandbox.start(
            ["python", "-u", "-P", DRIVER_PATH], self._spec, stdin=subprocess.PIPE
        )
        assert self._process.child.stdin is not None
        self._channel = socket(fileno=os.dup(self._process.child.stdin.fileno()))
        self._buffer = bytearray()
        self._numbers = itertools.count(1)
        self._pending: dict[int, PendingRequest] = {}
        self._send_lock = threading.Lock()
        self.ended: SandboxEnded | None = None
        self._watcher = threading.Thread(target=self._watch, name="sandbox-watcher", daemon=True)
        self._watcher.start()

    def new_request(self, max_bytes: int = 0) -> PendingRequest:
        """Create a request whose response may have this many bytes."""
        return PendingRequest(next(self._numbers), max_bytes + MAX_HEADER_BYTES)

    def send(self, request: PendingRequest, header: dict[str, Any], data: bytes = b"") -> None:
        """Send a request; its future receives the response or SandboxEnded."""
        with self._send_lock:
            if self.ended:
                raise self.ended
            self._pending[request.number] = request
            with suppress(OSError):  # it has just ended; the watcher reports why
                self._channel.sendall(encode_message({**header, "id": request.number}, data))

    def cancel(self, request: PendingRequest) -> None:
        """Terminate a command whose result is no longer needed."""
        with self._send_lock:
            if not self.ended:
                with suppress(OSError):
                    self._channel.sendall(encode_message({"operation": "cancel", "id": request.number}))

    def close(self) -> None:
        """Terminate all processes in the sandbox."""
        self._spec.stop_token.request()
        self._watcher.join()

    def _watch(self) -> None:
        """Receive responses and enforce the limits until the sandbox ends."""
        ended = SandboxEnded("The sandbox was closed.", None)
        try:
            channel_fd: int | None = self._channel.fileno()
            while self._process.pump_output(self._output, math.inf, channel_fd) == "message":
                channel_fd = channel_fd if self._receive() else None  # closed: the driver is about to exit
            execution = self._process.finish(self._output)
            outcome = format_outcome(execution, self._spec.limits, 0)
            ended = SandboxEnded(f"{outcome} {self._output.text}".strip(), execution.limit)
        except Stopped:
            pass
        except Exception as error:  # noqa: BLE001 - all pending requests must be told
            ended = SandboxEnded(f"{type(error).__name__}: {error}", None)
        finally:
            self._shut_down(ended)

    def _shut_down(self, ended: SandboxEnded) -> None:
        try:
            self._process.close()
            self._sandbox.release_workspace(self._spec)
        finally:
            with self._send_lock:
                self.ended = ended
                self._channel.close()
            for request in self._pending.values():
                request.response.set_exception(ended)

    def _receive(self) -> bool:
        """Read from the driver, which is untrusted: responses larger than requested are a fault."""
        try:
            data = self._channel.recv(RECEIVE_BYTES, MSG_DONTWAIT)
        except ConnectionError:
            return False
        self._buffer += data
        while len(self._buffer) >= HEADER.size:
            header_size, body_size = HEADER.unpack_from(self._buffer)
            if header_size > MAX_HEADER_BYTES:
                raise SandboxFault("The sandbox driver sent a malformed response.")
            body_start = HEADER.size + header_size
            if len(self._buffer) < body_start:
                break
            header = json.loads(self._buffer[HEADER.size : body_start])
            if body_size > self._pending[header["id"]].max_bytes:
                raise SandboxFault("The sandbox driver sent a larger response than requested.")
            body_end = body_start + body_size
            if len(self._buffer) < body_end:
                break
            body = bytes(self._buffer[body_start:body_end])
            del self._buffer[:body_end]
            self._pending.pop(header["id"]).response.set_result((header, body))
        return bool(data)
