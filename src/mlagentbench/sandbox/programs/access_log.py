"""Runs inside the sandbox before a command: installs the filter of the access log, then becomes the command.

    access_log.py SYSCALL_NUMBER FILTER COMMAND...

Standard input is the socket on which the harness waits for the listener. It uses nothing else of this
project.
"""

import ctypes
import os
import socket
import sys
import threading

SECCOMP_SET_MODE_FILTER = 1
FLAG_NEW_LISTENER = 8
FLAG_WAIT_KILLABLE = 32  # prevents a second notification of a call that was stopped; older kernels lack it


class FilterProgram(ctypes.Structure):
    """The kernel's struct sock_fprog."""

    _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_char_p))


def install_listener(number: int, code: bytes) -> int:
    """Install the filter on this thread, and return the descriptor on which its calls are received."""
    libc = ctypes.CDLL(None, use_errno=True)
    program = FilterProgram(len(code) // 8, code)
    for flags in (FLAG_NEW_LISTENER | FLAG_WAIT_KILLABLE, FLAG_NEW_LISTENER):
        arguments = map(ctypes.c_long, (number, SECCOMP_SET_MODE_FILTER, flags))
        listener: int = libc.syscall(*arguments, ctypes.byref(program))
        if listener >= 0:
            return listener
    sys.exit(f"the access log cannot install its filter: {os.strerror(ctypes.get_errno())}")


def main() -> None:
    """Install the filter, send out the listener, and run the command.

    The listener is sent by a thread that is not filtered: the call of a filtered thread would wait for the
    supervisor, which does not have the listener yet.
    """
    listeners: list[int] = []
    ready = threading.Event()

    def send_listener() -> None:
        ready.wait()
        with socket.socket(fileno=os.dup(0)) as channel:
            socket.send_fds(channel, [b"\n"], listeners)

    thread = threading.Thread(target=send_listener, daemon=True)
    thread.start()
    listeners.append(install_listener(int(sys.argv[1]), bytes.fromhex(sys.argv[2])))
    ready.set()
    thread.join()
    os.close(listeners[0])
    os.execvp(sys.argv[3], sys.argv[3:])


if __name__ == "__main__":
    main()
