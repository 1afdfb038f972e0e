"""The system calls that the agent's code may not make, as a seccomp filter for `bwrap --seccomp FD`.

The default is to allow: the namespaces isolate, and this filter blocks what they leave open. Refused are
calls that reach other processes, need privileges, or use kernel code that training never needs. Allowed on
purpose: mbind, set_mempolicy and move_pages (OpenMP, torch), memfd_create (libffi, GPU drivers), io_setup
(libaio), pidfd_open (asyncio), mknod (devices need a capability), and seccomp and mseal, which only take
rights away.
"""

import errno
import platform
import struct
from itertools import groupby
from operator import itemgetter

from mlagentbench.errors import SandboxFault

_HOST_MACHINE = platform.machine()
_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}  # AUDIT_ARCH_*, in the column order of the table
MACHINES = tuple(_AUDIT_ARCH)
_SHMGET_NUMBERS = {"x86_64": 29, "aarch64": 194}

# Name, number on x86_64, number on aarch64 ("-": none), grouped by the reason for refusing the call.
_TABLE = {
    "reads or controls another process": """
        ptrace 101 117, process_vm_readv 310 270, process_vm_writev 311 271, process_madvise 440 440,
        kcmp 312 272, pidfd_getfd 438 438""",
    "large kernel surface, often exploited, and of no use to training code": """
        bpf 321 280, perf_event_open 298 241, userfaultfd 323 282, fanotify_init 300 262, modify_ldt 154 -,
        uselib 134 -, lookup_dcookie 212 18, nfsservctl 180 42, vhangup 153 58""",
    "the session keyring is inherited from the host": """
        add_key 248 217, request_key 249 218, keyctl 250 219""",
    "memory that not even the kernel can read": "memfd_secret 447 447",
    "changes or reads the mounts, or opens files past them": """
        mount 165 40, umount2 166 39, pivot_root 155 41, chroot 161 51, open_tree 428 428, move_mount 429 429,
        fsopen 430 430, fsconfig 431 431, fsmount 432 432, fspick 433 433, mount_setattr 442 442,
        statmount 457 457, listmount 458 458, open_tree_attr 467 467, quotactl 179 60, quotactl_fd 443 443,
        name_to_handle_at 303 264, open_by_handle_at 304 265""",
    "a new namespace gives new capabilities": "unshare 272 97, setns 308 268, listns 470 470",
    "reserved for the administrator of the machine": """
        init_module 175 105, finit_module 313 273, delete_module 176 106, kexec_load 246 104,
        kexec_file_load 320 294, reboot 169 142, swapon 167 224, swapoff 168 225, acct 163 89, syslog 103 116,
        settimeofday 164 170, clock_settime 227 112, clock_adjtime 305 266, adjtimex 159 171,
        sethostname 170 161, setdomainname 171 162, iopl 172 -, ioperm 173 -""",
    "depends on an argument, or must look absent so that callers fall back": """
        clone 56 220, socket 41 198, socketpair 53 199, setsockopt 54 208, ioctl 16 29, fcntl 72 25,
        personality 135 92, clone3 435 435, close_range 436 436, landlock_create_ruleset 444 444,
        io_uring_setup 425 425, io_uring_enter 426 426, io_uring_register 427 427""",
}

_LOAD, _JA, _JEQ, _JGT, _JGE, _JSET, _AND, _RET = 0x20, 0x05, 0x15, 0x25, 0x35, 0x45, 0x54, 0x06
_NUMBER_OFFSET, _ARCH_OFFSET = 0, 4  # offsets in struct seccomp_data


def _instruction(code: int, value: int, true: int = 0, false: int = 0) -> bytes:
    return struct.pack("<HBBI", code, true, false, value)


def _instruction_count(code: bytes) -> int:
    return len(code) // 8


