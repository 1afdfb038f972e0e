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
HERE = platform.machine()
ALLOW, KILL = 0x7FFF0000, 0x80000000
LOOKS_AT_ARGUMENTS = {"clone", "socket", "socketpair", "setsockopt", "ioctl", "fcntl", "personality"}
LOOKS_ABSENT = {"clone3", "io_uring_setup", "io_uring_enter", "io_uring_register"}

both_machines = pytest.mark.parametrize("machine", MACHINES)
real = pytest.mark.skipif(HERE not in MACHINES or not shutil.which("bwrap"), reason="needs bubblewrap")


def refused(error: int) -> int:
    return 0x00050000 | error


def judge(code: bytes, arch: int, number: int, *arguments: int) -> tuple[int, int]:
    """Interpret the filter as the kernel does: its verdict, and the instructions that it took."""
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


def verdict(machine: str, name: str, *arguments: int) -> int:
    number = seccomp.filtered_syscall_numbers(machine)[name]
    return judge(seccomp.build_filter(machine), MACHINES[machine], number, *arguments)[0]


@both_machines
def test_every_call_in_the_table_is_refused_and_every_other_number_is_allowed(machine: str) -> None:
    names = {number: name for name, number in seccomp.filtered_syscall_numbers(machine).items()}
    code = seccomp.build_filter(machine)
    for number in range(1024):
        name = names.get(number)
        if name in LOOKS_AT_ARGUMENTS:
            continue
        expected = refused(errno.ENOSYS) if name in LOOKS_ABSENT else refused(errno.EPERM) if name else ALLOW
        assert judge(code, MACHINES[machine], number)[0] == expected, (number, name)


@both_machines
def test_a_call_of_another_architecture_kills_the_process(machine: str) -> None:
    code = seccomp.build_filter(machine)
    for arch in (0x40000003, 0x40000028, *(arch for name, arch in MACHINES.items() if name != machine)):
        assert judge(code, arch, 0)[0] == KILL


def test_the_x32_numbers_look_absent() -> None:
    code = seccomp.build_filter("x86_64")
    for number in (0x40000000, 0x40000000 | 101, 0x40000000 | 521, 0xFFFFFFFF):
        assert judge(code, MACHINES["x86_64"], number)[0] == refused(errno.ENOSYS)


@both_machines
def test_clone_may_start_threads_and_processes_but_no_namespace(machine: str) -> None:
    assert verdict(machine, "clone", 0x3D0F00) == ALLOW  # pthread_create
    assert verdict(machine, "clone", 0x1200011) == ALLOW  # fork
    for flag in (0x00020000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000):
        assert verdict(machine, "clone", flag | 17) == refused(errno.EPERM)


@both_machines
def test_sockets_are_local_tcp_udp_or_routing_only(machine: str) -> None:
    cloexec = 0o2000000
    for socket in [(1, 1, 0), (1, 5, 0), (2, 1, 6), (2, 2, 17), (10, 1 | cloexec, 0), (16, 3, 0)]:
        assert verdict(machine, "socket", *socket) == ALLOW
    for domain, protocol in [(0, 0), (17, 0), (38, 0), (40, 0), (44, 0), (16, 9), (16, 12)]:
        assert verdict(machine, "socket", domain, 3, protocol) == refused(errno.EAFNOSUPPORT)
    for domain in (2, 10):
        assert verdict(machine, "socket", domain, 1, 132) == refused(errno.EPROTONOSUPPORT)  # SCTP
        assert verdict(machine, "socket", domain, 6 | cloexec, 0) == refused(errno.ESOCKTNOSUPPORT)  # DCCP
    assert verdict(machine, "socketpair", 1, 1, 0) == ALLOW
    assert verdict(machine, "socketpair", 30, 1, 0) == refused(errno.EAFNOSUPPORT)  # TIPC


@both_machines
def test_the_upper_half_of_an_argument_hides_nothing(machine: str) -> None:
    high = 0x1_0000_0000
    assert verdict(machine, "ioctl", 0, high | 0x5412) == refused(errno.EPERM)
    assert verdict(machine, "socket", high | 40, 1, 0) == refused(errno.EAFNOSUPPORT)
    assert verdict(machine, "clone", high | 0x10000000) == refused(errno.EPERM)


@both_machines
def test_terminals_cannot_be_typed_into_and_randomisation_stays_on(machine: str) -> None:
    assert verdict(machine, "ioctl", 0, 0x5413) == ALLOW  # TIOCGWINSZ
    for request in (0x5412, 0x541C, 0x5423):
        assert verdict(machine, "ioctl", 0, request) == refused(errno.EPERM)
    assert verdict(machine, "personality", 0) == verdict(machine, "personality", 0xFFFFFFFF) == ALLOW
    assert verdict(machine, "personality", 0x0040000) == refused(errno.EPERM)


@both_machines
def test_no_socket_lingers_and_no_file_is_leased_and_what_is_near_is_allowed(machine: str) -> None:
    assert verdict(machine, "setsockopt", 3, 1, 13) == refused(0)  # it seems to work
    assert verdict(machine, "fcntl", 3, 1024) == refused(errno.EPERM)
    for option in ((1, 2), (6, 13), (0, 13), (1, 12)):
        assert verdict(machine, "setsockopt", 3, *option) == ALLOW
    for command in (0, 1, 2, 3, 4, 7, 10, 1023, 1025, 1030, 1033):
        assert verdict(machine, "fcntl", 3, command) == ALLOW


