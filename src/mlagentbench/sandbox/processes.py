"""The processes of one command: find, pause, resume and kill all of them together."""

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

KILL_TIMEOUT_S = 30  # for killed processes to exit; freeing many gigabytes takes a while
SETTLE_INTERVAL_S = 0.001  # a process that is shown as stopped may still be about to stop
# A process that keeps replacing itself by a child can be missed by one look at all processes.
LOOKS_UNTIL_PAUSED = 5
PF_EXITING = 4  # in the kernel's flags of a process
HAS_CHILDREN_FILES = Path("/proc/thread-self/children").exists()  # not every kernel has them
# In the environment of unsandboxed commands, to find their daemons.
COMMAND_ID_VARIABLE = "MLAGENTBENCH_COMMAND"


def read_proc_stat(pid: int | str) -> list[str]:
    """The fields of /proc/<pid>/stat, beginning with the state; [] if there is no such process."""
    with suppress(OSError):
        stat = Path(f"/proc/{pid}/stat").read_bytes()  # the process name before the state may be any bytes
        return stat.rpartition(b")")[2].decode().split()
    return []


def is_alive(pid: int | str) -> bool:
    """Whether a process is running, and not about to exit."""
    fields = read_proc_stat(pid)
    return bool(fields) and fields[0] not in "ZX" and not int(fields[6]) & PF_EXITING


def find_living_thread(pid: int) -> str:
    """The name in /proc of a thread that shows what its process holds: mostly the process itself.

    A process whose first thread has exited shows nothing, although its other threads may continue.
    """
    if not is_alive(pid):
        with suppress(OSError):
            for name in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208
                if is_alive(thread := f"{pid}/task/{name}"):
                    return thread
    return str(pid)


def list_process_tree(pid: int) -> list[int]:
    """A process and all its descendants, parents before their children."""
    if not HAS_CHILDREN_FILES:
        return _list_process_tree_by_parents(pid)
    pids = [pid]
    for parent in pids:
        with suppress(OSError):
            for thread in os.listdir(f"/proc/{parent}/task"):  # noqa: PTH208
                with suppress(OSError), open(f"/proc/{parent}/task/{thread}/children", "rb") as file:  # noqa: PTH123
                    pids += map(int, file.read().split())
    return pids


def _list_process_tree_by_parents(pid: int) -> list[int]:
    """The same, for kernels without lists of children; too slow to catch processes that keep forking."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208 - thousands of names, many times
        if name.isdigit() and (fields := read_proc_stat(name)):
            children.setdefault(int(fields[1]), []).append(int(name))
    pids = [pid]
    for parent in pids:
        pids += children.get(parent, [])
    return pids


def wait_or_kill(child: "subprocess.Popen[bytes]", timeout_s: float) -> None:
    """Wait for a child that should be exiting; kill it if it does not exit in time."""
    try:
        child.wait(timeout_s)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


class ProcessTree:
    """A command and everything that it started, including daemons."""

    def __init__(
        self,
        pid: int,
        cgroup: Cgroup,
        command_id: str | None = None,
        root_pid: int | None = None,
        is_supervised: bool = False,
    ) -> None:
        """Track the processes of a command.

        Args:
            pid: The process that the harness started.
            cgroup: The cgroup of the command.
            command_id: Identifies the command's processes where there is no pid namespace.
            root_pid: First process of the pid namespace, with which all others die; found by itself if None.
            is_supervised: The process is a supervisor: orphans of the command become its children, and it
                exits when all are dead.
        """
        self.pid, self._cgroup, self._command_id, self._is_supervised = pid, cgroup, command_id, is_supervised
        self.has_pid_namespace = command_id is None and not is_supervised
        self.root_pid = root_pid or (pid if command_id else _first_child(pid))
        self.pidfd = os.pidfd_open(pid)
        try:
            self._root_pidfd = os.pidfd_open(self.root_pid)
        except OSError:
            os.close(self.pidfd)
            raise
        self._cpu_ns_at_pause: dict[str, int] | None = None  # of each thread

    def pids(self) -> list[int]:
        """Every process that runs the agent's code."""
        if self._cgroup.folders:
            pids = set(self._cgroup.pids)
        else:
            pids = set(list_process_tree(self.pid if self._is_supervised else self.root_pid))
        if self._command_id:
            pids |= self._find_pids_by_command_id()
        return sorted(pids - ({self.pid} if self.pid != self.root_pid else set()))

    def _find_pids_by_command_id(self) -> set[int]:
        variable, pids = f"{COMMAND_ID_VARIABLE}={self._command_id}".encode(), set()
        for name in os.listdir("/proc"):  # noqa: PTH208
            with suppress(OSError):
                if name.isdigit() and variable in Path(f"/proc/{name}/environ").read_bytes().split(b"\0"):
                    pids.add(int(name))
        return pids

    def find_mapped_inodes(self) -> set[int]:
        """The inodes of files that the processes can write through shared mappings.

        Such a write leaves no trace in the timestamps of a file that has not been written back to disk yet.
        """
        return {inode for pid in self.pids() for inode in _writable_mapped_inodes(pid)}

    def pause(self) -> None:
        """Stop all processes, so that nothing changes between two steps."""
        # A process that waits in the kernel for a stopped child never shows as stopped.
        deadline, looks_left = time.monotonic() + 1, LOOKS_UNTIL_PAUSED
        while looks_left and time.monotonic() < deadline:
            running = [pid for pid in self.pids() if _is_running(pid)]
            _send_signal(running, signal.SIGSTOP)
            looks_left = LOOKS_UNTIL_PAUSED if running else looks_left - 1
        before = self._read_cpu_ns()
        time.sleep(SETTLE_INTERVAL_S)
        while (now := self._read_cpu_ns()) != before and time.monotonic() < deadline:
            before = now
            time.sleep(SETTLE_INTERVAL_S)
        self._cpu_ns_at_pause = now

    @property
    def cpu_seconds_while_paused(self) -> float:
        """CPU time used since the pause; infinite if threads started or exited.

        A stopped process can be resumed from inside: timers and sockets can send any signal, SIGCONT
        included.
        """
        if self._cpu_ns_at_pause is None:
            return 0.0
        now = self._read_cpu_ns()
        if now.keys() != self._cpu_ns_at_pause.keys():
            return math.inf
        return (sum(now.values()) - sum(self._cpu_ns_at_pause.values())) / 1e9

    def _read_cpu_ns(self) -> dict[str, int]:
        """CPU time of every thread."""
        return {thread: cpu_ns for pid in self.pids() for thread, cpu_ns in _read_thread_cpu_ns(pid).items()}

    def resume(self) -> None:
        """Let all processes continue."""
        self._cpu_ns_at_pause = None
        _send_signal(self.pids(), signal.SIGCONT)

    def kill(self) -> None:
        """Kill all processes, and wait until the last one has exited."""
        if self._is_supervised:
            kill_together(self.pids())
        for pidfd in (self._root_pidfd, *([] if self._is_supervised else [self.pidfd])):
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        poll = select.poll()
        # A supervisor kills the others, and then exits.
        poll.register(self.pidfd if self._is_supervised else self._root_pidfd, select.POLLIN)
        deadline = time.monotonic() + KILL_TIMEOUT_S
        in_time = bool(poll.poll(1 if self._is_supervised else KILL_TIMEOUT_S * 1000))
        while self._is_supervised and not in_time and time.monotonic() < deadline:
            kill_together(self.pids())  # with many processes, the supervisor may need help
            in_time = bool(poll.poll(10))
        while self._command_id and in_time and (left := [pid for pid in self.pids() if _is_running(pid)]):
            _send_signal(left, signal.SIGKILL)
            in_time = time.monotonic() < deadline
        if not in_time:
            raise SandboxFault("A command of the agent is still alive after being killed.")

    def close(self) -> None:
        """Close the descriptors of processes that have exited."""
        for pidfd in (self.pidfd, self._root_pidfd):
            os.close(pidfd)


