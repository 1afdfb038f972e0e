"""Batches of the toy, in this process or in one of their own, and how to look at them."""

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


# Executes something that only ends if a file is there, on the second look: the step was never done, and may differ.
PATIENT = """
class Patient(Agent):
    def run(self, env):
        write(env, "wait.py", "import time\\nprint('waiting', flush=True)\\ntime.sleep(1000)")
        execute(env, "train.py" if Path({go!r}).exists() else "wait.py")
        submit(env)
"""


def quiet(line: object) -> None:
    pass


def plan_of(**keys: Any) -> Plan:
    return Plan.model_validate({"pause": 0, **keys})


@contextmanager
def process(out: Path, *words: object, **options: Any) -> Iterator["subprocess.Popen[str]"]:
    """A batch in a process of its own."""
    command = [sys.executable, "-m", "mlagentbench", "batch", "--out", *map(str, (out, *words))]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **{**pipes, **options}) as batch:
        try:
            yield batch
        finally:
            batch.kill()


def states(out: Path) -> dict[str, str]:
    return {each.name: each.state for each in BatchFollower(out).refresh().runs}


SLOW = {"file_name": "slow.py", "content": "import time; print('waiting', flush=True); time.sleep(5)"}


def waiting(out: Path) -> list[Path]:
    """The runs that are in the middle of a script that takes long."""
    outputs = [path for path in out.glob("*/outputs/step-0002.txt") if b"waiting" in path.read_bytes()]
    return [path.parent.parent for path in outputs]


def processes(*words: str) -> list[int]:
    """Those whose command has one of these words."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if set(path.read_bytes().decode(errors="replace").split("\0")) & set(words):
                found.append(int(path.parent.name))
    return found


def surveyed(out: Path, plan: Plan) -> tuple[BatchFollower, list[Job]]:
    out.mkdir()
    jobs = plan.expand_jobs()
    folder = BatchFolder(out)
    folder.write_record(BatchRecord(plan=plan, jobs=tuple(jobs)))
    return BatchFollower(out), jobs


class Broken:
    """A machine on which nothing works."""

    def run(self, job: Job, gpu: str) -> Path:
        raise Fault("the disk went mad")

    def stop(self) -> None:
        pass
