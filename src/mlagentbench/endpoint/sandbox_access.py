"""How a command in a sandbox, which has no network, reaches an endpoint of the harness."""

from contextlib import ExitStack
from pathlib import Path

from mlagentbench.endpoint.server import Endpoint
from mlagentbench.sandbox.base import Sandbox
from mlagentbench.sandbox.programs import endpoint_bridge
from mlagentbench.system.cache import temporary_dir

SANDBOX_PORT = 8791  # inside the sandbox, where nothing else listens
PLACEHOLDER_API_KEY = "none-needed"


class EndpointAccess:
    """An endpoint, with the mounts and the command prefix that a sandboxed command needs to reach it.

    Inside a sandbox a bridge forwards a loopback port to the endpoint's socket; without one, the endpoint
    itself listens on a port.
    """

    def __init__(self, sandbox: Sandbox) -> None:
        """Open an endpoint for commands in this sandbox."""
        self._exit_stack = ExitStack()
        self.mounts: tuple[tuple[Path, str], ...] = ()
        self.bridge_command: list[str] = []
        folder = None
        if sandbox.name != "none":
            folder = self._exit_stack.enter_context(temporary_dir()) / "endpoint"
            folder.mkdir()
            folder.chmod(0o755)  # for the sandbox's user; the folder above keeps all others out
            self.mounts = ((Path(endpoint_bridge.__file__), "/opt/bridge.py"), (folder, "/opt/endpoint"))
            self.bridge_command = [
                *("python", "-u", "-P", "/opt/bridge.py"),
                *("/opt/endpoint/socket", str(SANDBOX_PORT)),
            ]
        self.endpoint = Endpoint(folder)
        self._exit_stack.callback(self.endpoint.close)
        self.port = SANDBOX_PORT if folder else self.endpoint.port
        self.url = f"http://127.0.0.1:{self.port}"

    @property
    def variables(self) -> dict[str, str]:
        """The environment variables that direct programs to the endpoint."""
        return {
            "OPENAI_BASE_URL": f"{self.url}/v1",
            "OPENAI_API_BASE": f"{self.url}/v1",
            "OPENAI_API_KEY": PLACEHOLDER_API_KEY,
            "ANTHROPIC_BASE_URL": self.url,
            "ANTHROPIC_API_BASE": self.url,
            "ANTHROPIC_API_KEY": PLACEHOLDER_API_KEY,
            "GOOGLE_GEMINI_BASE_URL": self.url,
            "GEMINI_API_KEY": PLACEHOLDER_API_KEY,
        }

    def close(self) -> None:
        """Refuse all waiting requests and stop listening."""
        self._exit_stack.close()
