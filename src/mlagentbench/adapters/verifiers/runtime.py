"""A runtime of verifiers on our sandbox. It sees the workspace of one run, and no answers."""

import asyncio
import re
import tomllib
from contextlib import ExitStack
from dataclasses import replace
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from urllib.parse import urlsplit

from verifiers.v1 import ApptainerConfig, ProgramResult, SandboxError
from verifiers.v1 import Runtime as VerifiersRuntime
from verifiers.v1.runtimes import ApptainerRuntimeInfo

from mlagentbench.adapters.command_sandbox import CommandSandbox
from mlagentbench.adapters.verifiers.relay import PortRelay
from mlagentbench.errors import Fault
from mlagentbench.formatting import print_progress
from mlagentbench.records import Call, Result
from mlagentbench.runner.session import Session
from mlagentbench.runtimes.interpreters import find_interpreter
from mlagentbench.runtimes.python_programs import ensure_python_program, lock_packages
from mlagentbench.sandbox.programs import endpoint_bridge
from mlagentbench.system.cache import temporary_dir

PROGRAM_PACKAGES = "/opt/program-packages"
PROGRAM_PYTHON = f"{PROGRAM_PACKAGES}/bin/python"
SIGNAL_EXIT_CODES = range(129, 160)
RELAY_FOLDER, BRIDGE = "/opt/relay", "/opt/bridge.py"
MAX_READ_BYTES = 64 << 20
SCRIPT_METADATA = re.compile(r"^# /// script\n((?:#.*\n)*?)# ///$", re.MULTILINE)


