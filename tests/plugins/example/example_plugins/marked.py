"""Sandbox: bubblewrap, with an environment variable that scripts can see."""

import subprocess
from collections.abc import Sequence
from dataclasses import replace

from mlagentbench.sandbox.base import SandboxProcess, SandboxSpec
from mlagentbench.sandbox.bwrap import BubblewrapSandbox


class MarkedSandbox(BubblewrapSandbox):
    """Sets SANDBOX to its name and to the GPUs that were granted."""

    name = "marked"

    def start(
        self, argv: Sequence[str], spec: SandboxSpec, stdin: int = subprocess.DEVNULL
    ) -> SandboxProcess:
        """Start a command with the variable."""
        environment = {**spec.environment, "SANDBOX": f"{self.name}, gpu={self.gpu!r}"}
        return super().start(argv, replace(spec, environment=environment), stdin)
