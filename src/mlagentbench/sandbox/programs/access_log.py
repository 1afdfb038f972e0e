"""The last program of the harness inside the sandbox: lets the kernel tell of what follows, and becomes the command.

    driver.py NUMBER FILTER COMMAND...

It knows nothing of this project. Standard input is the socket at which the harness waits for the listener.
"""

import ctypes
import os
import socket
import sys
import threading

SECCOMP_SET_MODE_FILTER = 1
FLAG_NEW_LISTENER, FLAG_WAIT_KILLABLE = (
    8,
    32,
)  # the second keeps a stopped call from being told twice; older kernels lack it


class FilterProgram(ctypes.Structure):
    """A filter, as the kernel takes it."""

    _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_char_p))


def install_listener(number: int, code: bytes) -> int:
    """Filter this thread from now on, and return what its calls can be heard with."""
    libc = ctypes.CDLL(None, use_errno=True)
    program = FilterProgram(len(code) // 8, code)
    for flags in (FLAG_NEW_LISTENER | FLAG_WAIT_KILLABLE, FLAG_NEW_LISTENER):
        found: int = libc.syscall(
            *map(ctypes.c_long, (number, SECCOMP_SET_MODE_FILTER, flags)), ctypes.byref(program)
        )
        if found >= 0:
            return found
    sys.exit(f"the access ledger has no listener: {os.strerror(ctypes.get_errno())}")


def main() -> None:
    """Hand the listener out by a thread that is not filtered: nobody would answer this one's call yet."""
    found: list[int] = []
    ready = threading.Event()

    def hand_out() -> None:
        ready.wait()
        with socket.socket(fileno=os.dup(0)) as channel:
            socket.send_fds(channel, [b"\n"], found)

    thread = threading.Thread(target=hand_out, daemon=True)
    thread.start()
    found.append(install_listener(int(sys.argv[1]), bytes.fromhex(sys.argv[2])))
    ready.set()
    thread.join()
    os.close(found[0])
    os.execvp(sys.argv[3], sys.argv[3:])


if __name__ == "__main__":
    main()
