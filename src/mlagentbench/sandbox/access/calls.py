"""The system calls that the access ledger is told of, as a second seccomp filter beside the sandbox's own.

Of two filters the stricter answer counts, and a refusal is stricter than telling: what the sandbox refuses stays
refused, and is never heard of here.
"""

import platform

from mlagentbench.sandbox import seccomp

# Name, number on x86_64, number on aarch64 ("-": has none).
_TABLE = """open 2 -, creat 85 -, openat 257 56, openat2 437 437, truncate 76 45, execve 59 221, execveat 322 281,
    connect 42 203, bind 49 200, sendto 44 206, sendmsg 46 211, sendmmsg 307 269"""
_INSTALL = {"x86_64": 317, "aarch64": 277}
_HERE = platform.machine()


def numbers(machine: str = _HERE) -> dict[str, int]:
    """The number of each call that is told, by name."""
    column = list(_INSTALL).index(machine) + 1
    rows = [row.split() for row in _TABLE.split(",")]
    return {row[0]: int(row[column]) for row in rows if row[column] != "-"}


def program(machine: str = _HERE) -> bytes:
    """The filter: these calls are told, unless they send to where the socket is connected anyway."""
    told = dict.fromkeys(numbers(machine).values(), seccomp.TELL)
    told[numbers(machine)["sendto"]] = seccomp.TELL_IF_ADDRESSED
    return seccomp.assembled(told, machine)


def seccomp_number(machine: str = _HERE) -> int:
    """The number of the call that installs a filter."""
    return _INSTALL[machine]
