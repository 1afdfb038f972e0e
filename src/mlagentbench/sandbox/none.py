"""No sandbox: for machines that cannot isolate and people who asked for it. Nothing is promised but the limits."""

import os
import subprocess
import sys
from collections.abc import Sequence

from mlagentbench.sandbox.base import Box, Process, Sandbox
from mlagentbench.sandbox.bwrap import ENTER
from mlagentbench.sandbox.cgroups import Group
from mlagentbench.sandbox.launch import launcher
from mlagentbench.sandbox.watch import GB, Watch


class NoSandbox(Sandbox):
    """The command as an ordinary process, in a session of its own so that its tree can be found and ended."""

    name = "none"

    def start(self, argv: Sequence[str], box: Box, stdin: int = subprocess.DEVNULL) -> Process:
        """Begin a command with the runtime's packages and no secrets in its environment."""
        group = Group(int(box.limits.memory_gb * GB), box.limits.processes)
        python = f"{sys.base_prefix}/bin/python{sys.version_info.major}.{sys.version_info.minor}"
        command = [python, *argv[1:]] if argv[0] == "python" else list(argv)
        environment = {
            **box.runtime.environment,
            "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
            "PYTHONPATH": str(box.runtime.packages),
            "HOME": str(box.workspace),
            **box.environment,
        }
        environment.pop("LD_LIBRARY_PATH", None)
        try:
            child = launcher().start(
                [
                    "sh",
                    "-c",
                    ENTER,
                    "sh",
                    str(int(box.limits.disk_gb * GB) // 512),
                    *group.entries,
                    "--",
                    *command,
                ],
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=environment,
                cwd=box.workspace,
                bufsize=0,
                start_new_session=True,
            )
            watch = Watch(box.workspace, box.limits, group, child.pid, isolated=False)
        except BaseException:
            group.close()
            raise
        return Process(child, watch)
