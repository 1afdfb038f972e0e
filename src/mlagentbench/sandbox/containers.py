"""Containers of podman or docker, for people whose policy wants images; the promises are those of bubblewrap."""

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
    create_control_folder,
    start_container,
    start_container_command,
)
from mlagentbench.sandbox.limit_monitor import require_free_disk

MAX_OPEN_FILES = 4096  # that a process may hold open
DEFAULT_MAX_PROCESSES = 32768  # of processes, on a machine where nobody asked for more


class ContainerSandbox(Sandbox):
    """One container for each command, in an image, in a root file system, or over the host's own programs."""

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
                f"this machine has no {engine}; install it, or use --sandbox bwrap, which needs no engine"
            )

    def start(
        self, argv: Sequence[str], spec: SandboxSpec, stdin: int = subprocess.DEVNULL
    ) -> SandboxProcess:
        """Begin a command in a fresh container."""
        if os.geteuid() == 0 and not spec.uid:
            raise SandboxFault("root would be root inside, too: a box needs an unprivileged owner")
        require_free_disk(spec.workspace)
        group = Cgroup(int(spec.limits.memory_gb * BYTES_PER_GB), spec.limits.processes)
        try:
            with create_control_folder(spec) as door:
                waiting = start_container(
                    self._engine_command(spec, door, group), door, self._engine_environment
                )
            return start_container_command(waiting, spec, group, handshake.wrap_command(argv, stdin), stdin)
        except BaseException:
            group.close()
            raise

    def _engine_command(self, box: SandboxSpec, door: Path, group: Cgroup) -> list[str]:
        options = [
            *engine_options(box, door, self.engine, self.gpu, not self.image),
            *self._limit_options(box, group),
        ]
        libraries = box.runtime.environment.get("LD_LIBRARY_PATH")
        options += ["--env", f"LD_LIBRARY_PATH={libraries}"] if libraries else []
        python = f"{box.runtime.prefix_inside}/bin/{PYTHON_NAME}"
        return [
            self.engine,
            "run",
            *options,
            *self._image_arguments,
            python,
            "-ISB",
            f"{CONTROL_FOLDER}/driver.py",
        ]

    @cached_property
    def _image_arguments(self) -> list[str]:
        """What the container is made of."""
        if self.image.startswith("/"):
            if self.engine != "podman":
                raise UsageError(f"{self.engine} takes no folder as a root: import it as an image first")
            return ["--rootfs", f"{self.image}:O"]
        if self.image:
            if self._run_engine("image", "inspect", self.image).returncode != 0:
                raise UsageError(f"{self.engine} has no image {self.image}: {self.engine} pull {self.image}")
            return [self.image]
        archive = build_mount_point_image()
        name = f"localhost/mlagentbench-host:{blake3(archive).hexdigest(length=8)}"
        if self._run_engine("image", "inspect", name).returncode != 0:
            made = self._run_engine("import", "-", name, stdin=archive)
            if made.returncode != 0:
                said = made.stderr.decode("utf-8", "replace").strip()
                raise SandboxFault(f"{self.engine} cannot make an image: {said}")
        return [name]

    def _limit_options(self, box: SandboxSpec, group: Cgroup) -> list[str]:
        """Where we have no control groups of our own, the engine may have."""
        # Named, because what an engine sets by itself may be more than it may give.
        own = resource.getrlimit(resource.RLIMIT_NPROC)[1]
        most = DEFAULT_MAX_PROCESSES if own == resource.RLIM_INFINITY else min(DEFAULT_MAX_PROCESSES, own)
        processes = box.limits.processes
        if not group.folders and not self._engine_can_limit:
            most = min(most, processes)
        bounds = ["--ulimit", f"nproc={most}:{most}", "--ulimit", f"nofile={MAX_OPEN_FILES}:{MAX_OPEN_FILES}"]
        if group.folders or not self._engine_can_limit:
            return bounds
        memory = str(int(box.limits.memory_gb * BYTES_PER_GB))
        return [*bounds, "--memory", memory, "--memory-swap", memory, "--pids-limit", str(processes)]

    @cached_property
    def _engine_can_limit(self) -> bool:
        """Whether the engine can bound memory and processes."""
        if self.engine != "podman":
            return True
        told = json.loads(self._run_engine("info", "--format", "json").stdout or b"{}")
        return {"memory", "pids"} <= set(told.get("host", {}).get("cgroupControllers") or ())

    @property
    def _engine_environment(self) -> dict[str, str]:
        """What the engine may know of ours; keys are not among it."""
        return {
            name: os.environ[name]
            for name in ("PATH", "HOME", *self.required_variables)
            if name in os.environ
        }

    def _run_engine(self, *words: str, stdin: bytes = b"") -> "subprocess.CompletedProcess[bytes]":
        order = [self.engine, *words]
        return subprocess.run(
            order, input=stdin, capture_output=True, check=False, timeout=300, env=self._engine_environment
        )
