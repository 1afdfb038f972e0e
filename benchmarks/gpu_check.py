"""Checks `--gpu` on a machine with a GPU, and prints one line per check.

    python benchmarks/gpu_check.py [--gpu 0] [--task BabyLM] [--sandbox auto]

- torch inside the sandbox sees and uses the granted GPU, and no other one;
- the devices of other GPUs cannot be opened inside, and without `--gpu` no GPU can;
- a run of the starter and one of the reference use the GPU and are graded;
- afterwards no new process has the GPU open.

Exits with 0 if all checks pass, 1 if one fails, and 2 on a machine without a GPU.
"""

import argparse
import json
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mlagentbench.errors import BenchError, UsageError
from mlagentbench.formatting import format_score
from mlagentbench.runner.setup import prepare_setup
from mlagentbench.runner.start import start_run
from mlagentbench.runtimes.base import ensure_runtime
from mlagentbench.sandbox.base import SandboxSpec
from mlagentbench.sandbox.gpu import granted_devices
from mlagentbench.sandbox.output import CommandOutput
from mlagentbench.sandbox.selection import choose_unprivileged_uid, create_sandbox
from mlagentbench.system.cache import temporary_dir

POLL_INTERVAL_S = 0.05
PROBE_TIMEOUT_S = 300  # the first import of torch from a cold disk takes a while
AGENTS = ("baseline", "reference")  # the first one runs the starter

# Opens every GPU by its device file, then asks torch. A script can set CUDA_VISIBLE_DEVICES as it likes.
PROBE = """
import json, os
opened = []
for number in range(64):
    try:
        os.close(os.open(f"/dev/nvidia{number}", os.O_RDWR))
    except OSError:
        continue
    opened.append(number)
os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, range(64)))
count, name, problem = 0, "", ""
try:
    import torch
    count = torch.cuda.device_count()
    if count:
        name = torch.cuda.get_device_name(0)
        product = torch.ones(512, 512, device="cuda") @ torch.ones(512, 512, device="cuda")
        assert float(product[0, 0]) == 512, "a matrix product on the GPU is wrong"
except Exception as error:
    problem = f"{type(error).__name__}: {error}"[:300]
print(json.dumps({"opened": opened, "count": count, "name": name, "problem": problem}))
"""


