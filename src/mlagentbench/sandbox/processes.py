"""The processes of one command: found, frozen and ended together."""

import math
import os
import select
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from mlagentbench.errors import SandboxFault
from mlagentbench.sandbox.cgroups import Cgroup

KILL_TIMEOUT_S = 30  # seconds for killed processes to be gone; giving back many gigabytes takes a moment
SETTLE_INTERVAL_S = 0.001  # seconds; what shows as stopped may still be on its way there
PF_EXITING = 4  # PF_EXITING among the kernel's flags of a process
COMMAND_ID_VARIABLE = (
    "MLAGENTBENCH_COMMAND"  # in the environment of unsandboxed commands, by which their daemons are found
)


def read_proc_stat(pid: int | str) -> list[str]:
    """The fields of /proc/<pid>/stat from the state on; none if there is no such process."""
    with suppress(OSError):
        found = Path(f"/proc/{pid}/stat").read_bytes()  # it begins with a name, which may be anything
        return found.rpartition(b")")[2].decode().split()
    return []


def is_alive(pid: int) -> bool:
    """Whether it still runs, and is not just about to end."""
    fields = read_proc_stat(pid)
    return bool(fields) and fields[0] not in "ZX" and not int(fields[6]) & PF_EXITING


def list_process_tree(pid: int) -> list[int]:
    """A process and all its descendants, oldest first."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208 - thousands of names, many times
        if name.isdigit() and (fields := read_proc_stat(name)):
            children.setdefault(int(fields[1]), []).append(int(name))
    found = [pid]
    for member in found:
        found += children.get(member, [])
    return found


def wait_or_kill(child: "subprocess.Popen[bytes]", timeout_s: float) -> None:
    """For one who was told to end, and has so long to do so."""
    try:
        child.wait(timeout_s)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


class ProcessTree:
    """A command with everything that it started, and however much that tried to get away."""

    def __init__(
        self, pid: int, group: Cgroup, command_id: str | None = None, root_pid: int | None = None
    ) -> None:
        """With a mark there is no pid namespace, whose first process, `root`, takes all others with it."""
        self.pid, self._group, self._command_id = pid, group, command_id
        self.has_pid_namespace = command_id is None
        self.root_pid = root_pid or (_first_child(pid) if self.has_pid_namespace else pid)
        self.pidfd = os.pidfd_open(pid)
        try:
            self._root_pidfd = os.pidfd_open(self.root_pid)
        except OSError:
            os.close(self.pidfd)
            raise
        self._cpu_ns_at_pause: dict[str, int] | None = None  # what each thread had used when all were stopped

    def pids(self) -> list[int]:
        """Every process that runs the agent's code."""
        found = set(self._group.pids) if self._group.folders else set(list_process_tree(self.root_pid))
        if self._command_id:
            found |= self._find_pids_by_command_id()
        return sorted(found - ({self.pid} if self.pid != self.root_pid else set()))

    def _find_pids_by_command_id(self) -> set[int]:
        wanted, found = f"{COMMAND_ID_VARIABLE}={self._command_id}".encode(), set()
        for name in os.listdir("/proc"):  # noqa: PTH208
            with suppress(OSError):
                if name.isdigit() and wanted in Path(f"/proc/{name}/environ").read_bytes().split(b"\0"):
                    found.add(int(name))
        return found

    def find_mapped_inodes(self) -> set[int]:
        """The inodes of files that its memory is: to write there leaves no trace on a file that is not on disk yet."""
        return {inode for pid in self.pids() for inode in _writable_mapped_inodes(pid)}

    def pause(self) -> None:
        """Stop all where they are, so that nothing changes between two steps."""
        deadline = (
            time.monotonic() + 1
        )  # one that waits in the kernel for a stopped child never shows as stopped
        while (moving := [pid for pid in self.pids() if _is_running(pid)]) and time.monotonic() < deadline:
            _send_signal(moving, signal.SIGSTOP)
        before = self._read_cpu_ns()
        time.sleep(SETTLE_INTERVAL_S)
        while (now := self._read_cpu_ns()) != before and time.monotonic() < deadline:
            before = now
            time.sleep(SETTLE_INTERVAL_S)
        self._cpu_ns_at_pause = now

    @property
    def cpu_seconds_while_paused(self) -> float:
        """Seconds of processor time while all are stopped; without end if threads came or went.

        Whoever is stopped can have had himself woken: timers and sockets send any signal, and so the one that wakes.
        """
        if self._cpu_ns_at_pause is None:
            return 0.0
        now = self._read_cpu_ns()
        same = now.keys() == self._cpu_ns_at_pause.keys()
        return (sum(now.values()) - sum(self._cpu_ns_at_pause.values())) / 1e9 if same else math.inf

    def _read_cpu_ns(self) -> dict[str, int]:
        """Processor time of every thread."""
        return {task: spent for pid in self.pids() for task, spent in _read_thread_cpu_ns(pid).items()}

    def resume(self) -> None:
        """Let all go on."""
        self._cpu_ns_at_pause = None
        _send_signal(self.pids(), signal.SIGCONT)

    def kill(self) -> None:
        """Kill all, and wait until the last is gone."""
        for pidfd in (self._root_pidfd, self.pidfd):
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        poll = select.poll()
        poll.register(self._root_pidfd, select.POLLIN)
        gone = bool(poll.poll(KILL_TIMEOUT_S * 1000))
        deadline = time.monotonic() + KILL_TIMEOUT_S
        while self._command_id and gone and (left := [pid for pid in self.pids() if _is_running(pid)]):
            _send_signal(left, signal.SIGKILL)
            gone = time.monotonic() < deadline
        if not gone:
            raise SandboxFault("a command of the agent does not end, though it was killed")

    def close(self) -> None:
        """Forget the processes, which have ended."""
        for pidfd in (self.pidfd, self._root_pidfd):
            os.close(pidfd)


