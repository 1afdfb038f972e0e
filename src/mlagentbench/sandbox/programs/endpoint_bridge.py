"""Runs inside the sandbox: forwards a loopback port to the endpoint's socket, and starts the program.

    endpoint_bridge.py SOCKET PORT COMMAND...

It imports few modules, all from the standard library, to start fast.
"""

import contextlib
import os
import socket
import subprocess
import sys
import threading


def forward(source: socket.socket, target: socket.socket) -> None:
    """Copy data from one socket to the other until it ends."""
    try:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                target.sendall(data)
    finally:
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_WR)


def bridge_connection(client: socket.socket, path: str) -> None:
    """Forward one connection of the program in both directions."""
    with client, socket.socket(socket.AF_UNIX) as server:
        server.connect(path)
        responses = threading.Thread(target=forward, args=(server, client), daemon=True)
        responses.start()
        forward(client, server)
        responses.join()


def accept_connections(listener: socket.socket, path: str) -> None:
    """Serve every connection in its own thread."""
    while True:
        client, _ = listener.accept()
        threading.Thread(target=bridge_connection, args=(client, path), daemon=True).start()


def main(path: str, port: str, *command: str) -> int:
    """Run the program and return its exit code; 127 if it cannot be started."""
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
