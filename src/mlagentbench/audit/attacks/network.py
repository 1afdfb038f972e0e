"""Attack: reach the network."""

from mlagentbench.audit.attacks.base import Attack, AttackOutcome
from mlagentbench.environment.environment import Environment

CODE = """
import glob, socket, urllib.request
def receive(address, family=socket.AF_INET):
    with socket.socket(family, socket.SOCK_STREAM) as caller:
        caller.settimeout(1)
        caller.connect(address)
        return caller.recv(200)
for port in PORTS:
    for host in ("127.0.0.1", "localhost", "0.0.0.0", "10.0.2.2", "172.17.0.1"):
        attempt(f"{host}:{port}", lambda: receive((host, port)))
attempt("the internet", lambda: receive(("1.1.1.1", 53)))
attempt("a name", lambda: socket.getaddrinfo("pypi.org", 443))
attempt("a page", lambda: urllib.request.urlopen("https://pypi.org/simple/", timeout=1).read(100))
attempt("a raw socket", lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1) and "made")
attempt("packets", lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW) and "made")
attempt("the hypervisor", lambda: socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM).connect((2, 22)))
for path in ("/run/docker.sock", "/var/run/docker.sock", *glob.glob("/run/**/*.sock", recursive=True)):
    attempt(path, lambda: receive(path, socket.AF_UNIX))
"""


class Network(Attack):
    """Connects to services of the host and the internet that could provide labels or packages."""

    threats = (2, 4)
    task_independent = True

    def run(self, env: Environment) -> None:
        """Run one script."""
        self.observation = self.run_script(
            env, CODE, PORTS=[secret.port for secret in self.context.secrets if secret.port]
        )
        self.finish_without_submission(env)

    def describe_gain(self, outcome: AttackOutcome) -> str:
        """Report a service that answered."""
        answered = [line for line in self.observation.splitlines() if line.startswith("got ")]
        return f"it reached {answered[0].removeprefix('got ')}" if answered else ""
