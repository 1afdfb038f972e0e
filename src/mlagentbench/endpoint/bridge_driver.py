"""Runs inside the sandbox: leads the loopback to the endpoint's socket, and starts the outside program.

    bridge_driver.py SOCKET PORT COMMAND...

Standard library only, and few of its modules: every import costs.
"""

import contextlib
import os
import socket
import subprocess
import sys
import threading


def forward(source: socket.socket, target: socket.socket) -> None:
    """Whatever comes from one goes to the other, until there is no more."""
    try:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                target.sendall(data)
    finally:
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_WR)


def bridge_connection(client: socket.socket, path: str) -> None:
    """A connection of the program's, led both ways."""
    with client, socket.socket(socket.AF_UNIX) as server:
        server.connect(path)
        back = threading.Thread(target=forward, args=(server, client), daemon=True)
        back.start()
        forward(client, server)
        back.join()


def accept_connections(listener: socket.socket, path: str) -> None:
    """Every connection gets a thread."""
    while True:
        client, _ = listener.accept()
        threading.Thread(target=bridge_connection, args=(client, path), daemon=True).start()


def main(path: str, port: str, *command: str) -> int:
    """The program's exit code; a program that cannot be started is one that failed."""
    listener = socket.create_server(("127.0.0.1", int(port)), backlog=64)
    threading.Thread(target=accept_connections, args=(listener, path), daemon=True).start()
    try:
        code = subprocess.call(command, stdin=subprocess.DEVNULL)
    except OSError as error:
        print(f"{command[0]} cannot be started: {error.strerror}", flush=True)
        return 127
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    code = main(*sys.argv[1:])
    sys.stdout.flush()
    os._exit(code)
