"""The run's model for one command in the sandbox, if the task grants it."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from mlagentbench.endpoint.sandbox_access import EndpointAccess
from mlagentbench.errors import Fault, PromptRejected, PromptTooLong, RunOver
from mlagentbench.records import Prompt, Reply
from mlagentbench.sandbox.base import Sandbox, SandboxSpec

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
        self._access = EndpointAccess(sandbox)
        self._endpoint = self._access.endpoint

    @property
    def request_fd(self) -> int:
        """Readable while a request waits."""
        return self._endpoint.request_fd

    def wrap_command(self, argv: Sequence[str]) -> list[str]:
        """Start the bridge from the loopback port to the endpoint's socket first."""
        return [*self._access.bridge_command, *argv]

    def extend_spec(self, spec: SandboxSpec) -> SandboxSpec:
        """Mount the bridge and the socket, and tell programs where the endpoint is."""
        variables = {**self._access.variables, MODEL_URL_VARIABLE: f"{self._access.url}/v1"}
        return replace(
            spec,
            mounts=(*spec.mounts, *self._access.mounts),
            environment={**spec.environment, **variables},
        )

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
        self._access.close()