def _first_child(pid: int) -> int:
    """The first process of the namespace that bwrap, which is `pid`, has created."""
    return (*list_process_tree(pid), pid)[1]


def count_threads(pids: list[int]) -> int:
    """How many threads these processes have: the kernel limits threads, not processes."""
    return sum(int(fields[17]) for pid in pids if (fields := read_proc_stat(pid)))


def _is_running(pid: int) -> bool:
    """Whether any of its threads is neither stopped nor dead."""
    with suppress(OSError):
        threads = os.listdir(f"/proc/{pid}/task")  # noqa: PTH208
        states = (fields[0] for thread in threads if (fields := read_proc_stat(f"{pid}/task/{thread}")))
        return any(state not in "TtZX" for state in states)
    return False


def _writable_mapped_inodes(pid: int) -> Iterator[int]:
    thread = find_living_thread(pid)
    with suppress(OSError), open(f"/proc/{thread}/maps", "rb") as maps:  # noqa: PTH123 - many lines, many times
        for line in maps:
            addresses, permissions, _, _, inode, *_ = line.split(None, 5)
            if permissions.endswith(b"s") and inode != b"0" and _is_mapped_writable(pid, addresses):
                yield int(inode)


def _is_mapped_writable(pid: int, addresses: bytes) -> bool:
    """Whether the file was opened for writing; the permissions of the mapping can change at any time."""
    start, end = (int(address, 16) for address in addresses.split(b"-"))
    try:
        return bool(os.lstat(f"/proc/{pid}/map_files/{start:x}-{end:x}").st_mode & 0o200)
    except OSError:
        return True


def _read_thread_cpu_ns(pid: int) -> dict[str, int]:
    """CPU time of each thread of a process, in nanoseconds where the kernel is that precise."""
    cpu_ns = {}
    with suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208
            thread = f"{pid}/task/{name}"
            with suppress(OSError):
                cpu_ns[thread] = int(Path(f"/proc/{thread}/schedstat").read_text().split()[0])
                continue
            if fields := read_proc_stat(thread):
                cpu_ns[thread] = (int(fields[11]) + int(fields[12])) * 10_000_000
    return cpu_ns


def kill_together(pids: list[int]) -> None:
    """Kill processes; all are stopped first, because a fork bomb replaces every process that is killed."""
    _send_signal(pids, signal.SIGSTOP)
    _send_signal(pids, signal.SIGKILL)


def _send_signal(pids: list[int], signal_number: int) -> None:
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):  # unsandboxed, it may have changed its user
            os.kill(pid, signal_number)
