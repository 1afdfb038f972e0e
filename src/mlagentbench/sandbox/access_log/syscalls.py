"""The system calls that the access ledger is told of, as a second seccomp filter beside the sandbox's own.

Of two filters the stricter answer counts, and a refusal is stricter than telling: what the sandbox refuses stays
refused, and is never heard of here.
"""

import platform

from mlagentbench.sandbox import seccomp

# Name, number on x86_64, number on aarch64 ("-": has none).
_TABLE = """open 2 -, creat 85 -, openat 257 56, openat2 437 437, truncate 76 45, execve 59 221, execveat 322 281,
    connect 42 203, bind 49 200, sendto 44 206, sendmsg 46 211, sendmmsg 307 269"""
_SECCOMP_NUMBERS = {"x86_64": 317, "aarch64": 277}
_HOST_MACHINE = platform.machine()


def recorded_syscall_numbers(machine: str = _HOST_MACHINE) -> dict[str, int]:
    """The number of each call that is told, by name."""
    column = list(_SECCOMP_NUMBERS).index(machine) + 1
    rows = [row.split() for row in _TABLE.split(",")]
    return {row[0]: int(row[column]) for row in rows if row[column] != "-"}


def build_notify_filter(machine: str = _HOST_MACHINE) -> bytes:
    """The filter: these calls are told, unless they send to where the socket is connected anyway."""
    told = dict.fromkeys(recorded_syscall_numbers(machine).values(), seccomp.NOTIFY)
    told[recorded_syscall_numbers(machine)["sendto"]] = seccomp.NOTIFY_IF_ADDRESSED
    return seccomp.assemble_filter(told, machine)


def seccomp_syscall_number(machine: str = _HOST_MACHINE) -> int:
    """The number of the call that installs a filter."""
    return _SECCOMP_NUMBERS[machine]
