"""Without a sandbox the limits hold, and what was started ends."""

import time

import pytest
from conftest import Runner

from mlagentbench.errors import SandboxFault, UsageError
from mlagentbench.sandbox.selection import create_sandbox


def test_a_script_runs_with_the_packages_of_the_runtime_and_no_secrets(
    run_unsandboxed: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_API_KEY", "s3cret")
    ran = run_unsandboxed(
        "import numpy, os, sys\nprint(numpy.__file__, os.getcwd(), sorted(os.environ), sys.stdin.read())"
    )
    assert ran.exit_code == 0
    assert str(run_unsandboxed.box.runtime.packages) in ran.text
    assert str(run_unsandboxed.workspace) in ran.text
    assert "API_KEY" not in ran.text


@pytest.mark.parametrize("ending", ["while True: pass", "time.sleep(0.3)"])
def test_daemons_are_hunted_down(ending: str, run_unsandboxed: Runner) -> None:
    started = time.monotonic()
    ran = run_unsandboxed(
        f"""
import os, time
print('begun', flush=True)
for _ in range(3):
    if os.fork() == 0:
        os.setsid()
        if os.fork(): os._exit(0)
        os.closerange(0, 10)
        time.sleep(1000)
{ending}
""",
        seconds=1,
    )
    assert ran.limit == ("time" if "while" in ending else None)
    assert "begun" in ran.text
    assert run_unsandboxed.survivors() == []
    assert time.monotonic() - started < 10


def test_memory_and_disk_end_at_their_limits(run_unsandboxed: Runner) -> None:
    assert run_unsandboxed("kept = [bytearray(b'x' * (1 << 24)) for _ in range(1000)]").limit == "memory"
    many = "for n in range(10): open(f'f{n}', 'wb').truncate(40 << 20)\nwhile True: pass"
    assert run_unsandboxed(many).limit == "disk"


def test_a_missing_program_is_a_fault(run_unsandboxed: Runner) -> None:
    with pytest.raises(SandboxFault, match="no such program: snake"):
        run_unsandboxed.sandbox.start(["snake"], run_unsandboxed.box)


def test_an_unknown_sandbox_is_refused_with_those_that_exist() -> None:
    with pytest.raises(UsageError, match="Available: bwrap, podman"):
        create_sandbox("jail")
