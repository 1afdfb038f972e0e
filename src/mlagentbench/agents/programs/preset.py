"""Presets: programs that people use, installed, configured and pointed at the run's model.

A preset is a file with a class of at most forty lines: the packages and their version, the command line,
variables, and configuration files. Its lock is in `locked/`; `make lock` writes it.
"""

import re
from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar

from blake3 import blake3

from mlagentbench.agents.base import Agent
from mlagentbench.agents.command import Command, split_command
from mlagentbench.errors import UsageError
from mlagentbench.formatting import print_progress
from mlagentbench.records import ProgramInfo
from mlagentbench.runtimes.interpreters import find_interpreter
from mlagentbench.runtimes.npm_programs import ensure_npm_program, lock_npm_packages
from mlagentbench.runtimes.programs import InstalledProgram
from mlagentbench.runtimes.python_programs import ensure_python_program, lock_packages

LOCKS_FOLDER = Path(__file__).parent / "locked"
VERSION = re.compile(r"\w[\w.+-]*", re.ASCII)


class Preset(Command):
    """A known external program.

    Attributes:
        default_version: The version that its lock is for.
        command_line: As the option `command` of the agent `command`; {program} is its executable.
        variables: Environment variables.
        files: Files in its home folder, by path.
    """

    default_version: ClassVar[str]
    command_line: ClassVar[str]
    variables: ClassVar[Mapping[str, str]] = MappingProxyType({})
    files: ClassVar[Mapping[str, str]] = MappingProxyType({})

    def __init__(self, seed: int = 0, version: str = "", arguments: str = "") -> None:
        """Create the agent.

        Args:
            seed: The seed.
            version: The version of the program; the default is the one that was tested.
            arguments: More arguments for its command line.
        """
        Agent.__init__(self, seed)
        self.version = version or self.default_version
        if not VERSION.fullmatch(self.version):
            raise UsageError(f"{self.version!r} is not a version.")
        self.command = [
            *split_command(self.command_line),
            *(split_command(arguments) if arguments else []),
        ]
        self.environment = {"DO_NOT_TRACK": "1", **self.variables}
        self.program_folder = None

    @classmethod
    def agent_name(cls) -> str:
        """Its name on the command line."""
        return cls.__module__.rpartition(".")[2].replace("_", "-")

    @classmethod
    def lock_file(cls) -> Path:
        """The lock of its default version."""
        return LOCKS_FOLDER / f"{cls.agent_name()}.lock"

    @abstractmethod
    def install(self) -> InstalledProgram:
        """Install the program; it is cached."""

    def check_sandbox(self, sandbox: str) -> None:
        """Refuse to run without a sandbox."""
        if sandbox == "none":
            raise UsageError(f"{self.agent_name()} runs in a sandbox only: use --sandbox bwrap or podman.")

    def prepare(self) -> None:
        """Install the program and identify it."""
        self.installed = self.install()
        self.program_lock = self.installed.lock
        digest = blake3(self.installed.lock.encode()).hexdigest()
        self.program = ProgramInfo(name=self.agent_name(), version=self.version, hash=digest)

    def write_home(self, folder: Path) -> None:
        """Write the configuration files."""
        for name, text in self.files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)


class NpmPreset(Preset):
    """A program from npm.

    Attributes:
        npm_packages: Versions of packages by name, with {version}.
        executable: Its main file below node_modules; a pattern, if the path depends on the platform.
        needs_node: Whether Node runs it. Otherwise it is native, and there is one package for each platform.
    """

    npm_packages: ClassVar[Mapping[str, str]]
    executable: ClassVar[str]
    needs_node: ClassVar[bool] = False

    def resolve_lock(self) -> str:
        """The package-lock.json of its version."""
        kind = "dependencies" if self.needs_node else "optionalDependencies"
        packages = {name: text.replace("{version}", self.version) for name, text in self.npm_packages.items()}
        return lock_npm_packages(self.agent_name(), {kind: packages}, print_progress)

    def install(self) -> InstalledProgram:
        """Install it with npm."""
        is_default = self.version == self.default_version
        lock = self.lock_file().read_text() if is_default else self.resolve_lock()
        return ensure_npm_program(self.agent_name(), lock, self.executable, self.needs_node, print_progress)


class PythonPreset(Preset):
    """A program from PyPI.

    Attributes:
        python_packages: Its packages with {version}.
        packages_alone: More packages, which are installed without what they require.
        python_version: The Python that it needs, as in `find_interpreter`.
    """

    python_packages: ClassVar[tuple[str, ...]]
    packages_alone: ClassVar[tuple[str, ...]] = ()
    python_version: ClassVar[str] = ""

    def install(self) -> InstalledProgram:
        """Install it with pip."""
        interpreter = find_interpreter(self.python_version)
        if self.version == self.default_version:
            return ensure_python_program(self.lock_file().read_text(), interpreter, print_progress)
        lock = ""
        for packages, options in ((self.python_packages, ()), (self.packages_alone, ("--no-deps",))):
            pinned = [package.replace("{version}", self.version) for package in packages]
            lock += lock_packages(pinned, interpreter, print_progress, options) if pinned else ""
        return ensure_python_program(lock, interpreter, print_progress)
