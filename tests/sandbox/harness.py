"""A separate harness process: runs script.py of a workspace, prints its output, then its result as JSON."""

import json
import os
import sys
from pathlib import Path

from mlagentbench.records import Limits
from mlagentbench.runtimes.base import find_runtime
from mlagentbench.sandbox.access_log.recording import AccessLog
from mlagentbench.sandbox.access_log.records import read_access
from mlagentbench.sandbox.base import SandboxSpec
from mlagentbench.sandbox.cgroups import find_controller_folders
from mlagentbench.sandbox.output import CommandOutput
from mlagentbench.sandbox.selection import create_sandbox


class PrintedOutput(CommandOutput):
    def write(self, data: bytes) -> None:
        super().write(data)
        os.write(1, data)


def main() -> None:
    sandbox_name, folder, marker, timeout_s = sys.argv[1:5]
    workspace = Path(folder)
    limits = Limits(**json.loads(sys.argv[5])) if len(sys.argv) > 5 else Limits(memory_gb=0.5, processes=64)
    access_log = AccessLog(workspace) if "RECORD_ACCESS" in os.environ else None
    spec = SandboxSpec(
        workspace,
        find_runtime("tabular"),
        limits,
        environment={"MARKER": marker},
        uid=workspace.stat().st_uid if os.geteuid() == 0 else None,
        access_log=access_log,
    )
    sandbox = create_sandbox(sandbox_name)
    if "ANNOUNCE" in os.environ:
        os.write(1, b"starting\n")
    execution = sandbox.run(["python", "-u", "script.py"], spec, float(timeout_s), PrintedOutput())
    controllers = len(find_controller_folders())
    result = {"limit": execution.limit, "exit_code": execution.exit_code, "controllers": controllers}
    if access_log:
        access_log.write_step(1)
        access_log.close()
        result["accesses"] = [list(access.model_dump().values()) for access in read_access(workspace, 1)]
    print(json.dumps(result))


if __name__ == "__main__":
    main()