@both_machines
def test_every_call_is_judged_in_a_few_steps(machine: str) -> None:
    code = seccomp.build_filter(machine)
    assert max(judge(code, MACHINES[machine], number)[1] for number in range(1024)) <= 24


def test_a_machine_without_a_table_is_a_fault_that_names_it() -> None:
    with pytest.raises(SandboxFault, match="riscv64"):
        seccomp.build_filter("riscv64")


@pytest.mark.parametrize(
    ("machine", "headers"),
    [
        ("x86_64", ["/usr/include/x86_64-linux-gnu/asm/unistd_64.h", "/usr/include/asm/unistd_64.h"]),
        ("aarch64", ["/usr/include/asm-generic/unistd.h"]),
    ],
)
def test_the_numbers_are_those_of_the_kernel_headers(machine: str, headers: list[str]) -> None:
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
    """Run a script in a sandbox that differs from the real one only in what it may read."""
    with tempfile.TemporaryFile() as file:
        file.write(seccomp.build_filter())
        file.seek(0)
        walls = ["--unshare-all", "--unshare-user", "--disable-userns", "--cap-drop", "ALL"]
        mounts = ["--die-with-parent", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]
        seal = ["--seccomp", str(file.fileno())] if filtered else []
        python = [sys.executable, "-W", "error", "-c", script, *arguments]
        return subprocess.run(
            ["bwrap", *walls, *mounts, *seal, *python],
            pass_fds=[file.fileno()],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )


CALLS = """
import ctypes, json, sys
libc = ctypes.CDLL(None, use_errno=True)
def attempt(number, *arguments):
    ctypes.set_errno(0)
    libc.syscall(*(ctypes.c_long(value) for value in (number, *arguments, *[0] * (6 - len(arguments)))))
    return ctypes.get_errno()
print(json.dumps([attempt(*call) for call in json.loads(sys.argv[1])]))
"""


def errors_of(calls: list[tuple[int, ...]], filtered: bool = True) -> list[int]:
    done = in_bwrap(CALLS, json.dumps(calls), filtered=filtered)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@real
def test_the_kernel_refuses_every_plain_call_in_the_table() -> None:
    plain = {
        name: n for name, n in seccomp.filtered_syscall_numbers().items() if name not in LOOKS_AT_ARGUMENTS
    }
    expected = {name: errno.ENOSYS if name in LOOKS_ABSENT else errno.EPERM for name in plain}
    assert dict(zip(plain, errors_of([(n,) for n in plain.values()]), strict=True)) == expected


@real
def test_without_the_filter_the_sandbox_alone_lets_these_calls_through() -> None:
    of = seccomp.filtered_syscall_numbers()
    reading, tracing = (of["process_vm_readv"], 1), (of["ptrace"], 0)
    harmless = [(of["unshare"], 0), (of["personality"], 0x0040000), reading, tracing]
    assert errno.EPERM not in errors_of(harmless, filtered=False)
    assert set(errors_of(harmless)) == {errno.EPERM}


@real
def test_the_kernel_judges_clone_socket_ioctl_and_personality_by_their_arguments() -> None:
    of = seccomp.filtered_syscall_numbers()
    expected = {
        (of["clone"], 0x10000000 | 17): errno.EPERM,
        (of["socket"], 1, 1, 0): 0,
        (of["socket"], 2, 1, 0): 0,
        (of["socket"], 10, 2, 17): 0,
        (of["socket"], 16, 3, 0): 0,
        (of["socket"], 16, 3, 12): errno.EAFNOSUPPORT,
        (of["socket"], 38, 5, 0): errno.EAFNOSUPPORT,
        (of["socket"], 40, 1, 0): errno.EAFNOSUPPORT,
        (of["socket"], 2, 1, 132): errno.EPROTONOSUPPORT,
        (of["socket"], 2, 3, 1): errno.ESOCKTNOSUPPORT,
        (of["socketpair"], 2, 1, 0): errno.EAFNOSUPPORT,
        (of["ioctl"], -1, 0x5412): errno.EPERM,
        (of["ioctl"], -1, 0x541C): errno.EPERM,
        (of["ioctl"], -1, 0x5413): errno.EBADF,
        (of["personality"], 0xFFFFFFFF): 0,
        (of["personality"], 0x0040000): errno.EPERM,
    }
    assert dict(zip(expected, errors_of(list(expected)), strict=True)) == expected


@real
@pytest.mark.skipif(HERE != "x86_64", reason="int 0x80 is x86 machine code")
def test_a_32_bit_call_ends_the_process() -> None:
    getpid = "b814000000cd80c3"  # mov eax, 20; int 0x80; ret
    done = in_bwrap(f"""
import ctypes, mmap
page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
page.write(bytes.fromhex("{getpid}"))
ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))()
""")
    # bwrap passes a death by signal on as 128 + signal; a kernel without 32-bit support gives SIGSEGV
    assert done.returncode in {128 + signal.SIGSYS, 128 + signal.SIGSEGV}


EVERYDAY = """
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
print("all of it works")
"""


@real
def test_threads_processes_asyncio_loopback_and_numpy_still_work() -> None:
    done = in_bwrap(EVERYDAY)
    assert (done.returncode, done.stdout, done.stderr) == (0, "all of it works\n", "")
