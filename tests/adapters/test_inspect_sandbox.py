"""The sandbox provider, beyond what Inspect's own checks cover."""

import secrets
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest
from inspect_ai.util import SandboxEnvironmentSpec, SandboxUnavailableError
from inspect_ai.util._sandbox.registry import registry_find_sandboxenv

from mlagentbench.adapters.inspect.sandbox import BwrapConfig, InspectBubblewrapSandbox
from mlagentbench.errors import UsageError

pytestmark = pytest.mark.anyio
SMALL = BwrapConfig(memory_gb=0.5, disk_gb=0.2, processes=64)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def sandbox() -> AsyncIterator[InspectBubblewrapSandbox]:
    environments = await InspectBubblewrapSandbox.sample_init("test", SMALL, {})
    yield environments["default"].as_type(InspectBubblewrapSandbox)
    await InspectBubblewrapSandbox.sample_cleanup("test", SMALL, environments, False)


def is_running(mark: str) -> bool:
    """Whether any process on this machine has `mark` in its command line."""
    found = False
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found |= mark.encode() in path.read_bytes()
        except OSError:
            continue
    return found


def unique_seconds() -> str:
    """A number of seconds to sleep that no other process uses."""
    return str(10**6 + secrets.randbelow(10**6))


async def test_a_timeout_kills_the_whole_process_tree_even_daemons_and_keeps_the_output(sandbox):
    mark = unique_seconds()
    hidden = f"setsid env -i sh -c 'sleep {mark} & sleep {mark} & sleep {mark}' &"
    with pytest.raises(TimeoutError) as caught:
        await sandbox.exec(["sh", "-c", f"echo first; {hidden} echo second >&2; sleep {mark}"], timeout=1)
    assert caught.value.truncated_output == "first\nsecond\n"
    assert not is_running(mark)


async def test_a_cancelled_command_leaves_nothing_running(sandbox, until):
    mark = unique_seconds()
    with anyio.move_on_after(0.5):
        await sandbox.exec(["sh", "-c", f"sleep {mark} & sleep {mark}"])
    until(lambda: not is_running(mark))
    assert (await sandbox.exec(["echo", "still here"])).stdout == "still here\n"


async def test_background_processes_run_until_the_sample_is_over():
    mark = unique_seconds()
    environments = await InspectBubblewrapSandbox.sample_init("test", SMALL, {})
    sandbox = environments["default"]
    started = await sandbox.exec(["sh", "-c", f"sleep {mark} & echo $!"], timeout=5)
    assert (await sandbox.exec(["sh", "-c", f"kill -0 {started.stdout}"])).success
    assert is_running(mark)
    await InspectBubblewrapSandbox.sample_cleanup("test", SMALL, environments, False)
    assert not is_running(mark)


async def test_no_command_can_kill_the_sandbox(sandbox):
    await sandbox.write_file("/tmp/kept", "kept")
    await sandbox.exec(["sh", "-c", "kill -9 -1; kill -9 1; kill -TERM 1"])
    assert await sandbox.read_file("/tmp/kept") == "kept"


async def test_a_command_at_the_memory_limit_gets_the_reason_and_the_files_survive(sandbox):
    await sandbox.write_file("mine.txt", "mine")
    eaten = await sandbox.exec(["python", "-c", "x = bytearray(3 << 30); x[::4096] = b'x' * len(x[::4096])"])
    assert eaten.returncode in (1, 137)
    assert "memory" in eaten.stderr.lower()
    assert await sandbox.read_file("mine.txt") == "mine"


async def test_the_host_is_invisible_and_there_is_no_network(sandbox, tmp_path):
    (tmp_path / "secret").write_text("secret")
    with pytest.raises(FileNotFoundError):
        await sandbox.read_file(str(tmp_path / "secret"))
    tried = await sandbox.exec(
        ["python", "-c", "import socket; socket.create_connection(('1.1.1.1', 53), 2)"]
    )
    assert "unreachable" in tried.stderr
    assert (await sandbox.exec(["id", "-u"])).stdout == "1000\n"


async def test_sandboxes_are_isolated_from_each_other_and_run_in_parallel(sandbox):
    environments = await InspectBubblewrapSandbox.sample_init("test", SMALL, {})
    wait = "touch here; echo $(date +%s.%N); sleep 1; echo $(date +%s.%N); ls -A /workspace /tmp; rm here"
    results = []

    async def work(one: InspectBubblewrapSandbox, name: str) -> None:
        await one.write_file(name, "")
        results.append(await one.exec(["sh", "-c", wait], concurrency=False))

    async with anyio.create_task_group() as group:
        group.start_soon(work, sandbox, "a.txt")
        group.start_soon(work, environments["default"].as_type(InspectBubblewrapSandbox), "b.txt")
    await InspectBubblewrapSandbox.sample_cleanup("test", SMALL, environments, False)
    times = [[float(word) for word in result.stdout.split()[:2]] for result in results]
    assert max(start for start, _ in times) < min(end for _, end in times)
    assert all(("a.txt" in result.stdout) != ("b.txt" in result.stdout) for result in results)


async def test_a_closed_sandbox_raises_unavailable():
    environments = await InspectBubblewrapSandbox.sample_init("test", SMALL, {})
    await environments["default"].exec(["true"])
    await InspectBubblewrapSandbox.sample_cleanup("test", SMALL, environments, False)
    with pytest.raises(SandboxUnavailableError):
        await environments["default"].exec(["true"])


def test_inspect_finds_the_sandbox_by_name_and_reads_its_toml_file(tmp_path):
    assert registry_find_sandboxenv("bwrap") is InspectBubblewrapSandbox
    (tmp_path / "bwrap.toml").write_text('runtime = "torch"\nmemory_gb = 2\n')
    assert BwrapConfig.from_inspect(str(tmp_path / "bwrap.toml")) == BwrapConfig(runtime="torch", memory_gb=2)
    spec = SandboxEnvironmentSpec("bwrap", BwrapConfig(runtime="torch"))
    assert SandboxEnvironmentSpec.model_validate(spec.model_dump()) == spec
    (tmp_path / "bwrap.toml").write_text("memry = 2\n")
    with pytest.raises(UsageError, match="memry: no such key"):
        BwrapConfig.from_inspect(str(tmp_path / "bwrap.toml"))
