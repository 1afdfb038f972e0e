import errno
import json
import platform
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from mlagentbench.errors import SandboxFault
from mlagentbench.sandbox import seccomp

MACHINES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
HOST_MACHINE = platform.machine()
ALLOW, KILL = 0x7FFF0000, 0x80000000
DEPENDS_ON_ARGUMENTS = {
    "clone",
    "close_range",
    "fcntl",
    "ioctl",
    "personality",
    "setsockopt",
    "socket",
    "socketpair",
}
APPEARS_MISSING = {
    "clone3",
    "io_uring_enter",
    "io_uring_register",
    "io_uring_setup",
    "landlock_create_ruleset",
}

both_machines = pytest.mark.parametrize("machine", MACHINES)
needs_bwrap = pytest.mark.skipif(
    HOST_MACHINE not in MACHINES or not shutil.which("bwrap"), reason="needs bubblewrap"
)


def errno_result(error: int) -> int:
    return 0x00050000 | error


def run_filter(code: bytes, arch: int, number: int, *arguments: int) -> tuple[int, int]:
    """Interpret the filter as the kernel does: its result, and the number of instructions executed."""
    data = struct.pack("<IIQ6Q", number, arch, 0, *arguments, *[0] * (6 - len(arguments)))
    instructions = list(struct.iter_unpack("<HBBI", code))
    tests = {0x15: int.__eq__, 0x25: int.__gt__, 0x35: int.__ge__, 0x45: lambda a, k: bool(a & k)}
    at = accumulator = steps = 0
    while True:
        operation, true, false, value = instructions[at]
        at, steps = at + 1, steps + 1
        if operation == 0x06:
            return value, steps
        if operation == 0x20:
            (accumulator,) = struct.unpack_from("<I", data, value)
        elif operation == 0x54:
            accumulator &= value
        elif operation == 0x05:
            at += value
        else:
            at += true if tests[operation](accumulator, value) else false


def filter_result(machine: str, name: str, *arguments: int) -> int:
    number = seccomp.filtered_syscall_numbers(machine)[name]
    return run_filter(seccomp.build_filter(machine), MACHINES[machine], number, *arguments)[0]


@both_machines
def test_every_call_in_the_table_is_refused_and_every_other_number_is_allowed(machine: str) -> None:
    names = {number: name for name, number in seccomp.filtered_syscall_numbers(machine).items()}
    code = seccomp.build_filter(machine)
    for number in range(1024):
        name = names.get(number)
        if name in DEPENDS_ON_ARGUMENTS:
            continue
        expected = (
            errno_result(errno.ENOSYS)
            if name in APPEARS_MISSING
            else errno_result(errno.EPERM)
            if name
            else ALLOW
        )
        assert run_filter(code, MACHINES[machine], number)[0] == expected, (number, name)


@both_machines
def test_a_call_of_another_architecture_kills_the_process(machine: str) -> None:
    code = seccomp.build_filter(machine)
    for arch in (0x40000003, 0x40000028, *(arch for name, arch in MACHINES.items() if name != machine)):
        assert run_filter(code, arch, 0)[0] == KILL


def test_the_x32_numbers_look_absent() -> None:
    code = seccomp.build_filter("x86_64")
    for number in (0x40000000, 0x40000000 | 101, 0x40000000 | 521, 0xFFFFFFFF):
        assert run_filter(code, MACHINES["x86_64"], number)[0] == errno_result(errno.ENOSYS)


@both_machines
def test_clone_may_start_threads_and_processes_but_no_namespace(machine: str) -> None:
    assert filter_result(machine, "clone", 0x3D0F00) == ALLOW  # pthread_create
    assert filter_result(machine, "clone", 0x1200011) == ALLOW  # fork
    for flag in (0x00020000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000):
        assert filter_result(machine, "clone", flag | 17) == errno_result(errno.EPERM)


