"""Landlock's system calls: a process gives up all access to files except below the paths that it names.

Standard library only: it runs in the supervisor, before every command.
"""

import ctypes
import os
import stat
import struct
from collections.abc import Iterable

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446  # the same numbers on all architectures
GET_VERSION = 1
RULE_PATH_BENEATH = 1
PR_SET_NO_NEW_PRIVS = 38

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
REMOVE_DIR, REMOVE_FILE = 1 << 4, 1 << 5
MAKE_CHAR, MAKE_DIR, MAKE_REG, MAKE_SOCK, MAKE_FIFO, MAKE_BLOCK, MAKE_SYM = (1 << bit for bit in range(6, 13))
REFER, TRUNCATE, IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
# How many of the rights above each version of Landlock knows.
RIGHTS_BY_VERSION = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}
TCP_VERSION, SCOPE_VERSION = 4, 6
BIND_AND_CONNECT_TCP = 3
SCOPE_ABSTRACT_SOCKETS_AND_SIGNALS = 3

READ = READ_FILE | READ_DIR | EXECUTE
# Without rights to remove and move files: the supervisor does that.
WRITE = READ | WRITE_FILE | TRUNCATE | MAKE_DIR | MAKE_REG | MAKE_SOCK | MAKE_FIFO | MAKE_SYM
DEVICE = READ_FILE | WRITE_FILE | IOCTL_DEV
FILE_RIGHTS = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV

SECCOMP_NUMBERS = {"x86_64": 317, "aarch64": 277}
CAPSET_NUMBERS = {"x86_64": 126, "aarch64": 91}
SECCOMP_SET_MODE_FILTER, FLAG_NEW_LISTENER, FLAG_WAIT_KILLABLE = 1, 8, 32
PR_SET_SECUREBITS, SECBITS_ROOT_IS_ORDINARY = 28, 0b11  # and locked

_libc = ctypes.CDLL(None, use_errno=True)


def landlock_version() -> int:
    """The version of Landlock in this kernel; 0 if it has none, or if it is turned off."""
    version: int = _libc.syscall(CREATE_RULESET, None, ctypes.c_size_t(0), GET_VERSION)
    return max(version, 0)


def handled_rights(version: int) -> int:
    """All rights to files that this version can take away."""
    return (1 << RIGHTS_BY_VERSION[min(version, max(RIGHTS_BY_VERSION))]) - 1


def restrict_self(rules: Iterable[tuple[str, int]], version: int) -> None:
    """Take away all access to files and TCP from this process, except the rights to what is below some paths.

    Args:
        rules: Paths, each with its rights. Paths that do not exist are left out.
        version: The version of Landlock to use, at most that of the kernel.

    Raises:
        OSError: The kernel refused.
    """
    handled = handled_rights(version)
    attributes = struct.pack("=Q", handled)
    if version >= TCP_VERSION:
        attributes += struct.pack("=Q", BIND_AND_CONNECT_TCP)
    if version >= SCOPE_VERSION:
        attributes += struct.pack("=Q", SCOPE_ABSTRACT_SOCKETS_AND_SIGNALS)
    ruleset = _call(CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), 0)
    try:
        for path, rights in rules:
            _add_rule(ruleset, path, rights & handled)
        set_process_option(PR_SET_NO_NEW_PRIVS, 1)
        _call(RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)


def _add_rule(ruleset: int, path: str, rights: int) -> None:
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:  # not on this machine, or not for this user
        return
    try:
        if not stat.S_ISDIR(os.fstat(fd).st_mode):
            rights &= FILE_RIGHTS
        if rights:
            _call(ADD_RULE, ruleset, RULE_PATH_BENEATH, struct.pack("=Qi", rights, fd), 0)
    finally:
        os.close(fd)


def _call(number: int, *arguments: object) -> int:
    result: int = _libc.syscall(number, *arguments)
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, f"Landlock: {os.strerror(error)}")
    return result


def set_process_option(option: int, value: int) -> None:
    """Call prctl with one argument."""
    if _libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl {option}: {os.strerror(ctypes.get_errno())}")


def drop_capabilities() -> None:
    """Make root an ordinary user, for this process and everything that it executes."""
    set_process_option(PR_SET_SECUREBITS, SECBITS_ROOT_IS_ORDINARY)
    header = struct.pack("=Ii", 0x20080522, 0)
    _call(CAPSET_NUMBERS[os.uname().machine], header, bytes(24))


def install_filter(code: bytes) -> int:
    """Install a seccomp filter, and return the descriptor on which its calls are received."""
    buffer = ctypes.create_string_buffer(code, len(code))
    program = struct.pack("HxxxxxxP", len(code) // 8, ctypes.addressof(buffer))
    number = SECCOMP_NUMBERS[os.uname().machine]
    for flags in (FLAG_NEW_LISTENER | FLAG_WAIT_KILLABLE, FLAG_NEW_LISTENER):  # older kernels lack the other
        listener: int = _libc.syscall(number, SECCOMP_SET_MODE_FILTER, ctypes.c_ulong(flags), program)
        if listener >= 0:
            return listener
    raise OSError(ctypes.get_errno(), f"seccomp: {os.strerror(ctypes.get_errno())}")


def rename_at(old_folder: int, old_name: str, new_folder: int, new_name: str, flags: int) -> None:
    """Rename a file, with the flags of renameat2."""
    names = os.fsencode(old_name), os.fsencode(new_name)
    if _libc.renameat2(old_folder, names[0], new_folder, names[1], flags) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
