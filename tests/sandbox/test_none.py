"""Without a sandbox, limits are enforced and all started processes are killed."""

import time

import pytest
from script_runner import ScriptRunner

from mlagentbench.errors import SandboxFault, UsageError
from mlagentbench.sandbox.selection import create_sandbox


def test_a_script_runs_with_the_packages_of_the_runtime_and_no_secrets(
    run_unsandboxed: ScriptRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_API_KEY", "s3cret")
    result = run_unsandboxed(
        "import numpy, os, sys\nprint(numpy.__file__, os.getcwd(), sorted(os.environ), sys.stdin.read())"
    )
    assert result.exit_code == 0
    assert str(run_unsandboxed.spec.runtime.packages) in result.text
    assert str(run_unsandboxed.workspace) in result.text
    assert "API_KEY" not in result.text


@pytest.mark.parametrize("ending", ["while True: pass", "time.sleep(0.3)"])
def test_daemons_are_found_and_killed(ending: str, run_unsandboxed: ScriptRunner) -> None:
    started = time.monotonic()
    result = run_unsandboxed(
        f"""
import os, time
print('started', flush=True)
for _ in range(3):
    if os.fork() == 0:
        os.setsid()
        if os.fork(): os._exit(0)
        os.closerange(0, 10)
        time.sleep(1000)
{ending}
""",
        timeout_s=1,
    )
    assert result.limit == ("time" if "while" in ending else None)
    assert "started" in result.text
    assert run_unsandboxed.survivors() == []
    assert time.monotonic() - started < 10


def test_memory_and_disk_limits_are_enforced(run_unsandboxed: ScriptRunner) -> None:
    # More than the limit, and less than what no single process gets: there it would end by itself.
    kept = "kept = [bytearray(b'x' * (1 << 24)) for _ in range(48)]\nwhile True: pass"
    assert run_unsandboxed(kept).limit == "memory"
    many = "for n in range(10): open(f'f{n}', 'wb').truncate(40 << 20)\nwhile True: pass"
    assert run_unsandboxed(many).limit == "disk"


def test_a_missing_program_is_a_fault(run_unsandboxed: ScriptRunner) -> None:
    with pytest.raises(SandboxFault, match="no such program: snake"):
        run_unsandboxed.sandbox.start(["snake"], run_unsandboxed.spec)


def test_an_unknown_sandbox_is_refused_with_a_list_of_all() -> None:
    with pytest.raises(UsageError, match="Available: auto, bwrap, landlock, podman"):
        create_sandbox("jail")
