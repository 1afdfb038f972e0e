"""No sandbox: for machines that cannot isolate and people who asked for it. Nothing is promised but the limits."""

import os
import secrets
import subprocess
import sys
from collections.abc import Sequence

from mlagentbench.records import GB
from mlagentbench.sandbox import gate
from mlagentbench.sandbox.base import Box, Process, Sandbox, attend
from mlagentbench.sandbox.cgroups import Group
from mlagentbench.sandbox.gpu import granted
from mlagentbench.sandbox.processes import MARK

DIE_TOO = ("setpriv", "--pdeathsig", "KILL", "--")  # with the harness; its children wait for the next one's sweep


class NoSandbox(Sandbox):
    """The command as an ordinary process, marked so that its tree can be found and ended."""

    name = "none"

    def start(self, argv: Sequence[str], box: Box, stdin: int = subprocess.DEVNULL) -> Process:
        """Begin a command with the runtime's packages and no secrets in its environment."""
        mark = secrets.token_hex(16)
        python = f"{sys.base_prefix}/bin/python{sys.version_info.major}.{sys.version_info.minor}"
        command = [python, *argv[1:]] if argv[0] == "python" else list(argv)
        environment = {
            **box.runtime.environment,
            "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
            "PYTHONPATH": str(box.runtime.packages),
            "HOME": str(box.workspace),
            "CUDA_VISIBLE_DEVICES": ",".join(path.name[6:] for path in granted(self.gpu) if path.name[6:].isdigit()),
            **box.environment,
            MARK: mark,
        }
        environment.pop("LD_LIBRARY_PATH", None)
        group = Group(int(box.limits.memory_gb * GB), box.limits.processes)
        try:
            command = [*DIE_TOO, *gate.gated(command, stdin)]
            child = gate.start(command, box.limits, group, environment, str(box.workspace))
            return attend(child, box, group, stdin, mark)
        except BaseException:
            group.close()
            raise
