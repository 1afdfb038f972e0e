"""A Harbor environment on our sandbox: `harbor run --env mlagentbench.adapters.harbor.environment:...`.

No daemon, no image and no root. It runs what `mlagentbench export --to harbor` writes, and cannot build a
Dockerfile.
"""

import asyncio
import os
import secrets
from collections.abc import Sequence
from contextlib import ExitStack
from fnmatch import fnmatch
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

from harbor.environments.base import BaseEnvironment, ExecResult
from harbor.environments.capabilities import EnvironmentCapabilities, EnvironmentResourceCapabilities

from mlagentbench.adapters.command_sandbox import CommandSandbox
from mlagentbench.adapters.harbor.definition import DEFINITION_FILE, EnvironmentDefinition
from mlagentbench.errors import UsageError
from mlagentbench.formatting import print_progress
from mlagentbench.records import Limits
from mlagentbench.runtimes.base import ensure_runtime
from mlagentbench.sandbox.base import SandboxSpec
from mlagentbench.sandbox.selection import choose_unprivileged_uid, create_sandbox
from mlagentbench.system.cache import temporary_dir
from mlagentbench.workspace.copy_out import copy_out
from mlagentbench.workspace.files import Workspace
from mlagentbench.workspace.tree import TreeWalker

WORKSPACE = "/workspace"
HARBOR_FOLDERS = ("/logs", "/solution", "/tests")  # writable, as in Harbor's containers
MAX_FILE_BYTES = 64 << 20  # of a file outside these folders