class BubblewrapRuntime(VerifiersRuntime):  # type: ignore[misc]  # verifiers is not installed here
    """The sandbox of one episode.

    verifiers' own records can only name its own kinds of runtimes; this one is recorded as the closest,
    "apptainer", with an id that tells.

    Args:
        session: The run whose workspace the episode works in. It is graded by `finish`.
    """

    def __init__(self, session: Session) -> None:
        super().__init__(session.folder.name)
        self.session = session
        self.config = nominal_config(session.setup.runtime.name)
        self.info = ApptainerRuntimeInfo(
            **self.config.model_dump(), id=f"mlagentbench bwrap {session.folder}"
        )
        self._exit_stack = ExitStack()
        self._finish_lock = asyncio.Lock()

    async def start(self) -> None:
        """Create the sandbox; it starts with the first command."""
        folder = self._exit_stack.enter_context(temporary_dir()) / "relay"
        folder.mkdir(mode=0o755)
        self._relay = PortRelay(folder)
        spec = self.session.env.context.sandbox_spec()
        bridge = (Path(endpoint_bridge.__file__), BRIDGE)
        spec = replace(spec, mounts=(*spec.mounts, bridge, (folder, RELAY_FOLDER)))
        self._commands = CommandSandbox(self.session.setup.sandbox, spec)

    def cleanup(self) -> None:
        """End all processes."""
        if hasattr(self, "_commands"):
            self._relay.close()
            self._commands.close()
        self._exit_stack.close()

    async def run(self, argv: list[str], env: dict[str, str]) -> ProgramResult:
        """Run a command in the workspace."""
        try:
            result = await self._commands.execute(argv, None, self.process_env(env))
        except (Fault, OSError) as error:
            raise SandboxError(str(error)) from error
        exit_code = result.exit_code
        # The policy's commands can kill the agent's program, and so can a limit that they exceed. As an error
        # it would leave the episode without a reward, and a policy could choose which episodes count.
        if exit_code in SIGNAL_EXIT_CODES and argv[0] == PROGRAM_PYTHON and self._relay.answered:
            exit_code = 0
        return ProgramResult(exit_code, result.stdout, result.stderr)

    async def run_background(self, argv: list[str], env: dict[str, str], log: str) -> None:
        """Start a command that runs until the end of the episode."""
        await self.run(["sh", "-c", 'log=$1; shift; "$@" > "$log" 2>&1 &', "sh", log, *argv], env)

    async def _read(self, path: str, max_bytes: int | None = None) -> bytes:
        if max_bytes is not None:
            return bytes(await super()._read(path, max_bytes))
        try:
            return await self._commands.read(path, MAX_READ_BYTES)
        except (Fault, OSError) as error:
            raise SandboxError(f"read {path!r}: {error}") from error

    async def write(self, path: str, data: bytes) -> None:
        """Write a file."""
        try:
            await self._commands.write(path, data)
        except (Fault, OSError) as error:
            raise SandboxError(f"write {path!r}: {error}") from error

    async def prepare_uv_script(
        self, script: str | bytes, env: dict[str, str] | None = None, *, activate: bool = True
    ) -> list[str]:
        """Mount the packages that a script declares: nothing can be installed inside."""
        text = script.decode() if isinstance(script, bytes) else script
        await self._mount_packages(await asyncio.to_thread(install_dependencies, text))
        path = f"{self.scripts_dir}/{sha256(text.encode()).hexdigest()}.py"
        await self.write(path, text.encode())
        return [PROGRAM_PYTHON, path]

    async def _mount_packages(self, folder: Path) -> None:
        mount = (folder, PROGRAM_PACKAGES)
        if mount in self._commands.spec.mounts:
            return
        if any(inside == PROGRAM_PACKAGES for _, inside in self._commands.spec.mounts):
            raise SandboxError("One episode cannot run two programs with different packages.")
        await self._commands.restart()
        self._commands.spec = replace(self._commands.spec, mounts=(*self._commands.spec.mounts, mount))

    async def prepare_execution(self, routes: list[str] | None) -> None:
        """Make the ports of the policy and of its tools reachable under the same addresses, and no others."""
        for port in {urlsplit(url).port for url in routes or ()} - self._relay.ports - {None}:
            assert port is not None
            socket = f"{RELAY_FOLDER}/{await self._relay.open(port)}"
            await self.run_background(
                ["python", "-P", BRIDGE, socket, str(port), "sleep", "infinity"], {}, "/dev/null"
            )
            # Until it listens: the harness may not try again.
            probe = f"until (: < /dev/tcp/127.0.0.1/{port}) 2> /dev/null; do :; done"
            await self.run(["timeout", "30", "bash", "-c", probe], {})

    async def finish(self, trace_id: str) -> Result:
        """End all processes, submit the workspace and grade it; a second call returns the same result."""
        async with self._finish_lock:
            return await asyncio.to_thread(self._finish, trace_id)

    def _finish(self, trace_id: str) -> Result:
        if self.session.result is None:
            self._commands.close()
            work = {"framework": "verifiers", "record": trace_id}
            self.session.step(Call(action="Outside Work", args=work))
            if not self.session.done:
                self.session.step(Call(action="Final Answer", args={"final_answer": "the episode ended"}))
        return self.session.finish()


def nominal_config(runtime: str) -> ApptainerConfig:
    """What verifiers records as the configuration of the runtime."""
    return ApptainerConfig(image=f"mlagentbench-bwrap/{runtime}", workdir="/workspace")


def install_dependencies(script: str) -> Path:
    """Install the packages that a script declares, locked and cached, and return their environment."""
    interpreter = find_interpreter()
    lock = lock_packages(read_dependencies(script), interpreter, print_progress)
    return ensure_python_program(lock, interpreter, print_progress).mounts[-1][0]


def read_dependencies(script: str) -> list[str]:
    """The packages in a script's metadata, with the versions that are installed beside verifiers."""
    found = SCRIPT_METADATA.search(script)
    metadata = tomllib.loads("\n".join(line[1:] for line in found[1].splitlines())) if found else {}
    return [_pin(package) for package in metadata.get("dependencies", [])]


def _pin(package: str) -> str:
    if not re.fullmatch(r"[\w.-]+", package):
        return package
    try:
        return f"{package}=={version(package)}"
    except PackageNotFoundError:
        return package
