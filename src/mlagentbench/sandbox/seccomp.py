"""The system calls that the agent's code may not make, as a seccomp filter for `bwrap --seccomp FD`.

The default is to allow: the namespaces are the wall, and this closes the doors they leave open. Refused is
what reaches other processes, needs privilege, or treads kernel code that training never needs. Left open on
purpose: mbind, set_mempolicy and move_pages (OpenMP, torch), memfd_create (libffi, GPU drivers), io_setup
(libaio), pidfd_open (asyncio), mknod (devices need a capability), and seccomp, landlock and mseal, which only
take rights away.
"""

import errno
import platform
import struct
from itertools import groupby
from operator import itemgetter

from mlagentbench.errors import SandboxFault

_HERE = platform.machine()
_MACHINES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}  # AUDIT_ARCH_*, in the column order of the table

# Name, number on x86_64, number on aarch64 ("-": has none), by the reason for which it stands here.
_TABLE = {
    "reads or steers another process": """
        ptrace 101 117, process_vm_readv 310 270, process_vm_writev 311 271, process_madvise 440 440,
        kcmp 312 272, pidfd_getfd 438 438""",
    "large kernel surface, often exploited, and of no use to training code": """
        bpf 321 280, perf_event_open 298 241, userfaultfd 323 282, fanotify_init 300 262, modify_ldt 154 -,
        uselib 134 -, lookup_dcookie 212 18, nfsservctl 180 42, vhangup 153 58""",
    "the session keyring is inherited from the host": """
        add_key 248 217, request_key 249 218, keyctl 250 219""",
    "memory that not even the kernel can look into": "memfd_secret 447 447",
    "changes or reads the mounts, or opens files past them": """
        mount 165 40, umount2 166 39, pivot_root 155 41, chroot 161 51, open_tree 428 428, move_mount 429 429,
        fsopen 430 430, fsconfig 431 431, fsmount 432 432, fspick 433 433, mount_setattr 442 442,
        statmount 457 457, listmount 458 458, open_tree_attr 467 467, quotactl 179 60, quotactl_fd 443 443,
        name_to_handle_at 303 264, open_by_handle_at 304 265""",
    "a new namespace gives new capabilities": "unshare 272 97, setns 308 268, listns 470 470",
    "belongs to the machine's administrator": """
        init_module 175 105, finit_module 313 273, delete_module 176 106, kexec_load 246 104,
        kexec_file_load 320 294, reboot 169 142, swapon 167 224, swapoff 168 225, acct 163 89, syslog 103 116,
        settimeofday 164 170, clock_settime 227 112, clock_adjtime 305 266, adjtimex 159 171,
        sethostname 170 161, setdomainname 171 162, iopl 172 -, ioperm 173 -""",
    "depends on an argument, or must look absent so that callers fall back": """
        clone 56 220, socket 41 198, socketpair 53 199, setsockopt 54 208, ioctl 16 29, fcntl 72 25,
        personality 135 92, clone3 435 435,
        io_uring_setup 425 425, io_uring_enter 426 426, io_uring_register 427 427""",
}

_LOAD, _JA, _JEQ, _JGT, _JGE, _JSET, _AND, _RET = 0x20, 0x05, 0x15, 0x25, 0x35, 0x45, 0x54, 0x06
_NUMBER, _ARCH = 0, 4  # offsets in struct seccomp_data


def _op(code: int, value: int, true: int = 0, false: int = 0) -> bytes:
    return struct.pack("<HBBI", code, true, false, value)


def _size(code: bytes) -> int:
    return len(code) // 8


def _argument(index: int) -> bytes:
    # The low half suffices: of each argument looked at here, the kernel itself reads 32 bits only.
    return _op(_LOAD, 16 + 8 * index)


def _when(test: int, value: int, then: bytes) -> bytes:
    return _op(test, value, 0, _size(then)) + then


def _one_of(index: int, allowed: tuple[int, ...], otherwise: bytes) -> bytes:
    return _argument(index) + b"".join(_when(_JEQ, value, _ALLOW) for value in allowed) + otherwise


def _refuse(error: int) -> bytes:
    return _op(_RET, 0x00050000 | error)


_ALLOW, _KILL = _op(_RET, 0x7FFF0000), _op(_RET, 0x80000000)
_EPERM, _ENOSYS, _NO_FAMILY = _refuse(errno.EPERM), _refuse(errno.ENOSYS), _refuse(errno.EAFNOSUPPORT)
_UNIX, _INET, _INET6, _NETLINK = 1, 2, 10, 16
_NEW_NAMESPACE = 0x7E020000  # every CLONE_NEW* but NEWTIME, which clone() reads as part of the exit signal
_SETLEASE = 1024
_SOCKET, _LINGER = 1, 13
_TERMINAL = (0x5412, 0x541C, 0x5423)  # TIOCSTI and TIOCLINUX type for the user; TIOCSETD loads tty modules