class BubblewrapEnvironment(BaseEnvironment):  # type: ignore[misc]  # Harbor is not installed here
    """One sandbox. All commands run as the user `agent`, even those for which Harbor asks for root.

    Args:
        gpu: The GPUs that commands may use: empty for none, "all", or numbers separated by commas
            (`--ek gpu=0`).
        **options: Harbor's own arguments.
    """

    def __init__(self, *args: Any, gpu: str = "", **options: Any) -> None:
        self._gpu = str(gpu)
        self._exit_stack = ExitStack()
        self._folders: dict[str, Workspace] = {}  # by path inside
        self._commands: CommandSandbox | None = None
        super().__init__(*args, **options)

    @staticmethod
    def type() -> str:
        """The name of this kind of environment."""
        return "mlagentbench-bwrap"

    @classmethod
    def resource_capabilities(cls) -> EnvironmentResourceCapabilities:
        """Memory is limited; cores are shared."""
        return EnvironmentResourceCapabilities(memory_limit=True)

    @property
    def capabilities(self) -> EnvironmentCapabilities:
        """What Harbor may ask for: there is never a network."""
        return EnvironmentCapabilities(disable_internet=True, gpus=bool(self._gpu))

    def validate_network_policy_support(self, network_policy: Any = None) -> None:
        """Refuse tasks that need a network."""
        policy = network_policy or self._network_policy
        if policy.network_mode.value != "no-network":
            raise ValueError(
                f"The environment {self.type()} has no network, and this task asks for network_mode"
                f" {policy.network_mode.value!r}. Use Harbor's docker environment for it."
            )
        super().validate_network_policy_support(network_policy)

    def _validate_definition(self) -> None:
        path = self.environment_dir / DEFINITION_FILE
        if not path.is_file():
            raise FileNotFoundError(
                f"{path} is missing: the environment {self.type()} runs tasks written by"
                " `mlagentbench export TASK --to harbor`, and cannot build other images."
            )
        self._definition = EnvironmentDefinition.parse(path.read_bytes(), str(path))
        unknown = set(self._definition.folders.values()) - {WORKSPACE, *HARBOR_FOLDERS}
        if unknown:
            raise UsageError(f"{path}: no such folder inside: {', '.join(sorted(unknown))}")

    async def start(self, force_build: bool) -> None:
        """Build the runtime if it is missing, and copy the task's files in."""
        await asyncio.to_thread(self._prepare)

    def _prepare(self) -> None:
        runtime = ensure_runtime(self._definition.runtime, print_progress)
        owner = choose_unprivileged_uid(secrets.token_hex(8))
        root = self._exit_stack.enter_context(temporary_dir())
        for path in (WORKSPACE, *HARBOR_FOLDERS):
            folder = root / path.removeprefix("/")
            folder.mkdir(mode=0o755)
            if owner is not None:
                os.chown(folder, owner, owner)
            self._folders[path] = Workspace(folder, owner=owner)
        for name, inside in self._definition.folders.items():
            self._folders[inside].copy_in(self.environment_dir / name)
        for path in self._mount_targets():
            self._create_folder(path)
        defaults = Limits()
        memory_mb, storage_mb = self._effective_memory_mb, self._effective_storage_mb
        spec = SandboxSpec(
            workspace=self._folders[WORKSPACE].root,
            runtime=runtime,
            limits=defaults.replace(
                memory_gb=memory_mb / 1024 if memory_mb else defaults.memory_gb,
                disk_gb=storage_mb / 1024 if storage_mb else defaults.disk_gb,
            ),
            writable_mounts=tuple((self._folders[path].root, path) for path in HARBOR_FOLDERS),
            uid=owner,
        )
        self._commands = CommandSandbox(create_sandbox("bwrap", self._gpu), spec)

    async def stop(self, delete: bool) -> None:
        """End all processes and remove the files, which Harbor has downloaded before."""
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        if self._commands:
            self._commands.close()
        self._exit_stack.close()

    async def exec(
        self,
        command: str,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_sec: int | None = None,
        user: str | int | None = None,
    ) -> ExecResult:
        """Run a command in bash, as the user `agent`."""
        result = await self._sandbox.execute(
            ["bash", "-c", command],
            cwd or self.task_env_config.workdir or WORKSPACE,
            self._merge_env(env),
            timeout_sec,
        )
        if result.timed_out:
            raise RuntimeError(f"Command timed out after {timeout_sec} seconds")
        return ExecResult(stdout=result.stdout, stderr=result.stderr, return_code=result.exit_code)

    async def upload_file(self, source_path: Path | str, target_path: str) -> None:
        """Copy a file in; it stays executable."""
        await self._upload(Path(source_path), target_path)

    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        """Copy the content of a folder in; links are skipped."""
        source = Path(source_dir)
        for path in sorted(source.rglob("*")):
            if path.is_file() and not path.is_symlink():
                await self._upload(path, str(PurePosixPath(target_dir, *path.relative_to(source).parts)))

    async def _upload(self, source: Path, target: str) -> None:
        if located := self._locate(target):
            folder, relative = located
            with source.open("rb") as file:
                folder.write_stream(relative, file, executable=os.access(source, os.X_OK))
            return
        await self._sandbox.write(target, await asyncio.to_thread(source.read_bytes))
        if os.access(source, os.X_OK):
            await self._sandbox.execute(["chmod", "+x", target])

    async def download_file(self, source_path: str, target_path: Path | str) -> None:
        """Copy a file out."""
        target = Path(target_path)
        if located := self._locate(source_path):
            await asyncio.to_thread(_copy_out, *located, target)
        else:
            target.write_bytes(await self._sandbox.read(source_path, MAX_FILE_BYTES))

    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None:
        """Copy the content of a folder out; links and special files are left out."""
        await self.download_dir_with_exclusions(source_dir=source_dir, target_dir=target_dir, exclude=[])

    async def download_dir_with_exclusions(
        self, *, source_dir: str, target_dir: Path | str, exclude: list[str]
    ) -> None:
        """The same without the paths that a pattern matches, which are relative to the folder."""
        located = self._locate(source_dir)
        if located is None:
            raise FileNotFoundError(f"Only folders in {', '.join(self._folders)} can be downloaded.")
        await asyncio.to_thread(
            partial(
                _copy_out, *located, Path(target_dir), [pattern.removeprefix("./") for pattern in exclude]
            )
        )

    @property
    def _sandbox(self) -> CommandSandbox:
        if self._commands is None:
            raise RuntimeError("The environment has not been started.")
        return self._commands

    def _create_folder(self, path: str) -> None:
        """Create a folder that Harbor expects, such as /logs/agent."""
        if located := self._locate(path):
            folder, relative = located
            with TreeWalker(folder.root) as walker:
                walker.open_folder(relative, create=True, owner=folder.owner)

    def _locate(self, path: str) -> tuple[Workspace, str] | None:
        """The folder that holds a path inside, and the rest of the path; None if it is elsewhere."""
        absolute = PurePosixPath(WORKSPACE, path)
        for inside, folder in self._folders.items():
            if absolute.is_relative_to(inside) and ".." not in absolute.parts:
                return folder, str(absolute.relative_to(inside))
        return None


def _copy_out(folder: Workspace, path: str, target: Path, patterns: Sequence[str] = ()) -> None:
    copy_out(folder.root, path, target, lambda name: any(fnmatch(name, pattern) for pattern in patterns))
