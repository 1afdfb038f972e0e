"""Helpers that run batches of the toy task, in this process or in another one, and read their state."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from mlagentbench.errors import Fault
from mlagentbench.runner.batch.batch_status import BatchFollower
from mlagentbench.runner.batch.folder import BatchFolder, BatchRecord
from mlagentbench.runner.batch.job import Job
from mlagentbench.runner.batch.plan import Plan

Cli = Callable[..., "subprocess.CompletedProcess[str]"]


Until = Callable[[Callable[[], object]], None]


# Step 2 takes 1000 seconds unless the file `go` exists. Tests interrupt it, so it may differ after a resume.
WAITING_AGENT = """
class Waiting(Agent):
    def run(self, env):
        write(env, "wait.py", "import time\\nprint('waiting', flush=True)\\ntime.sleep(1000)")
        execute(env, "train.py" if Path({go!r}).exists() else "wait.py")
        submit(env)
"""


def quiet(line: object) -> None:
    pass


def make_plan(**keys: Any) -> Plan:
    return Plan.model_validate({"pause": 0, **keys})


@contextmanager
def batch_process(out: Path, *arguments: object, **options: Any) -> Iterator["subprocess.Popen[str]"]:
    """A batch command in a process of its own, killed at the end of the block."""
    command = [sys.executable, "-m", "mlagentbench", "batch", "--out", *map(str, (out, *arguments))]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **{**pipes, **options}) as batch:
        try:
            yield batch
        finally:
            batch.kill()


def run_states(out: Path) -> dict[str, str]:
    return {run.name: run.state for run in BatchFollower(out).refresh().runs}


SLOW_SCRIPT = {"file_name": "slow.py", "content": "import time; print('waiting', flush=True); time.sleep(5)"}


def runs_in_slow_script(out: Path) -> list[Path]:
    """The folders of runs whose second step is a script that has started and takes long."""
    outputs = [path for path in out.glob("*/outputs/step-0002.txt") if b"waiting" in path.read_bytes()]
    return [path.parent.parent for path in outputs]


def find_processes(*arguments: str) -> list[int]:
    """The processes with one of these arguments in their command line."""
    pids = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if set(path.read_bytes().decode(errors="replace").split("\0")) & set(arguments):
                pids.append(int(path.parent.name))
    return pids


def create_batch(out: Path, plan: Plan) -> tuple[BatchFollower, list[Job]]:
    out.mkdir()
    jobs = plan.expand_jobs()
    folder = BatchFolder(out)
    folder.write_record(BatchRecord(plan=plan, jobs=tuple(jobs)))
    return BatchFollower(out), jobs


class FailingRunner:
    """A runner whose jobs all fail with a fault."""

    def run(self, job: Job, gpu: str) -> Path:
        raise Fault("disk error")

    def stop(self) -> None:
        pass
