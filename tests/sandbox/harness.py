"""A harness of its own process: runs script.py of a workspace, shows what it prints, and its end as JSON."""

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


class Shown(CommandOutput):
    def write(self, data: bytes) -> None:
        super().write(data)
        os.write(1, data)


def main() -> None:
    isolation, workspace, marker, seconds = sys.argv[1:5]
    limits = Limits(**json.loads(sys.argv[5])) if len(sys.argv) > 5 else Limits(memory_gb=0.5, processes=64)
    owner = Path(workspace).stat().st_uid if os.geteuid() == 0 else None
    access_log = AccessLog(Path(workspace)) if "RECORD_ACCESS" in os.environ else None
    box = SandboxSpec(
        Path(workspace),
        find_runtime("tabular"),
        limits,
        environment={"MARKER": marker},
        uid=owner,
        access_log=access_log,
    )
    place = create_sandbox(isolation)
    if "ANNOUNCE" in os.environ:
        os.write(1, b"starting\n")
    done = place.run(["python", "-u", "script.py"], box, float(seconds), Shown())
    told = {"limit": done.limit, "exit_code": done.exit_code, "groups": len(find_controller_folders())}
    if access_log:
        access_log.write_step(1)
        access_log.close()
        told["accesses"] = [list(access.model_dump().values()) for access in read_access(Path(workspace), 1)]
    print(json.dumps(told))


if __name__ == "__main__":
    main()