def load_argument(index: int, mask: int = 0) -> bytes:
    """Load an argument, or the bits of it that are in the mask, to compare it.

    The low half is enough: the kernel itself uses only 32 bits of every argument that is checked here.
    """
    return _instruction(_LOAD, 16 + 8 * index) + (_instruction(_AND, mask) if mask else b"")


def _if(test: int, value: int, then: bytes) -> bytes:
    return _instruction(test, value, 0, _instruction_count(then)) + then


def if_equal(value: int, then: bytes) -> bytes:
    """Apply a rule if the loaded argument has this value."""
    return _if(_JEQ, value, then)


def allow_only(index: int, allowed: tuple[int, ...], otherwise: bytes, mask: int = 0) -> bytes:
    """Allow some values of an argument, and apply a rule to the others."""
    return load_argument(index, mask) + b"".join(if_equal(value, ALLOW) for value in allowed) + otherwise


def return_errno(error: int) -> bytes:
    """Refuse a call with an error."""
    return _instruction(_RET, 0x00050000 | error)


ALLOW, _KILL = _instruction(_RET, 0x7FFF0000), _instruction(_RET, 0x80000000)
_EPERM, _ENOSYS = return_errno(errno.EPERM), return_errno(errno.ENOSYS)
_EAFNOSUPPORT = return_errno(errno.EAFNOSUPPORT)
_AF_UNIX, _AF_INET, _AF_INET6, _AF_NETLINK = 1, 2, 10, 16
# Every CLONE_NEW* except NEWTIME, which clone() takes as part of the exit signal.
_CLONE_NEW_FLAGS = 0x7E020000
_CLONE_FILES, _CLONE_THREAD = 0x400, 0x10000
_CLOSE_RANGE_UNSHARE = 2
_F_SETLEASE = 1024
_SOL_SOCKET, _SO_LINGER = 1, 13
# TIOCSTI and TIOCLINUX inject keyboard input; TIOCSETD loads tty modules.
TERMINAL_REQUESTS = (0x5412, 0x541C, 0x5423)

# Streams and datagrams over TCP or UDP. Other protocols make the kernel load a module (SCTP, DCCP, L2TP).
_ALLOW_TCP_AND_UDP = (
    load_argument(1, 0xF)
    + _if(_JGT, 2, return_errno(errno.ESOCKTNOSUPPORT))
    + allow_only(2, (0, 6, 17), return_errno(errno.EPROTONOSUPPORT))
)
_SPECIAL_RULES = {
    # The limit monitor sees one table of descriptors in a process. No library starts threads with their own.
    "clone": load_argument(0)
    + _if(_JSET, _CLONE_NEW_FLAGS, _EPERM)
    + load_argument(0, _CLONE_FILES | _CLONE_THREAD)
    + if_equal(_CLONE_THREAD, _EPERM)
    + ALLOW,
    "close_range": load_argument(2) + _if(_JSET, _CLOSE_RANGE_UNSHARE, return_errno(errno.EINVAL)) + ALLOW,
    "clone3": _ENOSYS,  # its flags are behind a pointer, which no filter can follow; glibc uses clone
    # Rules are kernel memory without a limit, unless a cgroup counts it.
    "landlock_create_ruleset": _ENOSYS,
    **dict.fromkeys(("io_uring_setup", "io_uring_enter", "io_uring_register"), _ENOSYS),
    "ioctl": load_argument(1) + b"".join(if_equal(request, _EPERM) for request in TERMINAL_REQUESTS) + ALLOW,
    # A lease would block the harness from reading the file.
    "fcntl": load_argument(1) + if_equal(_F_SETLEASE, _EPERM) + ALLOW,
    # The last process to close a lingering socket waits for it: that may be the harness, or for hours the
    # kernel, which then keeps all the memory. No command needs SO_LINGER here, so setting it succeeds without
    # effect.
    "setsockopt": load_argument(1)
    + if_equal(_SOL_SOCKET, load_argument(2) + if_equal(_SO_LINGER, return_errno(0)) + ALLOW)
    + ALLOW,
    "personality": allow_only(0, (0, 0xFFFFFFFF), _EPERM),  # others turn address randomisation off
    "socketpair": allow_only(0, (_AF_UNIX,), _EAFNOSUPPORT),
    "socket": load_argument(0)
    + if_equal(_AF_UNIX, ALLOW)
    + if_equal(_AF_INET, _ALLOW_TCP_AND_UDP)
    + if_equal(_AF_INET6, _ALLOW_TCP_AND_UDP)
    # NETLINK_ROUTE, for if_nameindex and getaddrinfo.
    + if_equal(_AF_NETLINK, allow_only(2, (0,), _EAFNOSUPPORT))
    + _EAFNOSUPPORT,
}

