"""The sandbox provider `bwrap`: isolation without containers, for any Inspect task."""

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

from mlagentbench.adapters.inspect.persistent_sandbox import PendingRequest, PersistentSandbox, SandboxEnded
from mlagentbench.adapters.inspect.threads import run_in_thread
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
RESPONSE_GRACE_S = 30  # seconds after a command's time until the sandbox itself is taken for dead
OS_RELEASE = Path("/etc/os-release")  # Inspect brings its tools only where it knows the system
SIGKILL_EXIT_CODE = 137  # the exit code of who was killed


class BwrapConfig(Record):
    """What a sandbox has: the packages of a runtime, GPUs, limits."""

    runtime: str = "tabular"
    gpu: str = ""
    memory_gb: float = 8.0
    disk_gb: float = 8.0
    files: int = 100_000
    processes: int = 256

    @property
    def limits(self) -> Limits:
        """The same as a run's limits."""
        return Limits.model_validate(self.model_dump(exclude={"runtime", "gpu"}))

    @classmethod
    def from_inspect(cls, config: SandboxEnvironmentConfigType | None) -> "BwrapConfig":
        """From what an Inspect task says: nothing, a TOML file, or this."""
        if config is None or isinstance(config, cls):
            return config or cls()
        if not isinstance(config, str):
            raise UsageError(
                f"the sandbox bwrap takes a BwrapConfig or a TOML file, and not a {type(config).__name__}"
            )
        try:
            return cls.model_validate(tomllib.loads(Path(config).read_text(encoding="utf-8")))
        except (OSError, tomllib.TOMLDecodeError) as error:
            raise UsageError(f"{config} cannot be read: {error}") from error
        except ValidationError as error:
            raise UsageError(f"{config}: {describe_validation_error(error)}") from error


