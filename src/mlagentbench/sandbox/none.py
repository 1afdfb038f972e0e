"""No sandbox: for machines that cannot isolate and people who asked for it. Nothing is promised but the limits."""

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

DIE_WITH_PARENT = (
    "setpriv",
    "--pdeathsig",
    "KILL",
    "--",
)  # with the harness; its children wait for the next one's sweep


class NoSandbox(Sandbox):
    """The command as an ordinary process, marked so that its tree can be found and ended."""

    name = "none"

    def start(
        self, argv: Sequence[str], spec: SandboxSpec, stdin: int = subprocess.DEVNULL
    ) -> SandboxProcess:
        """Begin a command with the runtime's packages and no secrets in its environment."""
        mark = secrets.token_hex(16)
        python = f"{sys.base_prefix}/bin/python{sys.version_info.major}.{sys.version_info.minor}"
        command = [python, *argv[1:]] if argv[0] == "python" else list(argv)
        environment = {
            **spec.runtime.environment,
            "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
            "PYTHONPATH": str(spec.runtime.packages),
            "HOME": str(spec.workspace),
            "CUDA_VISIBLE_DEVICES": ",".join(
                path.name[6:] for path in granted_devices(self.gpu) if path.name[6:].isdigit()
            ),
            **spec.environment,
            COMMAND_ID_VARIABLE: mark,
        }
        environment.pop("LD_LIBRARY_PATH", None)
        group = Cgroup(int(spec.limits.memory_gb * BYTES_PER_GB), spec.limits.processes)
        try:
            command = [*DIE_WITH_PARENT, *handshake.wrap_command(command, stdin)]
            child = handshake.start_child(command, spec.limits, group, environment, str(spec.workspace))
            return release_command(child, spec, group, stdin, mark)
        except BaseException:
            group.close()
            raise
