"""Sandboxes in podman or docker, for users who must run images; the guarantees are those of bubblewrap."""

import json
import os
import resource
import shutil
import subprocess
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

from blake3 import blake3

from mlagentbench.errors import SandboxFault, UsageError
from mlagentbench.records import BYTES_PER_GB
from mlagentbench.runtimes.base import PYTHON_NAME
from mlagentbench.sandbox import handshake
from mlagentbench.sandbox.base import Sandbox, SandboxProcess, SandboxSpec
from mlagentbench.sandbox.cgroups import Cgroup
from mlagentbench.sandbox.container_options import CONTROL_FOLDER, build_mount_point_image, engine_options
from mlagentbench.sandbox.container_process import (
    INIT_FILE,
    create_control_folder,
    start_container,
    start_container_command,
)
from mlagentbench.sandbox.limit_monitor import require_free_disk

MAX_OPEN_FILES = 4096  # per process
DEFAULT_MAX_PROCESSES = 32768  # where the machine itself sets no lower limit
ENGINE_PROCESSES = 64  # and threads, of rootless podman itself, with room to spare


class ContainerSandbox(Sandbox):
    """One container per command, from an image, a root file system, or the host's own programs."""

    required_variables = (
        "CONTAINERS_CONF",
        "CONTAINERS_STORAGE_CONF",
        "DOCKER_CONFIG",
        "DOCKER_CONTEXT",
        "DOCKER_HOST",
        "TMPDIR",
        "XDG_RUNTIME_DIR",
    )

    def __init__(self, engine: str, image: str = "", gpu: str = "") -> None:
        super().__init__(gpu)
        self.engine, self.image = engine, image
        self.name = f"{engine}:{image}" if image else engine
        if not shutil.which(engine):
            raise UsageError(
                f"{engine} is not installed on this machine. Install it, or use --sandbox bwrap, "
                "which needs no container engine."
            )

    def start(
        self, argv: Sequence[str], spec: SandboxSpec, stdin: int = subprocess.DEVNULL
    ) -> SandboxProcess:
        """Start a command in a new container."""
        if os.geteuid() == 0 and not spec.uid:
            raise SandboxFault("The harness runs as root: a sandbox needs the uid of an unprivileged user.")
        require_free_disk(spec.workspace)
        cgroup = Cgroup(int(spec.limits.memory_gb * BYTES_PER_GB), spec.limits.processes)
        try:
            with create_control_folder(spec) as control_folder:
                command = self._engine_command(spec, control_folder, cgroup)
                container = start_container(command, control_folder, self._engine_environment)
            wrapped = handshake.wrap_command(argv, stdin)
            return start_container_command(container, spec, cgroup, wrapped, stdin)
        except BaseException:
            cgroup.close()
            raise

    def _engine_command(self, spec: SandboxSpec, control_folder: Path, cgroup: Cgroup) -> list[str]:
        options = [*engine_options(spec, control_folder, self.engine, self.gpu, not self.image)]
        options += self._limit_options(spec, cgroup)
        libraries = spec.runtime.environment.get("LD_LIBRARY_PATH")
        options += ["--env", f"LD_LIBRARY_PATH={libraries}"] if libraries else []
        python = f"{spec.runtime.prefix_inside}/bin/{PYTHON_NAME}"
        init = [python, "-ISB", f"{CONTROL_FOLDER}/{INIT_FILE}"]
        return [self.engine, "run", *options, *self._image_arguments, *init]

    @cached_property
    def _image_arguments(self) -> list[str]:
        """The arguments that name the image or root file system."""
        if self.image.startswith("/"):
            if self.engine != "podman":
                raise UsageError(
                    f"{self.engine} cannot use a folder as a root file system: import it as an image first."
                )
            return ["--rootfs", f"{self.image}:O"]
        if self.image:
            if self._run_engine("image", "inspect", self.image).returncode != 0:
                raise UsageError(
                    f"{self.engine} has no image {self.image}. Get it with: {self.engine} pull {self.image}"
                )
            return [self.image]
        archive = build_mount_point_image()
        name = f"localhost/mlagentbench-host:{blake3(archive).hexdigest(length=8)}"
        if self._run_engine("image", "inspect", name).returncode != 0:
            imported = self._run_engine("import", "-", name, stdin=archive)
            if imported.returncode != 0:
                reason = imported.stderr.decode("utf-8", "replace").strip()
                raise SandboxFault(f"{self.engine} cannot import an image: {reason}")
        return [name]

    def _limit_options(self, spec: SandboxSpec, cgroup: Cgroup) -> list[str]:
        """Resource limits; without a cgroup of our own, memory and processes are limited by the engine."""
        # Always given explicitly, because the defaults of an engine may exceed what it is allowed to set.
        hard = resource.getrlimit(resource.RLIMIT_NPROC)[1]
        nproc = DEFAULT_MAX_PROCESSES if hard == resource.RLIM_INFINITY else min(DEFAULT_MAX_PROCESSES, hard)
        processes = spec.limits.processes
        if not cgroup.folders and not self._engine_can_limit:
            # More than allowed, so that the limit monitor can tell a fork bomb: the engine counts as well.
            nproc = min(nproc, processes + ENGINE_PROCESSES)
        ulimits = ["--ulimit", f"nproc={nproc}:{nproc}"]
        ulimits += ["--ulimit", f"nofile={MAX_OPEN_FILES}:{MAX_OPEN_FILES}"]
        if cgroup.folders or not self._engine_can_limit:
            return ulimits
        memory = str(int(spec.limits.memory_gb * BYTES_PER_GB))
        return [*ulimits, "--memory", memory, "--memory-swap", memory, "--pids-limit", str(processes)]

    @cached_property
    def _engine_can_limit(self) -> bool:
        """Whether the engine can limit memory and processes."""
        if self.engine != "podman":
            return True
        info = json.loads(self._run_engine("info", "--format", "json").stdout or b"{}")
        return {"memory", "pids"} <= set(info.get("host", {}).get("cgroupControllers") or ())

    @property
    def _engine_environment(self) -> dict[str, str]:
        """The environment variables passed to the engine; API keys are not among them."""
        names = ("PATH", "HOME", *self.required_variables)
        return {name: os.environ[name] for name in names if name in os.environ}

    def _run_engine(self, *arguments: str, stdin: bytes = b"") -> "subprocess.CompletedProcess[bytes]":
        return subprocess.run(
            [self.engine, *arguments],
            input=stdin,
            capture_output=True,
            check=False,
            timeout=300,
            env=self._engine_environment,
        )
