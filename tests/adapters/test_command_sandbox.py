"""The sandbox that other frameworks run commands in."""

import asyncio
import os
import secrets
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from mlagentbench.adapters.command_sandbox import CommandSandbox
from mlagentbench.records import Limits
from mlagentbench.runtimes.base import ensure_runtime
from mlagentbench.sandbox.base import SandboxSpec
from mlagentbench.sandbox.selection import choose_unprivileged_uid, create_sandbox
from mlagentbench.system.cache import temporary_dir

pytestmark = pytest.mark.anyio
LIMITS = Limits(memory_gb=0.5, disk_gb=0.1, processes=64)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def sandbox() -> AsyncIterator[CommandSandbox]:
    uid = choose_unprivileged_uid(secrets.token_hex(8))
    with temporary_dir() as root:
        for name in ("workspace", "logs"):
            (root / name).mkdir()
            if uid is not None:
                os.chown(root / name, uid, uid)
        runtime = ensure_runtime("tabular", print)
        mounts = ((root / "logs", "/logs"),)
        spec = SandboxSpec(root / "workspace", runtime, LIMITS, writable_mounts=mounts, uid=uid)
        sandbox = CommandSandbox(create_sandbox("bwrap"), spec)
        yield sandbox
        await asyncio.to_thread(sandbox.close)


def logs_folder(sandbox: CommandSandbox) -> Path:
    return sandbox.spec.writable_folders[1]


async def test_commands_share_files_and_further_folders_are_writable(sandbox):
    first = await sandbox.execute(["sh", "-c", "echo a > /tmp/a; echo b > /logs/b; echo c > c"])
    second = await sandbox.execute(["sh", "-c", "cat /tmp/a /logs/b /workspace/c; touch /x"])
    assert (first.exit_code, second.stdout) == (0, "a\nb\nc\n")
    assert "Read-only file system" in second.stderr
    assert (logs_folder(sandbox) / "b").read_text() == "b\n"


async def test_what_is_in_further_folders_counts_toward_the_disk_limit(sandbox):
    fill = "n=0; while :; do n=$((n+1)); yes | head -c 20000000 > /logs/$n; done"
    filled = await sandbox.execute(["sh", "-c", fill], timeout_s=60)
    assert filled.exit_code == 137 and "disk" in filled.stderr.lower()


async def test_a_timeout_kills_the_command_and_keeps_its_output(sandbox):
    result = await sandbox.execute(["sh", "-c", "echo begun; sleep 600"], timeout_s=0.5)
    assert result.timed_out and result.stdout == "begun\n"


async def test_a_cancelled_command_is_killed_and_the_sandbox_goes_on(sandbox, until):
    started = logs_folder(sandbox) / "started"
    sleeping = asyncio.create_task(sandbox.execute(["sh", "-c", "touch /logs/started; exec sleep 987654"]))
    await asyncio.to_thread(until, started.exists)
    sleeping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sleeping
    gone = "while pgrep -f '[9]87654' > /dev/null; do :; done; echo gone"
    assert (await sandbox.execute(["sh", "-c", gone], timeout_s=20)).stdout == "gone\n"


async def test_files_are_read_and_written_up_to_a_size(sandbox):
    await sandbox.write("/tmp/new/file", b"\xff\x00")
    assert await sandbox.read("/tmp/new/file", 2) == b"\xff\x00"
    with pytest.raises(OSError, match="more than 1 bytes"):
        await sandbox.read("/tmp/new/file", 1)
    with pytest.raises(FileNotFoundError):
        await sandbox.read("/tmp/nothing", 1)


async def test_a_restart_keeps_the_workspace_and_ends_processes(sandbox):
    await sandbox.execute(["sh", "-c", "touch kept /tmp/lost; sleep 1000 &"])
    await sandbox.restart()
    assert not sandbox.is_running
    assert (await sandbox.execute(["sh", "-c", "ls . /tmp"])).stdout == ".:\nkept\n\n/tmp:\n"