@both_machines
def test_no_thread_has_descriptors_that_its_process_does_not_show(machine: str) -> None:
    assert filter_result(machine, "clone", 0x3D0F00 & ~0x400) == errno_result(errno.EPERM)
    assert filter_result(machine, "close_range", 3, 0xFFFFFFFF, 0) == ALLOW
    assert filter_result(machine, "close_range", 3, 0xFFFFFFFF, 4) == ALLOW  # only sets a flag
    assert filter_result(machine, "close_range", 3, 0xFFFFFFFF, 2) == errno_result(errno.EINVAL)


@both_machines
def test_system_v_shared_memory_needs_a_cgroup_that_counts_it(machine: str) -> None:
    number = {"x86_64": 29, "aarch64": 194}[machine]  # shmget
    for has_memory_cgroup, expected in ((True, ALLOW), (False, errno_result(errno.ENOSYS))):
        code = seccomp.build_filter(machine, has_memory_cgroup)
        assert run_filter(code, MACHINES[machine], number)[0] == expected


@both_machines
def test_sockets_are_local_tcp_udp_or_routing_only(machine: str) -> None:
    cloexec = 0o2000000
    for socket in [(1, 1, 0), (1, 5, 0), (2, 1, 6), (2, 2, 17), (10, 1 | cloexec, 0), (16, 3, 0)]:
        assert filter_result(machine, "socket", *socket) == ALLOW
    for domain, protocol in [(0, 0), (17, 0), (38, 0), (40, 0), (44, 0), (16, 9), (16, 12)]:
        assert filter_result(machine, "socket", domain, 3, protocol) == errno_result(errno.EAFNOSUPPORT)
    for domain in (2, 10):
        assert filter_result(machine, "socket", domain, 1, 132) == errno_result(errno.EPROTONOSUPPORT)  # SCTP
        assert filter_result(machine, "socket", domain, 6 | cloexec, 0) == errno_result(
            errno.ESOCKTNOSUPPORT
        )  # DCCP
    assert filter_result(machine, "socketpair", 1, 1, 0) == ALLOW
    assert filter_result(machine, "socketpair", 30, 1, 0) == errno_result(errno.EAFNOSUPPORT)  # TIPC


@both_machines
def test_the_upper_half_of_an_argument_is_ignored(machine: str) -> None:
    high = 0x1_0000_0000
    assert filter_result(machine, "ioctl", 0, high | 0x5412) == errno_result(errno.EPERM)
    assert filter_result(machine, "socket", high | 40, 1, 0) == errno_result(errno.EAFNOSUPPORT)
    assert filter_result(machine, "clone", high | 0x10000000) == errno_result(errno.EPERM)


@both_machines
def test_terminal_input_cannot_be_injected_and_address_randomisation_stays_on(machine: str) -> None:
    assert filter_result(machine, "ioctl", 0, 0x5413) == ALLOW  # TIOCGWINSZ
    for request in (0x5412, 0x541C, 0x5423):
        assert filter_result(machine, "ioctl", 0, request) == errno_result(errno.EPERM)
    assert (
        filter_result(machine, "personality", 0) == filter_result(machine, "personality", 0xFFFFFFFF) == ALLOW
    )
    assert filter_result(machine, "personality", 0x0040000) == errno_result(errno.EPERM)


@both_machines
def test_so_linger_and_leases_are_refused_and_neighbouring_options_are_allowed(machine: str) -> None:
    assert filter_result(machine, "setsockopt", 3, 1, 13) == errno_result(0)  # succeeds without effect
    assert filter_result(machine, "fcntl", 3, 1024) == errno_result(errno.EPERM)
    for option in ((1, 2), (6, 13), (0, 13), (1, 12)):
        assert filter_result(machine, "setsockopt", 3, *option) == ALLOW
    for command in (0, 1, 2, 3, 4, 7, 10, 1023, 1025, 1030, 1033):
        assert filter_result(machine, "fcntl", 3, command) == ALLOW


