"""A sandbox in which another framework runs its commands: Harbor's environments, verifiers' runtimes."""

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from mlagentbench.adapters.persistent_sandbox import PendingRequest, PersistentSandbox, SandboxEnded
from mlagentbench.errors import SandboxFault
from mlagentbench.sandbox.base import Sandbox, SandboxSpec
from mlagentbench.sandbox.programs.command_server import Response

RESPONSE_GRACE_S = 30  # after a command's timeout, until the sandbox itself counts as hung
MAX_OUTPUT_BYTES = 10 << 20  # kept of each stream, from its end
SIGKILL_EXIT_CODE = 137


class CommandResult(NamedTuple):
    """How a command ended, and the end of its output."""

    exit_code: int
    stdout: str
    stderr: str
    timed_out: bool = False


class CommandSandbox:
    """Runs commands that share files and may leave processes in the background, until it is closed.

    It starts with the first command. If a limit ends it, the next command starts a new one with the same
    workspace. All methods are for one asyncio event loop; several commands may run at the same time.

    Args:
        sandbox: How commands are isolated.
        spec: What they may see and use. It may be replaced until the first command.
    """

    def __init__(self, sandbox: Sandbox, spec: SandboxSpec) -> None:
        self.spec = spec
        self._sandbox = sandbox
        self._persistent: PersistentSandbox | None = None
        self._start_lock = asyncio.Lock()
        self._closed = False

    @property
    def is_running(self) -> bool:
        """Whether a command has started it, and neither a limit nor `close` has ended it."""
        return self._persistent is not None and self._persistent.ended is None

    async def execute(
        self,
        argv: Sequence[str],
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> CommandResult:
        """Run a command; at the timeout, or if the caller is cancelled, all its processes are killed.

        Raises:
            SandboxFault: The sandbox cannot be started or does not respond.
            OSError: The working directory does not exist.
        """
        header = {
            "operation": "execute",
            "argv": list(argv),
            "cwd": cwd,
            "env": dict(env or {}),
            "timeout_s": timeout_s,
            "max_bytes": MAX_OUTPUT_BYTES,
            "stdin": False,
        }
        try:
            response, body = await self._request(header, b"", 2 * MAX_OUTPUT_BYTES, timeout_s)
        except SandboxEnded as ended:
            if not ended.limit:
                raise SandboxFault(str(ended)) from ended
            return CommandResult(SIGKILL_EXIT_CODE, "", f"{ended}\n")
        size = response["sizes"][0]
        stdout, stderr = (part.decode(errors="replace") for part in (body[:size], body[size:]))
        return CommandResult(response["exit_code"], stdout, stderr, response["timed_out"])

    async def read(self, path: str, max_bytes: int) -> bytes:
        """Read a file inside.

        Raises:
            OSError: It cannot be read, or is larger than `max_bytes`.
        """
        header = {"operation": "read", "path": path, "max_bytes": max_bytes}
        response, body = await self._request_file(header, b"", max_bytes)
        if response["too_large"]:
            raise OSError(f"{path} has more than {max_bytes:,} bytes")
        return body

    async def write(self, path: str, data: bytes) -> None:
        """Write a file inside, and create its parent folders.

        Raises:
            OSError: It cannot be written.
        """
        await self._request_file({"operation": "write", "path": path}, data, 0)

    async def restart(self) -> None:
        """End all processes; the next command starts a new sandbox with the same workspace."""
        if self._persistent:
            await asyncio.to_thread(self._persistent.close)

    def close(self) -> None:
        """End all processes. May be called from any thread, and repeatedly."""
        self._closed = True
        if self._persistent:
            self._persistent.close()

    async def _request_file(self, header: dict[str, Any], data: bytes, max_bytes: int) -> Response:
        try:
            return await self._request(header, data, max_bytes, None)
        except SandboxEnded as ended:
            raise SandboxFault(str(ended)) from ended

    async def _request(
        self, header: dict[str, Any], data: bytes, max_bytes: int, timeout_s: float | None
    ) -> Response:
        sandbox = await self._ensure_running()
        request = sandbox.new_request(max_bytes)
        await asyncio.to_thread(sandbox.send, request, header, data)
        try:
            response, body = await self._wait_for_response(request, timeout_s)
        except TimeoutError as error:
            await asyncio.to_thread(sandbox.close)
            raise SandboxFault("The sandbox does not respond.") from error
        except asyncio.CancelledError:
            sandbox.cancel(request)
            raise
        if "errno" in response:
            raise OSError(response["errno"], header["operation"], response["path"])
        return response, body

    @staticmethod
    async def _wait_for_response(request: PendingRequest, timeout_s: float | None) -> Response:
        # Shielded: the future is completed by another thread, even if nobody waits for it any more.
        response = asyncio.shield(asyncio.wrap_future(request.response))
        return await asyncio.wait_for(response, None if timeout_s is None else timeout_s + RESPONSE_GRACE_S)

    async def _ensure_running(self) -> PersistentSandbox:
        async with self._start_lock:
            if self._closed:
                raise SandboxFault("The sandbox is closed.")
            if self._persistent is None or self._persistent.ended:
                self._persistent = await asyncio.to_thread(
                    partial(PersistentSandbox, self._sandbox, self.spec)
                )
            return self._persistent
