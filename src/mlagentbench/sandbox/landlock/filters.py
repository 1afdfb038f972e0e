"""The system calls of a command under Landlock: refused, or decided by the supervisor.

In addition to what the filter of every sandbox refuses, this one closes what a namespace would have closed:
sockets, System V IPC, and calls that reach other processes or the metadata of files, which Landlock does not
check.
"""

import errno
import os
import platform

from mlagentbench.sandbox import seccomp
from mlagentbench.sandbox.seccomp import ALLOW, NOTIFY, allow_only, if_equal, load_argument, return_errno

_HOST_MACHINE = platform.machine()
_EPERM, _EACCES, _ENOSYS = (return_errno(code) for code in (errno.EPERM, errno.EACCES, errno.ENOSYS))
_ENOTSUP = return_errno(errno.ENOTSUP)  # what programs that copy attributes expect from many file systems

# Name, number on x86_64, number on aarch64 ("-": none).
_REFUSED = {
    "shared by all programs of the user": """
        shmget 29 194, shmat 30 196, shmctl 31 195, shmdt 67 197, semget 64 190, semop 65 193, semctl 66 191,
        semtimedop 220 192, msgget 68 186, msgsnd 69 189, msgrcv 70 188, msgctl 71 187, mq_open 240 180,
        mq_unlink 241 181""",
    "changes other processes, or watches folders": """
        pidfd_send_signal 424 424, process_mrelease 448 448, inotify_init 253 -, inotify_init1 294 26,
        migrate_pages 256 238""",
    "Landlock does not check them": """
        chown 92 -, fchown 93 55, lchown 94 -, fchownat 260 54, setxattr 188 5, lsetxattr 189 6,
        fsetxattr 190 7, removexattr 197 14, lremovexattr 198 15, fremovexattr 199 16, setxattrat 463 463,
        removexattrat 466 466, file_setattr 469 469, utime 132 -, utimes 235 -, futimesat 261 -,
        openat2 437 437""",
    "would show what is in extended attributes outside": """
        getxattr 191 8, lgetxattr 192 9, fgetxattr 193 10, listxattr 194 11, llistxattr 195 12,
        flistxattr 196 13, getxattrat 464 464, listxattrat 465 465""",
}
# The supervisor decides, or does it itself: names of its methods.
_DECIDED = {
    "signal_process": "kill 62 129, tkill 200 130, tgkill 234 131, rt_sigqueueinfo 129 138, "
    "rt_tgsigqueueinfo 297 240",
    "change_process": "sched_setaffinity 203 122, sched_setscheduler 144 119, sched_setparam 142 118, "
    "sched_setattr 314 274, prlimit64 302 261",
    "change_priority": "setpriority 141 140, ioprio_set 251 30",
    "change_mode": "chmod 90 -, fchmod 91 52, fchmodat 268 53, fchmodat2 452 452",
    "change_times": "utimensat 280 88",
    "remove": "unlink 87 -, unlinkat 263 35, rmdir 84 -",
    "rename": "rename 82 -, renameat 264 38, renameat2 316 276",
    "link": "link 86 -, linkat 265 37",
    "open_shared_memory": "open 2 -, openat 257 56",
    "connect": "connect 42 203",
}
_RESTRICTED = "socket 41 198, socketpair 53 199, fcntl 72 25, ioctl 16 29, truncate 76 45"

_SOCK_STREAM, _SOCK_SEQPACKET = 1, 5
_AF_UNIX = 1
_F_SETOWN, _F_SETOWN_EX, _F_SETLEASE, _F_NOTIFY = 8, 15, 1024, 1026
_FIOSETOWN, _SIOCSPGRP = 0x8901, 0x8902


def _allow_unix_streams(types: tuple[int, ...]) -> bytes:
    """Sockets that can only be used after connect(), which the supervisor decides."""
    return load_argument(0) + if_equal(_AF_UNIX, allow_only(1, types, _EACCES, mask=0xF)) + _EACCES


def _if_flags(index: int, mask: int, value: int, then: bytes) -> bytes:
    return load_argument(index, mask) + if_equal(value, then)


def _refuse_values(index: int, values: tuple[int, ...]) -> bytes:
    return load_argument(index) + b"".join(if_equal(value, _EPERM) for value in values) + ALLOW


def _open_rule(flags_index: int, version: int) -> bytes:
    """Ask about what may create shared memory; until version 3, Landlock does not check O_TRUNC."""
    truncate = os.O_TRUNC | os.O_ACCMODE
    rule = _if_flags(flags_index, truncate, os.O_TRUNC | os.O_RDONLY, _EACCES) if version < 3 else b""
    for flags in (os.O_CREAT | os.O_EXCL, os.O_RDWR | os.O_NOFOLLOW):
        rule += _if_flags(flags_index, flags, flags, NOTIFY)
    return rule + ALLOW


def _numbers(table: str, machine: str) -> dict[str, int]:
    column = seccomp.MACHINES.index(machine) + 1
    rows = [row.split() for row in table.split(",")]
    return {row[0]: int(row[column]) for row in rows if row[column] != "-"}


def decided_calls(machine: str = _HOST_MACHINE) -> dict[int, tuple[str, str]]:
    """By number: the method of the supervisor that decides a call, and the name of the call."""
    return {
        number: (method, name)
        for method, table in _DECIDED.items()
        for name, number in _numbers(table, machine).items()
    }


def build_command_filter(version: int, machine: str = _HOST_MACHINE) -> bytes:
    """Build the filter for a version of Landlock."""
    refused = {
        number: _ENOTSUP if "xattr" in name else _EPERM
        for table in _REFUSED.values()
        for name, number in _numbers(table, machine).items()
    }
    numbers = {name: number for number, (_, name) in decided_calls(machine).items()}
    decided = dict.fromkeys(numbers.values(), NOTIFY)
    for name in ("sched_setaffinity", "sched_setscheduler", "sched_setparam", "sched_setattr", "prlimit64"):
        decided[numbers[name]] = allow_only(0, (0,), NOTIFY)  # about itself
    decided[numbers["openat"]] = _open_rule(2, version)
    if "open" in numbers:
        decided[numbers["open"]] = _open_rule(1, version)
    rules = seccomp.sandbox_rules(machine)
    restricted = _numbers(_RESTRICTED, machine)
    rules |= {
        **refused,
        **decided,
        restricted["socket"]: _allow_unix_streams((_SOCK_STREAM,)),
        restricted["socketpair"]: _allow_unix_streams((_SOCK_STREAM, _SOCK_SEQPACKET)),
        # The kernel would send signals to the owner of a file.
        restricted["fcntl"]: _refuse_values(1, (_F_SETOWN, _F_SETOWN_EX, _F_SETLEASE, _F_NOTIFY)),
        restricted["ioctl"]: _refuse_values(1, (_FIOSETOWN, _SIOCSPGRP, *seccomp.TERMINAL_REQUESTS)),
    }
    for name in ("openat2", "utime", "utimes", "futimesat", "inotify_init1"):  # callers fall back
        for table in _REFUSED.values():
            if name in (found := _numbers(table, machine)):
                rules[found[name]] = _ENOSYS
    if version < 3:
        rules[restricted["truncate"]] = _EACCES
    return seccomp.assemble_filter(rules, machine)
