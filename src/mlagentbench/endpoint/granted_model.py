"""The run's model for one command in the sandbox, if the task grants it."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from mlagentbench.endpoint.external_program import SANDBOX_PORT, endpoint_variables
from mlagentbench.endpoint.server import Endpoint
from mlagentbench.errors import Fault, PromptRejected, PromptTooLong, RunOver
from mlagentbench.records import Prompt, Reply
from mlagentbench.sandbox.base import Sandbox, SandboxSpec
from mlagentbench.sandbox.programs import endpoint_bridge
from mlagentbench.system.cache import temporary_dir

MODEL_URL_VARIABLE = "MLAGENTBENCH_MODEL_URL"
BUDGET_EXHAUSTED = "The budget of this run is used up. No more model calls are possible."


class GrantedModel:
    """An endpoint that one command reaches on its loopback interface.

    Requests are answered one at a time, in the thread of the step. A request that the model cannot answer is
    refused, and the command goes on.
    """

    def __init__(self, sandbox: Sandbox, answer: Callable[[Prompt], Reply]) -> None:
        """Open the endpoint.

        Args:
            sandbox: Where the command will run.
            answer: Asks the model, within the budget of the run, and records the call.
        """
        self._answer = answer
        self._exit_stack = ExitStack()
        self._folder: Path | None = None
        if sandbox.name != "none":
            self._folder = self._exit_stack.enter_context(temporary_dir()) / "endpoint"
            self._folder.mkdir()
            self._folder.chmod(0o755)  # for the sandbox's user; the folder above keeps all others out
        self._endpoint = Endpoint(self._folder)
        self._exit_stack.callback(self._endpoint.close)

    @property
    def request_fd(self) -> int:
        """Readable while a request waits."""
        return self._endpoint.request_fd

    def wrap_command(self, argv: Sequence[str]) -> list[str]:
        """Start the bridge from the loopback port to the endpoint's socket first."""
        if self._folder is None:
            return list(argv)
        return ["python", "-u", "-P", "/opt/bridge.py", "/opt/endpoint/socket", str(SANDBOX_PORT), *argv]

    def extend_spec(self, spec: SandboxSpec) -> SandboxSpec:
        """Mount the bridge and the socket, and tell programs where the endpoint is."""
        port = self._endpoint.port if self._folder is None else SANDBOX_PORT
        url = f"http://127.0.0.1:{port}"
        variables = {**endpoint_variables(url), MODEL_URL_VARIABLE: f"{url}/v1"}
        mounts = spec.mounts
        if self._folder:
            mounts += ((Path(endpoint_bridge.__file__), "/opt/bridge.py"), (self._folder, "/opt/endpoint"))
        return replace(spec, mounts=mounts, environment={**spec.environment, **variables})

    def serve_request(self) -> None:
        """Answer the request that has waited longest.

        Raises:
            Fault: The provider or the harness failed.
            Stopped: A stop was requested.
        """
        request = self._endpoint.take_request()
        if request is None:
            return
        try:
            request.answer(self._answer(request.prompt))
        except RunOver:
            request.refuse("budget", BUDGET_EXHAUSTED)
        except PromptTooLong as error:
            request.refuse("context_length_exceeded", str(error))
        except PromptRejected as error:
            request.refuse("invalid_request", str(error))
        except Fault as fault:
            request.refuse("model", str(fault))
            raise

    def close(self) -> None:
        """Refuse all waiting requests and stop listening."""
        self._exit_stack.close()
