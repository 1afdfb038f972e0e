"""The Inspect sandbox provider `bwrap`: isolation without containers, for any Inspect task."""

import errno
import os
import secrets
import tomllib
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Literal, overload

import anyio
from inspect_ai.util import (
    ExecResult,
    OutputLimitExceededError,
    SandboxEnvironment,
    SandboxEnvironmentConfigType,
    SandboxEnvironmentLimits,
    SandboxUnavailableError,
    SandboxUserUnsupportedError,
    concurrency,
    sandboxenv,
)
from inspect_ai.util._subprocess import max_subprocesses_context_var
from pydantic import ValidationError

from mlagentbench.adapters.inspect.threads import run_in_thread
from mlagentbench.adapters.persistent_sandbox import PendingRequest, PersistentSandbox, SandboxEnded
from mlagentbench.errors import SandboxFault, UsageError
from mlagentbench.formatting import print_progress
from mlagentbench.records import Limits, Record
from mlagentbench.runtimes.base import Runtime, ensure_runtime
from mlagentbench.sandbox.base import SandboxSpec
from mlagentbench.sandbox.programs.command_server import Response
from mlagentbench.sandbox.selection import choose_unprivileged_uid, create_sandbox
from mlagentbench.system.cache import temporary_dir
from mlagentbench.task import describe_validation_error

SUPPORTED_USERS = ("agent", "1000")
RESPONSE_GRACE_S = 30  # after a command's timeout, until the sandbox itself counts as hung
OS_RELEASE = Path("/etc/os-release")  # Inspect installs its tools only on systems it recognizes
SIGKILL_EXIT_CODE = 137


class BwrapConfig(Record):
    """Settings of a sandbox: the runtime with its packages, GPUs and limits."""

    runtime: str = "tabular"
    gpu: str = ""
    memory_gb: float = 8.0
    disk_gb: float = 8.0
    files: int = 100_000
    processes: int = 256

    @property
    def limits(self) -> Limits:
        """The settings as limits of a run."""
        return Limits.model_validate(self.model_dump(exclude={"runtime", "gpu"}))

    @classmethod
    def from_inspect(cls, config: SandboxEnvironmentConfigType | None) -> "BwrapConfig":
        """Convert the setting of an Inspect task: None, the path of a TOML file, or a BwrapConfig."""
        if config is None or isinstance(config, cls):
            return config or cls()
        if not isinstance(config, str):
            raise UsageError(
                f"The sandbox bwrap needs a BwrapConfig or a TOML file, not {type(config).__name__}."
            )
        try:
            return cls.model_validate(tomllib.loads(Path(config).read_text(encoding="utf-8")))
        except (OSError, tomllib.TOMLDecodeError) as error:
            raise UsageError(f"{config} cannot be read: {error}") from error
        except ValidationError as error:
            raise UsageError(f"{config}: {describe_validation_error(error)}") from error