def _first_child(pid: int) -> int:
    """The first process of the namespace that `pid`, which is bwrap, has made."""
    with suppress(OSError, ValueError, IndexError):  # not every kernel has this file
        return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])
    return (*list_process_tree(pid), pid)[1]


def _is_running(pid: int) -> bool:
    """Whether any of its threads can still do something."""
    with suppress(OSError):
        tasks = os.listdir(f"/proc/{pid}/task")  # noqa: PTH208
        return any(
            fields[0] not in "TtZX" for task in tasks if (fields := read_proc_stat(f"{pid}/task/{task}"))
        )
    return False


def _writable_mapped_inodes(pid: int) -> Iterator[int]:
    with suppress(OSError), open(f"/proc/{pid}/maps", "rb") as maps:  # noqa: PTH123 - many lines, many times
        for line in maps:
            place, rights, _, _, inode, *_ = line.split(None, 5)
            if rights.endswith(b"s") and inode != b"0" and _is_mapped_writable(pid, place):
                yield int(inode)


def _is_mapped_writable(pid: int, place: bytes) -> bool:
    """Whether it was mapped by somebody who may write; what it may do now can change at any time."""
    start, end = (int(address, 16) for address in place.split(b"-"))
    try:
        return bool(os.lstat(f"/proc/{pid}/map_files/{start:x}-{end:x}").st_mode & 0o200)
    except OSError:
        return True


def _read_thread_cpu_ns(pid: int) -> dict[str, int]:
    """Nanoseconds of each thread of a process, if the kernel counts so exactly."""
    found = {}
    with suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208
            place = f"{pid}/task/{task}"
            with suppress(OSError):
                found[place] = int(Path(f"/proc/{place}/schedstat").read_text().split()[0])
                continue
            if fields := read_proc_stat(place):
                found[place] = (int(fields[11]) + int(fields[12])) * 10_000_000
    return found


def _send_signal(pids: list[int], number: int) -> None:
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):  # unsandboxed, it may have become another user
            os.kill(pid, number)