@both_machines
def test_every_call_takes_only_a_few_instructions(machine: str) -> None:
    code = seccomp.build_filter(machine)
    assert max(run_filter(code, MACHINES[machine], number)[1] for number in range(1024)) <= 24


def test_an_unsupported_architecture_is_a_fault_that_names_it() -> None:
    with pytest.raises(SandboxFault, match="riscv64"):
        seccomp.build_filter("riscv64")


@pytest.mark.parametrize(
    ("machine", "headers"),
    [
        ("x86_64", ["/usr/include/x86_64-linux-gnu/asm/unistd_64.h", "/usr/include/asm/unistd_64.h"]),
        ("aarch64", ["/usr/include/asm-generic/unistd.h"]),
    ],
)
def test_the_numbers_match_the_kernel_headers(machine: str, headers: list[str]) -> None:
    header = next((path for path in map(Path, headers) if path.exists()), None)
    if header is None:
        pytest.skip("linux-libc-dev is not installed")
    known = {n: int(v) for n, v in re.findall(r"#define\s+__NR(?:3264)?_(\w+)\s+(\d+)", header.read_text())}
    newer = {
        "statmount",
        "listmount",
        "open_tree_attr",
        "listns",
    }  # than Linux 6.1, whose headers may be these
    for name, number in seccomp.filtered_syscall_numbers(machine).items():
        assert known.get(name, number if name in newer else None) == number, name


def in_bwrap(script: str, *arguments: str, filtered: bool = True) -> subprocess.CompletedProcess[str]:
    """Run a script in a sandbox that differs from the real one only in what it can read."""
    with tempfile.TemporaryFile() as file:
        file.write(seccomp.build_filter())
        file.seek(0)
        isolation = ["--unshare-all", "--unshare-user", "--disable-userns", "--cap-drop", "ALL"]
        mounts = ["--die-with-parent", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]
        seccomp_options = ["--seccomp", str(file.fileno())] if filtered else []
        python = [sys.executable, "-W", "error", "-c", script, *arguments]
        return subprocess.run(
            ["bwrap", *isolation, *mounts, *seccomp_options, *python],
            pass_fds=[file.fileno()],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )


MAKE_CALLS = """
import ctypes, json, sys
libc = ctypes.CDLL(None, use_errno=True)
def attempt(number, *arguments):
    ctypes.set_errno(0)
    libc.syscall(*(ctypes.c_long(value) for value in (number, *arguments, *[0] * (6 - len(arguments)))))
    return ctypes.get_errno()
print(json.dumps([attempt(*call) for call in json.loads(sys.argv[1])]))
"""


def list_errors(calls: list[tuple[int, ...]], filtered: bool = True) -> list[int]:
    completed = in_bwrap(MAKE_CALLS, json.dumps(calls), filtered=filtered)
    assert completed.returncode == 0, completed.stderr
    return json.loads(completed.stdout)


@needs_bwrap
def test_the_kernel_refuses_every_plain_call_in_the_table() -> None:
    plain = {
        name: n for name, n in seccomp.filtered_syscall_numbers().items() if name not in DEPENDS_ON_ARGUMENTS
    }
    expected = {name: errno.ENOSYS if name in APPEARS_MISSING else errno.EPERM for name in plain}
    assert dict(zip(plain, list_errors([(n,) for n in plain.values()]), strict=True)) == expected


@needs_bwrap
def test_without_the_filter_the_namespaces_alone_allow_these_calls() -> None:
    numbers = seccomp.filtered_syscall_numbers()
    reading, tracing = (numbers["process_vm_readv"], 1), (numbers["ptrace"], 0)
    harmless = [(numbers["unshare"], 0), (numbers["personality"], 0x0040000), reading, tracing]
    assert errno.EPERM not in list_errors(harmless, filtered=False)
    assert set(list_errors(harmless)) == {errno.EPERM}