# For the access log: a listener is notified, and lets the call continue. An address whose halves are both
# zero is null.
NOTIFY = _instruction(_RET, 0x7FC00000)
NOTIFY_IF_ADDRESSED = (
    load_argument(4) + if_equal(0, _instruction(_LOAD, 16 + 8 * 4 + 4) + if_equal(0, ALLOW)) + NOTIFY
)


def filtered_syscall_numbers(machine: str = _HOST_MACHINE) -> dict[str, int]:
    """The number of each system call that the filter checks, by name."""
    if machine not in _AUDIT_ARCH:
        supported = " and ".join(_AUDIT_ARCH)
        raise SandboxFault(f"No seccomp filter for the architecture {machine}. Supported: {supported}.")
    column = list(_AUDIT_ARCH).index(machine) + 1
    rows = [row.split() for group in _TABLE.values() for row in group.split(",")]
    return {row[0]: int(row[column]) for row in rows if row[column] != "-"}


def build_filter(machine: str = _HOST_MACHINE, has_memory_cgroup: bool = True) -> bytes:
    """Build the filter for an architecture.

    Without a cgroup that counts memory, System V shared memory is refused: no process shows it once it is
    detached.
    """
    rules = sandbox_rules(machine)
    if not has_memory_cgroup:
        rules[_SHMGET_NUMBERS[machine]] = _ENOSYS
    return assemble_filter(rules, machine)


def sandbox_rules(machine: str = _HOST_MACHINE) -> dict[int, bytes]:
    """The rules of the filter, by the number of the system call."""
    numbers = filtered_syscall_numbers(machine)
    return {number: _SPECIAL_RULES.get(name, _EPERM) for name, number in numbers.items()}


def assemble_filter(rules: dict[int, bytes], machine: str = _HOST_MACHINE) -> bytes:
    """Assemble a filter (classic BPF) that applies a rule to each of some calls, and allows the others."""
    spans = {0: ALLOW}  # first number of each span of calls with the same rule, and the rule
    for number, rule in sorted(rules.items()):
        spans[number] = rule
        spans[number + 1] = ALLOW
    if machine == "x86_64":
        spans[0x40000000] = _ENOSYS  # the x32 calls, which would bypass the numbers above
    merged = [next(same_rule) for _, same_rule in groupby(sorted(spans.items()), key=itemgetter(1))]
    return (
        _instruction(_LOAD, _ARCH_OFFSET)
        + _instruction(_JEQ, _AUDIT_ARCH[machine], 1, 0)
        + _KILL
        + _instruction(_LOAD, _NUMBER_OFFSET)
        + _assemble_search(merged)
    )


def _assemble_search(spans: list[tuple[int, bytes]]) -> bytes:
    # A binary search takes the same few steps for every call. Only JA can jump over more than 255
    # instructions.
    if len(spans) == 1:
        return spans[0][1]
    middle = len(spans) // 2
    left = _assemble_search(spans[:middle])
    return (
        _if(_JGE, spans[middle][0], _instruction(_JA, _instruction_count(left)))
        + left
        + _assemble_search(spans[middle:])
    )