def print_progress(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def gpu_numbers(gpu: str, devices: Path = Path("/dev")) -> list[int]:
    """The numbers of the GPUs that `gpu` names."""
    names = (path.name[len("nvidia") :] for path in granted_devices(gpu, devices))
    return sorted(int(name) for name in names if name.isdigit())


def find_gpu_users(devices: list[Path]) -> set[int]:
    """The processes that have one of these devices open, as far as this user may see."""
    wanted = {_identify(path) for path in devices}
    pids = (int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit())
    return {pid for pid in pids if wanted & _open_files(pid)}


def _identify(path: Path) -> tuple[int, ...]:
    """Identifies a device even if it has a second file, as in a container."""
    status = path.stat()
    return (status.st_rdev,) if status.st_rdev else (status.st_dev, status.st_ino)


def _open_files(pid: int) -> set[tuple[int, ...]]:
    found = set()
    try:
        for file in Path(f"/proc/{pid}/fd").iterdir():
            found.add(_identify(file))
    except OSError:  # the process exited, or belongs to another user
        pass
    return found


@contextmanager
def watch_gpu_users(devices: list[Path]) -> Iterator[set[int]]:
    """Collects the processes that open a device meanwhile."""
    seen: set[int] = set()
    ended = threading.Event()

    def poll() -> None:
        while not ended.wait(POLL_INTERVAL_S):
            seen.update(find_gpu_users(devices))

    thread = threading.Thread(target=poll)
    thread.start()
    try:
        yield seen
    finally:
        ended.set()
        thread.join()


def run_probe(sandbox_name: str, gpu: str) -> dict[str, Any]:
    """Run the probe in a sandbox with these GPUs."""
    runtime = ensure_runtime("torch", print_progress)
    sandbox = create_sandbox(sandbox_name, gpu)
    uid = choose_unprivileged_uid("gpu-check") if sandbox.uses_separate_user else None
    with temporary_dir() as folder, CommandOutput() as output:
        (folder / "probe.py").write_text(PROBE)
        (folder / "probe.py").chmod(0o644)
        if uid:
            os.chown(folder, uid, uid)
        spec = SandboxSpec(folder, runtime, uid=uid)
        try:
            sandbox.run(["python", "probe.py"], spec, PROBE_TIMEOUT_S, output)
        finally:
            sandbox.release_workspace(spec)
        lines = output.text.strip().splitlines()
    try:
        found: dict[str, Any] = json.loads(lines[-1])
    except (IndexError, ValueError):
        return {"opened": [], "count": 0, "name": "", "problem": " ".join(lines[-3:]) or "no output"}
    return found


class GpuCheck:
    """The checks, and how many of them failed."""

    def __init__(self, gpu: str, task: str, sandbox: str) -> None:
        self.gpu, self.task, self.sandbox = gpu, task, sandbox
        self.granted, self.present = gpu_numbers(gpu), gpu_numbers("all")
        self.probed: dict[str, Any] = {"opened": [], "count": 0, "name": "", "problem": "not run"}
        self.devices = [Path(f"/dev/nvidia{number}") for number in self.granted]
        self.failures = 0

    def report(self, what: str, good: bool, detail: str) -> None:
        self.failures += not good
        print(f"{'ok  ' if good else 'FAIL'}  {what}: {detail}", flush=True)

    def attempt(self, what: str, check: Callable[[], tuple[bool, str]]) -> None:
        """Report a check; an error of the harness fails it."""
        try:
            self.report(what, *check())
        except BenchError as error:
            self.report(what, False, str(error))

    def run(self) -> int:
        """Run all checks; returns the number of failures."""
        before = find_gpu_users(self.devices)
        self.attempt("torch uses the granted GPU only", self.check_torch)
        self.attempt("other GPUs are invisible", self.check_devices)
        self.attempt("without --gpu no GPU is visible", self.check_without_gpu)
        for agent in AGENTS:
            self.attempt(f"{agent} on {self.task}", lambda agent=agent: self.check_run(agent))  # type: ignore[misc]
        left = find_gpu_users(self.devices) - before
        detail = f"processes that have it open: {sorted(left)}" if left else "no process has it open"
        self.report("nothing is left on the GPU", not left, detail)
        return self.failures

    def check_torch(self) -> tuple[bool, str]:
        self.probed = run_probe(self.sandbox, self.gpu)
        good = self.probed["count"] == len(self.granted) and not self.probed["problem"]
        detail = f"{self.probed['count']} visible, {len(self.granted)} granted, {self.probed['name']}"
        return good, self.probed["problem"] or detail

    def check_devices(self) -> tuple[bool, str]:
        opened = self.probed["opened"]
        return opened == self.granted, f"granted {self.granted} of {self.present}, can be opened: {opened}"

    def check_without_gpu(self) -> tuple[bool, str]:
        found = run_probe(self.sandbox, "")
        return not found["opened"] and not found["count"], f"{found['count']} visible"

    def check_run(self, agent: str) -> tuple[bool, str]:
        setup = prepare_setup(self.task, "open", self.sandbox, print_progress, gpu=self.gpu)
        with tempfile.TemporaryDirectory() as folder, watch_gpu_users(self.devices) as users:
            known = find_gpu_users(self.devices)
            result = start_run(setup, agent, Path(folder, "run"), 0, {})
        used = "used the GPU" if users - known else "did not use the GPU"
        graded = result.valid and result.score is not None
        detail = f"score {format_score(result.score)}, {result.seconds:.1f} s, {used} {result.note}".strip()
        return bool(graded and users - known), detail


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--gpu", default="0", help="the GPUs to grant; default: 0")
    parser.add_argument("--task", default="BabyLM", help="the task to run; default: BabyLM")
    parser.add_argument("--sandbox", default="auto", help="default: auto")
    options = parser.parse_args()
    try:
        check = GpuCheck(options.gpu, options.task, create_sandbox(options.sandbox, options.gpu).name)
    except UsageError as error:
        print(f"gpu-check: {error}", file=sys.stderr)
        return 2
    failures = check.run()
    print(f"{failures} checks failed" if failures else "all checks passed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
