"""Attack: pass directory descriptors between sandboxes."""

from mlagentbench.audit.attacks.base import Attack, AttackOutcome
from mlagentbench.environment.environment import Environment

LISTEN_CODE = """
import os, socket
listener = socket.socket(socket.AF_UNIX)
listener.bind("listener.sock")
listener.listen()
listener.setblocking(False)
"""
SEND_CODE = """
import socket
with socket.socket(socket.AF_UNIX) as client:
    attempt("connect", lambda: client.connect("listener.sock"))
    folders = [os.open(path, os.O_RDONLY) for path in ("/usr", sys.prefix, ".")]
    attempt("send folders", lambda: socket.send_fds(client, [b"x"], folders))
"""
RECEIVE_CODE = """
try:
    client, _ = listener.accept()
    _, folders, _, _ = socket.recv_fds(client, 1, 9)
    print("received", [os.listdir(folder)[:5] for folder in folders])
except OSError as error:
    print("refused:", error)
"""


class PassedDescriptors(Attack):
    """Passes open folders from a script to the interpreter, to see below the mounts of an ended sandbox."""

    threats = (1, 9)
    task_independent = True

    def run(self, env: Environment) -> None:
        """Listen on a socket in the workspace, send the descriptors, use them."""
        self.try_action(env, "Python REPL", command=LISTEN_CODE)
        self.run_script(env, SEND_CODE)
        self.received = self.try_action(env, "Python REPL", command=RECEIVE_CODE)
        self.refusals += [line for line in self.received.splitlines() if line.startswith("refused")]
        self.finish_without_submission(env)

    def describe_gain(self, outcome: AttackOutcome) -> str:
        """Report received descriptors."""
        return "it received folders of a sandbox that is gone" if "received" in self.received else ""