@sandboxenv(name="bwrap")
class InspectBubblewrapSandbox(SandboxEnvironment):
    """The sandbox of a sample. If a limit ends it, the next command starts a new one with the same files."""

    def __init__(self, config: BwrapConfig, runtime: Runtime) -> None:
        super().__init__()
        self._sandbox = create_sandbox("bwrap", config.gpu)
        self._exit_stack = ExitStack()
        workspace = self._exit_stack.enter_context(temporary_dir()) / "workspace"
        workspace.mkdir(mode=0o755)
        uid = choose_unprivileged_uid(secrets.token_hex(8))
        if uid is not None:
            os.chown(workspace, uid, uid)
        mounts = ((OS_RELEASE.resolve(), str(OS_RELEASE)),) if OS_RELEASE.is_file() else ()
        self._spec = SandboxSpec(
            workspace=workspace, runtime=runtime, limits=config.limits, uid=uid, mounts=mounts
        )
        self._persistent: PersistentSandbox | None = None
        self._start_lock = anyio.Lock()
        self._closed = False

    @classmethod
    async def task_init(cls, task_name: str, config: SandboxEnvironmentConfigType | None) -> None:
        """Build the runtime, once for all samples."""
        settings = BwrapConfig.from_inspect(config)
        create_sandbox("bwrap", settings.gpu)
        await run_in_thread(partial(ensure_runtime, settings.runtime, print_progress))

    @classmethod
    async def sample_init(
        cls, task_name: str, config: SandboxEnvironmentConfigType | None, metadata: dict[str, str]
    ) -> dict[str, SandboxEnvironment]:
        """Create the sandbox of a sample; it starts with the first command."""
        settings = BwrapConfig.from_inspect(config)
        runtime = await run_in_thread(partial(ensure_runtime, settings.runtime, print_progress))
        return {"default": await run_in_thread(partial(cls, settings, runtime))}

    @classmethod
    async def sample_cleanup(
        cls,
        task_name: str,
        config: SandboxEnvironmentConfigType | None,
        environments: dict[str, SandboxEnvironment],
        interrupted: bool,
    ) -> None:
        """Terminate all processes and remove the files."""
        with anyio.CancelScope(shield=True):
            for environment in environments.values():
                await run_in_thread(environment.as_type(cls).close)

    def close(self) -> None:
        """Terminate the sandbox and delete its files."""
        self._closed = True
        if self._persistent:
            self._persistent.close()
        self._exit_stack.close()

    async def exec(
        self,
        cmd: list[str],
        input: str | bytes | None = None,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        user: str | None = None,
        timeout: int | None = None,
        timeout_retry: bool = True,
        concurrency: bool = True,
    ) -> ExecResult[str]:
        """Run a command; at the timeout all its processes are killed, and its output is kept."""
        if user is not None and user not in SUPPORTED_USERS:
            raise SandboxUserUnsupportedError(
                f"Commands in this sandbox run as {SUPPORTED_USERS[0]}, not as {user}."
            )
        if any("\0" in text for text in (*cmd, cwd or "", *(env or {}), *(env or {}).values())):
            raise ValueError("embedded null byte")
        stdin = input.encode() if isinstance(input, str) else input
        max_bytes = SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE
        header = {
            "operation": "execute",
            "argv": cmd,
            "cwd": cwd,
            "env": env or {},
            "timeout_s": timeout,
            "max_bytes": max_bytes,
            "stdin": stdin is not None,
        }
        try:
            response, body = await self._request(header, stdin or b"", 2 * max_bytes, timeout, concurrency)
        except SandboxEnded as ended:
            if not ended.limit:
                raise SandboxUnavailableError(str(ended)) from ended
            return ExecResult(False, SIGKILL_EXIT_CODE, "", f"{ended}\n")
        stdout_size = response["sizes"][0]
        stdout, stderr = (part.decode(errors="replace") for part in (body[:stdout_size], body[stdout_size:]))
        if response["timed_out"]:
            error = TimeoutError(f"Command timed out after {timeout} seconds")
            error.truncated_output = stdout + stderr  # type: ignore[attr-defined]  # read by Inspect
            raise error
        return ExecResult(response["exit_code"] == 0, response["exit_code"], stdout, stderr)

    async def write_file(self, file: str, contents: str | bytes) -> None:
        """Write a file, and create its parent folders."""
        data = contents.encode() if isinstance(contents, str) else contents
        await self._request_file({"operation": "write", "path": file}, data, 0)

    @overload
    async def read_file(self, file: str, text: Literal[True] = True) -> str: ...

    @overload
    async def read_file(self, file: str, text: Literal[False]) -> bytes: ...

    async def read_file(self, file: str, text: bool = True) -> str | bytes:
        """Read a file, unless it is larger than Inspect allows."""
        max_bytes = SandboxEnvironmentLimits.MAX_READ_FILE_SIZE
        header = {"operation": "read", "path": file, "max_bytes": max_bytes}
        response, body = await self._request_file(header, b"", max_bytes)
        if response["too_large"]:
            raise OutputLimitExceededError(SandboxEnvironmentLimits.MAX_READ_FILE_SIZE_STR, None)
        return body.decode() if text else body

    async def _request_file(self, header: dict[str, Any], data: bytes, max_bytes: int) -> Response:
        try:
            return await self._request(header, data, max_bytes, None, False)
        except SandboxEnded as ended:
            if ended.limit == "disk":
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), header["path"]) from ended
            raise SandboxUnavailableError(str(ended)) from ended

    async def _request(
        self, header: dict[str, Any], data: bytes, max_bytes: int, timeout_s: int | None, counted: bool
    ) -> Response:
        """Send a request, starting a sandbox if none runs; file system errors inside are raised here."""
        if counted:
            async with concurrency("subprocesses", max_subprocesses_context_var.get(), resizable=True):
                return await self._request(header, data, max_bytes, timeout_s, False)
        sandbox = await self._ensure_running()
        request = sandbox.new_request(max_bytes)
        try:
            response, body = await run_in_thread(
                partial(_send_and_wait, sandbox, request, header, data, timeout_s)
            )
        except TimeoutError as error:
            await run_in_thread(sandbox.close)
            raise SandboxUnavailableError("The sandbox does not respond.") from error
        except anyio.get_cancelled_exc_class():
            with anyio.CancelScope(shield=True):
                await run_in_thread(partial(sandbox.cancel, request))
            raise
        if "errno" in response:
            raise OSError(response["errno"], os.strerror(response["errno"]), response["path"])
        return response, body

    async def _ensure_running(self) -> PersistentSandbox:
        async with self._start_lock:
            if self._closed:
                raise SandboxUnavailableError("The sandbox is closed.")
            if self._persistent is None or self._persistent.ended:
                try:
                    self._persistent = await run_in_thread(
                        partial(PersistentSandbox, self._sandbox, self._spec)
                    )
                except (SandboxFault, OSError) as fault:
                    raise SandboxUnavailableError(str(fault)) from fault
            return self._persistent

    def default_polling_interval(self) -> float:
        """A short interval: requests are cheap, since they do not go through a container engine."""
        return 0.2

    @classmethod
    def config_deserialize(cls, config: dict[str, Any]) -> BwrapConfig:
        """Restore the settings from a log."""
        return BwrapConfig.model_validate(config)


def _send_and_wait(
    sandbox: PersistentSandbox,
    request: PendingRequest,
    header: dict[str, Any],
    data: bytes,
    timeout_s: int | None,
) -> Response:
    sandbox.send(request, header, data)
    return request.response.result(None if timeout_s is None else timeout_s + RESPONSE_GRACE_S)