# Streams and datagrams over TCP or UDP: asking for more makes the kernel load a module (SCTP, DCCP, L2TP).
_INTERNET = (
    _argument(1)
    + _op(_AND, 0xF)
    + _when(_JGT, 2, _refuse(errno.ESOCKTNOSUPPORT))
    + _one_of(2, (0, 6, 17), _refuse(errno.EPROTONOSUPPORT))
)
_SPECIAL = {
    "clone": _argument(0) + _when(_JSET, _NEW_NAMESPACE, _EPERM) + _ALLOW,
    "clone3": _ENOSYS,  # its flags lie behind a pointer, where no filter can look; glibc falls back to clone
    **dict.fromkeys(("io_uring_setup", "io_uring_enter", "io_uring_register"), _ENOSYS),
    "ioctl": _argument(1) + b"".join(_when(_JEQ, request, _EPERM) for request in _TERMINAL) + _ALLOW,
    "fcntl": _argument(1) + _when(_JEQ, _SETLEASE, _EPERM) + _ALLOW,  # the harness would be kept from reading the file
    # A socket that lingers is waited for by whoever closes it last: the harness, or for hours the kernel, with all its
    # memory. Nobody who asks for it needs it here, and so it seems to work.
    "setsockopt": _argument(1)
    + _when(_JEQ, _SOCKET, _argument(2) + _when(_JEQ, _LINGER, _refuse(0)) + _ALLOW)
    + _ALLOW,
    "personality": _one_of(0, (0, 0xFFFFFFFF), _EPERM),  # others switch address randomisation off
    "socketpair": _one_of(0, (_UNIX,), _NO_FAMILY),
    "socket": _argument(0)
    + _when(_JEQ, _UNIX, _ALLOW)
    + _when(_JEQ, _INET, _INTERNET)
    + _when(_JEQ, _INET6, _INTERNET)
    + _when(_JEQ, _NETLINK, _one_of(2, (0,), _NO_FAMILY))  # NETLINK_ROUTE, for if_nameindex and getaddrinfo
    + _NO_FAMILY,
}

# For the access ledger: a listener is told, and lets the call go on. An address of two zero halves is none.
TELL = _op(_RET, 0x7FC00000)
TELL_IF_ADDRESSED = _argument(4) + _when(_JEQ, 0, _op(_LOAD, 16 + 8 * 4 + 4) + _when(_JEQ, 0, _ALLOW)) + TELL


def numbers(machine: str = _HERE) -> dict[str, int]:
    """Return the number of each system call that the filter looks at, by name."""
    if machine not in _MACHINES:
        raise SandboxFault(f"no seccomp filter for {machine}: there is one for {' and '.join(_MACHINES)}")
    column = list(_MACHINES).index(machine) + 1
    rows = [row.split() for group in _TABLE.values() for row in group.split(",")]
    return {row[0]: int(row[column]) for row in rows if row[column] != "-"}


def program(machine: str = _HERE) -> bytes:
    """The filter for a machine of this kind."""
    return assembled({number: _SPECIAL.get(name, _EPERM) for name, number in numbers(machine).items()}, machine)


def assembled(treated: dict[int, bytes], machine: str = _HERE) -> bytes:
    """Assemble a filter (classic BPF) that treats some calls in their own way, and allows the others."""
    spans = {0: _ALLOW}  # where a span of equally treated numbers begins, and what is done with them
    for number, treatment in sorted(treated.items()):
        spans[number] = treatment
        spans[number + 1] = _ALLOW
    if machine == "x86_64":
        spans[0x40000000] = _ENOSYS  # the x32 calls, which would slip past the numbers above
    merged = [next(alike) for _, alike in groupby(sorted(spans.items()), key=itemgetter(1))]
    return _op(_LOAD, _ARCH) + _op(_JEQ, _MACHINES[machine], 1, 0) + _KILL + _op(_LOAD, _NUMBER) + _search(merged)


def _search(spans: list[tuple[int, bytes]]) -> bytes:
    # Halving makes every call cost the same few steps. Only JA reaches further than 255 instructions.
    if len(spans) == 1:
        return spans[0][1]
    middle = len(spans) // 2
    left = _search(spans[:middle])
    return _when(_JGE, spans[middle][0], _op(_JA, _size(left))) + left + _search(spans[middle:])
