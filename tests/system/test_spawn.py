import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from mlagentbench.system.spawn import die_with_parent

Until = Callable[[Callable[[], object]], None]
SPAWN_COMMAND = """
import subprocess, sys
from mlagentbench.system.spawn import die_with_parent

child = subprocess.Popen(die_with_parent(["sleep", "600"]))
while open(f"/proc/{child.pid}/comm").read() != "sleep\\n":  # until setpriv has set the signal
    pass
print(child.pid, flush=True)
sys.stdin.readline()
"""
FORK_PROCESS = """
import os, signal, sys
from mlagentbench.system.spawn import set_parent_death_signal

ready, done = os.pipe()
child = os.fork()
if child == 0:
    set_parent_death_signal()
    os.write(done, b"x")
    signal.pause()
os.read(ready, 1)
print(child, flush=True)
sys.stdin.readline()
"""


def is_running(pid: str) -> bool:
    status = Path("/proc", pid, "status")
    try:
        return "State:\tZ" not in status.read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.parametrize("program", [SPAWN_COMMAND, FORK_PROCESS], ids=["command", "fork"])
def test_a_child_dies_with_its_killed_parent(program: str, until: Until) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout
        pid = parent.stdout.readline().strip()
        assert is_running(pid)
        parent.kill()
    until(lambda: not is_running(pid))


def test_a_command_keeps_its_arguments_output_and_exit_code() -> None:
    arguments = ["sh", "-c", 'echo "$1|$2"; exit 7', "sh", "--flag", "two words"]
    completed = subprocess.run(die_with_parent(arguments), capture_output=True, text=True, check=False)
    assert (completed.returncode, completed.stdout, completed.stderr) == (7, "--flag|two words\n", "")
