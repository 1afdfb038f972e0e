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
from mlagentbench.records import GB
from mlagentbench.runtimes.base import PYTHON
from mlagentbench.sandbox import gate
from mlagentbench.sandbox.base import Box, Process, Sandbox
from mlagentbench.sandbox.cgroups import Group
from mlagentbench.sandbox.container_process import attend, doorway, enter
from mlagentbench.sandbox.container_profile import DOOR, profile, skeleton
from mlagentbench.sandbox.watch import require_room

FILES = 4096  # that a process may hold open
NUMBERS = 32768  # of processes, on a machine where nobody asked for more


class Containers(Sandbox):
    """One container for each command, in an image, in a root file system, or over the host's own programs."""

    needs = (
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
            raise UsageError(f"this machine has no {engine}; install it, or use --sandbox bwrap, which needs no engine")

    def start(self, argv: Sequence[str], box: Box, stdin: int = subprocess.DEVNULL) -> Process:
        """Begin a command in a fresh container."""
        if os.geteuid() == 0 and not box.owner:
            raise SandboxFault("root would be root inside, too: a box needs an unprivileged owner")
        require_room(box.workspace)
        group = Group(int(box.limits.memory_gb * GB), box.limits.processes)
        try:
            with doorway(box) as door:
                waiting = enter(self._command(box, door, group), door, self._environment)
            return attend(waiting, box, group, gate.gated(argv, stdin), stdin)
        except BaseException:
            group.close()
            raise

    def _command(self, box: Box, door: Path, group: Group) -> list[str]:
        options = [*profile(box, door, self.engine, self.gpu, not self.image), *self._limits(box, group)]
        libraries = box.runtime.environment.get("LD_LIBRARY_PATH")
        options += ["--env", f"LD_LIBRARY_PATH={libraries}"] if libraries else []
        python = f"{box.runtime.prefix_inside}/bin/{PYTHON}"
        return [self.engine, "run", *options, *self._source, python, "-ISB", f"{DOOR}/driver.py"]

    @cached_property
    def _source(self) -> list[str]:
        """What the container is made of."""
        if self.image.startswith("/"):
            if self.engine != "podman":
                raise UsageError(f"{self.engine} takes no folder as a root: import it as an image first")
            return ["--rootfs", f"{self.image}:O"]
        if self.image:
            if self._ask("image", "inspect", self.image).returncode != 0:
                raise UsageError(f"{self.engine} has no image {self.image}: {self.engine} pull {self.image}")
            return [self.image]
        archive = skeleton()
        name = f"localhost/mlagentbench-host:{blake3(archive).hexdigest(length=8)}"
        if self._ask("image", "inspect", name).returncode != 0:
            made = self._ask("import", "-", name, given=archive)
            if made.returncode != 0:
                said = made.stderr.decode("utf-8", "replace").strip()
                raise SandboxFault(f"{self.engine} cannot make an image: {said}")
        return [name]

    def _limits(self, box: Box, group: Group) -> list[str]:
        """Where we have no control groups of our own, the engine may have."""
        # Named, because what an engine sets by itself may be more than it may give.
        own = resource.getrlimit(resource.RLIMIT_NPROC)[1]
        most = NUMBERS if own == resource.RLIM_INFINITY else min(NUMBERS, own)
        processes = box.limits.processes
        if not group.folders and not self._bounds:
            most = min(most, processes)
        bounds = ["--ulimit", f"nproc={most}:{most}", "--ulimit", f"nofile={FILES}:{FILES}"]
        if group.folders or not self._bounds:
            return bounds
        memory = str(int(box.limits.memory_gb * GB))
        return [*bounds, "--memory", memory, "--memory-swap", memory, "--pids-limit", str(processes)]

    @cached_property
    def _bounds(self) -> bool:
        """Whether the engine can bound memory and processes."""
        if self.engine != "podman":
            return True
        told = json.loads(self._ask("info", "--format", "json").stdout or b"{}")
        return {"memory", "pids"} <= set(told.get("host", {}).get("cgroupControllers") or ())

    @property
    def _environment(self) -> dict[str, str]:
        """What the engine may know of ours; keys are not among it."""
        return {name: os.environ[name] for name in ("PATH", "HOME", *self.needs) if name in os.environ}

    def _ask(self, *words: str, given: bytes = b"") -> "subprocess.CompletedProcess[bytes]":
        order = [self.engine, *words]
        return subprocess.run(order, input=given, capture_output=True, check=False, timeout=300, env=self._environment)
