"""The system calls that the access log records, as a second seccomp filter besides that of the sandbox.

Of two filters the stricter result counts, and a refusal is stricter than a notification: calls that the
sandbox refuses stay refused, and are not recorded.
"""

import platform

from mlagentbench.sandbox import seccomp

# Name, number on x86_64, number on aarch64 ("-": none).
_TABLE = """open 2 -, creat 85 -, openat 257 56, openat2 437 437, truncate 76 45,
    execve 59 221, execveat 322 281, connect 42 203,
    bind 49 200, sendto 44 206, sendmsg 46 211, sendmmsg 307 269"""
_SECCOMP_NUMBERS = {"x86_64": 317, "aarch64": 277}
_HOST_MACHINE = platform.machine()


def recorded_syscall_numbers(machine: str = _HOST_MACHINE) -> dict[str, int]:
    """The number of each recorded call, by name."""
    column = list(_SECCOMP_NUMBERS).index(machine) + 1
    rows = [row.split() for row in _TABLE.split(",")]
    return {row[0]: int(row[column]) for row in rows if row[column] != "-"}


def build_notify_filter(machine: str = _HOST_MACHINE) -> bytes:
    """Build the filter: it notifies of these calls, except of messages on a connected socket."""
    numbers = recorded_syscall_numbers(machine)
    rules = dict.fromkeys(numbers.values(), seccomp.NOTIFY)
    rules[numbers["sendto"]] = seccomp.NOTIFY_IF_ADDRESSED
    return seccomp.assemble_filter(rules, machine)


def seccomp_syscall_number(machine: str = _HOST_MACHINE) -> int:
    """The number of the system call that installs a filter."""
    return _SECCOMP_NUMBERS[machine]