@sandboxenv(name="bwrap")
class BubblewrapSandbox(SandboxEnvironment):
    """One sandbox of one sample; when a limit ends it, the next command finds a new one with the same workspace."""

    def __init__(self, config: BwrapConfig, runtime: Runtime) -> None:
        super().__init__()
        self._sandbox = create_sandbox("bwrap", config.gpu)
        self._exit_stack = ExitStack()
        place = self._exit_stack.enter_context(temporary_dir()) / "workspace"
        place.mkdir(mode=0o755)
        owner = choose_unprivileged_uid(secrets.token_hex(8))
        if owner is not None:
            os.chown(place, owner, owner)
        named = ((OS_RELEASE.resolve(), str(OS_RELEASE)),) if OS_RELEASE.is_file() else ()
        self._box = SandboxSpec(
            workspace=place, runtime=runtime, limits=config.limits, uid=owner, mounts=named
        )
        self._persistent: PersistentSandbox | None = None
        self._start_lock = anyio.Lock()
        self._closed = False

    @classmethod
    async def task_init(cls, task_name: str, config: SandboxEnvironmentConfigType | None) -> None:
        """Build what is missing, once for all samples."""
        asked = BwrapConfig.from_inspect(config)
        create_sandbox("bwrap", asked.gpu)
        await run_in_thread(partial(ensure_runtime, asked.runtime, print_progress))

    @classmethod
    async def sample_init(
        cls, task_name: str, config: SandboxEnvironmentConfigType | None, metadata: dict[str, str]
    ) -> dict[str, SandboxEnvironment]:
        """One sandbox, which begins with its first command."""
        asked = BwrapConfig.from_inspect(config)
        runtime = await run_in_thread(partial(ensure_runtime, asked.runtime, print_progress))
        return {"default": await run_in_thread(partial(cls, asked, runtime))}

    @classmethod
    async def sample_cleanup(
        cls,
        task_name: str,
        config: SandboxEnvironmentConfigType | None,
        environments: dict[str, SandboxEnvironment],
        interrupted: bool,
    ) -> None:
        """End all that runs, and remove the files."""
        with anyio.CancelScope(shield=True):
            for environment in environments.values():
                await run_in_thread(environment.as_type(cls).close)

    def close(self) -> None:
        """End it; nothing of it is kept."""
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
        """Run a command; when its time is over it ends with all that it started, and what it printed is kept."""
        if user is not None and user not in SUPPORTED_USERS:
            raise SandboxUserUnsupportedError(
                f"all commands in this sandbox run as {SUPPORTED_USERS[0]}, and none as {user}"
            )
        if any("\0" in word for word in (*cmd, cwd or "", *(env or {}), *(env or {}).values())):
            raise ValueError("embedded null byte")
        given = input.encode() if isinstance(input, str) else input
        most = SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE
        asked = {"do": "execute", "argv": cmd, "cwd": cwd, "env": env or {}, "seconds": timeout, "most": most}
        asked["stdin"] = given is not None
        try:
            head, body = await self._request(asked, given or b"", 2 * most, timeout, concurrency)
        except SandboxEnded as gone:
            if not gone.limit:
                raise SandboxUnavailableError(str(gone)) from gone
            return ExecResult(False, SIGKILL_EXIT_CODE, "", f"{gone}\n")
        out, err = (
            part.decode(errors="replace") for part in (body[: head["sizes"][0]], body[head["sizes"][0] :])
        )
        if head["late"]:
            late = TimeoutError(f"Command timed out after {timeout} seconds")
            late.truncated_output = out + err  # type: ignore[attr-defined]  # where Inspect looks for it
            raise late
        return ExecResult(head["code"] == 0, head["code"], out, err)

    async def write_file(self, file: str, contents: str | bytes) -> None:
        """Put a file in place, and the folders above it."""
        given = contents.encode() if isinstance(contents, str) else contents
        await self._request_file({"do": "write", "path": file}, given, 0)

    @overload
    async def read_file(self, file: str, text: Literal[True] = True) -> str: ...

    @overload
    async def read_file(self, file: str, text: Literal[False]) -> bytes: ...

    async def read_file(self, file: str, text: bool = True) -> str | bytes:
        """The whole of a file, if it is not longer than Inspect allows."""
        most = SandboxEnvironmentLimits.MAX_READ_FILE_SIZE
        head, body = await self._request_file({"do": "read", "path": file, "most": most}, b"", most)
        if head["long"]:
            raise OutputLimitExceededError(SandboxEnvironmentLimits.MAX_READ_FILE_SIZE_STR, None)
        return body.decode() if text else body

    async def _request_file(self, asked: dict[str, Any], given: bytes, most: int) -> Response:
        try:
            return await self._request(asked, given, most, None, False)
        except SandboxEnded as gone:
            if gone.limit == "disk":
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), asked["path"]) from gone
            raise SandboxUnavailableError(str(gone)) from gone

    async def _request(
        self, asked: dict[str, Any], given: bytes, most: int, seconds: int | None, counted: bool
    ) -> Response:
        """Ask the sandbox that there is, or a new one; an error of the file system is raised as it was inside."""
        if counted:
            async with concurrency("subprocesses", max_subprocesses_context_var.get(), resizable=True):
                return await self._request(asked, given, most, seconds, False)
        resident = await self._ensure_running()
        question = resident.new_request(most)
        try:
            head, body = await run_in_thread(
                partial(_send_and_wait, resident, question, asked, given, seconds)
            )
        except TimeoutError as error:
            await run_in_thread(resident.close)
            raise SandboxUnavailableError("the sandbox does not answer any more") from error
        except anyio.get_cancelled_exc_class():
            with anyio.CancelScope(shield=True):
                await run_in_thread(partial(resident.cancel, question))
            raise
        if "errno" in head:
            raise OSError(head["errno"], os.strerror(head["errno"]), head["path"])
        return head, body

    async def _ensure_running(self) -> PersistentSandbox:
        async with self._start_lock:
            if self._closed:
                raise SandboxUnavailableError("the sandbox is closed")
            if self._persistent is None or self._persistent.ended:
                try:
                    self._persistent = await run_in_thread(
                        partial(PersistentSandbox, self._sandbox, self._box)
                    )
                except (SandboxFault, OSError) as fault:
                    raise SandboxUnavailableError(str(fault)) from fault
            return self._persistent

    def default_polling_interval(self) -> float:
        """Asking costs little: nothing lies between."""
        return 0.2

    @classmethod
    def config_deserialize(cls, config: dict[str, Any]) -> BwrapConfig:
        """As a log holds it."""
        return BwrapConfig.model_validate(config)


def _send_and_wait(
    resident: PersistentSandbox,
    question: PendingRequest,
    asked: dict[str, Any],
    given: bytes,
    seconds: int | None,
) -> Response:
    resident.send(question, asked, given)
    return question.response.result(None if seconds is None else seconds + RESPONSE_GRACE_S)
