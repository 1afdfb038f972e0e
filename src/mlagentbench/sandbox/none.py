"""No sandbox: for machines that cannot isolate, on explicit request. Only the limits are enforced."""

import os
import secrets
import subprocess
import sys
from collections.abc import Sequence

from mlagentbench.records import BYTES_PER_GB
from mlagentbench.sandbox import handshake
from mlagentbench.sandbox.base import Sandbox, SandboxProcess, SandboxSpec, release_command
from mlagentbench.sandbox.cgroups import Cgroup
from mlagentbench.sandbox.gpu import granted_devices
from mlagentbench.sandbox.processes import COMMAND_ID_VARIABLE
from mlagentbench.system.spawn import die_with_parent


class NoSandbox(Sandbox):
    """Runs the command as an ordinary process, with an id in its environment to find its descendants by."""

    name = "none"
    mounts_files = False

    @property
    def uses_separate_user(self) -> bool:
        """Commands have the user of the harness."""
        return False

    def start(
        self, argv: Sequence[str], spec: SandboxSpec, stdin: int = subprocess.DEVNULL
    ) -> SandboxProcess:
        """Start a command with the packages of the runtime, and without secrets in its environment."""
        command_id = secrets.token_hex(16)
        python = f"{sys.base_prefix}/bin/python{sys.version_info.major}.{sys.version_info.minor}"
        command = [python, *argv[1:]] if argv[0] == "python" else list(argv)
        gpu_numbers = (path.name[6:] for path in granted_devices(self.gpu) if path.name[6:].isdigit())
        environment = {
            **spec.runtime.environment,
            "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
            "PYTHONPATH": str(spec.runtime.packages),
            "HOME": str(spec.workspace),
            "CUDA_VISIBLE_DEVICES": ",".join(gpu_numbers),
            **spec.environment,
            COMMAND_ID_VARIABLE: command_id,
        }
        environment.pop("LD_LIBRARY_PATH", None)
        cgroup = Cgroup(int(spec.limits.memory_gb * BYTES_PER_GB), spec.limits.processes)
        try:
            # Only the command itself dies with the harness. The next harness kills its children, which are in
            # a stale cgroup then.
            command = die_with_parent(handshake.wrap_command(command, stdin))
            child = handshake.start_child(command, spec.limits, cgroup, environment, str(spec.workspace))
            return release_command(child, spec, cgroup, stdin, command_id)
        except BaseException:
            cgroup.close()
            raise