@needs_bwrap
def test_the_kernel_filters_clone_socket_ioctl_and_personality_by_their_arguments() -> None:
    numbers = seccomp.filtered_syscall_numbers()
    expected = {
        (numbers["clone"], 0x10000000 | 17): errno.EPERM,
        (numbers["socket"], 1, 1, 0): 0,
        (numbers["socket"], 2, 1, 0): 0,
        (numbers["socket"], 10, 2, 17): 0,
        (numbers["socket"], 16, 3, 0): 0,
        (numbers["socket"], 16, 3, 12): errno.EAFNOSUPPORT,
        (numbers["socket"], 38, 5, 0): errno.EAFNOSUPPORT,
        (numbers["socket"], 40, 1, 0): errno.EAFNOSUPPORT,
        (numbers["socket"], 2, 1, 132): errno.EPROTONOSUPPORT,
        (numbers["socket"], 2, 3, 1): errno.ESOCKTNOSUPPORT,
        (numbers["socketpair"], 2, 1, 0): errno.EAFNOSUPPORT,
        (numbers["ioctl"], -1, 0x5412): errno.EPERM,
        (numbers["ioctl"], -1, 0x541C): errno.EPERM,
        (numbers["ioctl"], -1, 0x5413): errno.EBADF,
        (numbers["personality"], 0xFFFFFFFF): 0,
        (numbers["personality"], 0x0040000): errno.EPERM,
    }
    assert dict(zip(expected, list_errors(list(expected)), strict=True)) == expected


@needs_bwrap
@pytest.mark.skipif(HOST_MACHINE != "x86_64", reason="int 0x80 is x86 machine code")
def test_a_32_bit_call_kills_the_process() -> None:
    getpid = "b814000000cd80c3"  # mov eax, 20; int 0x80; ret
    completed = in_bwrap(f"""
import ctypes, mmap
page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
page.write(bytes.fromhex("{getpid}"))
ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))()
""")
    # bwrap passes a death by signal on as 128 + signal; a kernel without 32-bit support gives SIGSEGV
    assert completed.returncode in {128 + signal.SIGSYS, 128 + signal.SIGSEGV}


ORDINARY_CODE = """
import asyncio, concurrent.futures, importlib.util, math, mmap, multiprocessing, socket, subprocess, sys

for method in ("fork", "spawn"):
    with multiprocessing.get_context(method).Pool(2) as pool:
        assert pool.map(math.sqrt, [4.0, 9.0]) == [2.0, 3.0]

with concurrent.futures.ThreadPoolExecutor(4) as threads:
    assert list(threads.map(abs, range(-3, 0))) == [3, 2, 1]
assert subprocess.run(["/bin/sh", "-c", "echo hi"], capture_output=True, check=True).stdout == b"hi\\n"

async def chat():
    async def answer(reader, writer):
        writer.write((await reader.readline()).upper())
        writer.close()
    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(b"hello\\n")
        assert await reader.read() == b"HELLO\\n"
        writer.close()
        await writer.wait_closed()
    child = await asyncio.create_subprocess_exec(sys.executable, "-c", "raise SystemExit(3)")
    assert await child.wait() == 3
asyncio.run(chat())

assert "lo" in [name for _, name in socket.if_nameindex()]
assert socket.getaddrinfo("127.0.0.1", 80) and socket.getaddrinfo("localhost", 80)
left, right = socket.socketpair()
left.sendall(b"x")
assert right.recv(1) == b"x"
left.close(), right.close()

with mmap.mmap(-1, 1 << 20) as memory:
    memory[:2] = b"ok"
if importlib.util.find_spec("numpy"):
    import numpy
    assert (numpy.ones((300, 300)) @ numpy.ones((300, 300)))[0, 0] == 300
print("everything works")
"""


@needs_bwrap
def test_threads_processes_asyncio_loopback_and_numpy_still_work() -> None:
    completed = in_bwrap(ORDINARY_CODE)
    assert (completed.returncode, completed.stdout, completed.stderr) == (0, "everything works\n", "")
