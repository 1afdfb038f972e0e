"""Runs inside the sandbox: forwards a loopback port to the endpoint's socket, and starts the program.

    endpoint_bridge.py SOCKET PORT COMMAND...

It imports few modules, all from the standard library, to start fast.
"""

import contextlib
import os
import select
import socket
import subprocess
import sys
import threading


def bridge_connection(client: socket.socket, path: str) -> None:
    """Forward one connection of the program in both directions, until both have ended."""
    with client, socket.socket(socket.AF_UNIX) as server, contextlib.suppress(OSError):
        server.connect(path)
        targets = {client: server, server: client}
        while targets:
            for source in select.select(list(targets), [], [])[0]:
                if data := source.recv(1 << 16):
                    targets[source].sendall(data)
                else:
                    targets.pop(source).shutdown(socket.SHUT_WR)


def accept_connections(listener: socket.socket, path: str) -> None:
    """Serve every connection in its own thread; drop it if the program has used up its threads."""
    while True:
        client, _ = listener.accept()
        try:
            threading.Thread(target=bridge_connection, args=(client, path), daemon=True).start()
        except RuntimeError:
            client.close()


def main(path: str, port: str, *command: str) -> int:
    """Run the program and return its exit code; 127 if it cannot be started."""
    listener = socket.create_server(("127.0.0.1", int(port)), backlog=64)
    threading.Thread(target=accept_connections, args=(listener, path), daemon=True).start()
    try:
        code = subprocess.call(command)
    except OSError as error:
        print(f"{command[0]} cannot be started: {error.strerror}", flush=True)
        return 127
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    code = main(*sys.argv[1:])
    sys.stdout.flush()
    os._exit(code)
