"""Every error of the project, by who must hear of it.

BenchError
├─ UsageError         the person at the terminal: one line, exit code 2
├─ ActionError        the agent: becomes its observation; the run goes on
├─ PromptTooLong      the agent: it can ask again and show less
├─ RunOver            the runner: step() was called after the end
├─ InvalidSubmission  the score card: the agent's fault, and a real result
└─ Fault              us: the run is void, never a zero, always counted and shown
   ├─ ModelFault      the provider failed
   ├─ SandboxFault    the machine failed
   └─ TaskFault       prepare.py or grade.py failed

Stopped is a KeyboardInterrupt that any thread hears: the run is left as it is, to be resumed.
"""


class BenchError(Exception):
    """Base of all the errors that this package raises on purpose."""


class UsageError(BenchError):
    """Something asked for does not exist or does not fit."""


class ActionError(BenchError):
    """An action could not be done; the message is for the agent to read."""


class PromptTooLong(BenchError):
    """The model takes no prompt of this length."""


class RunOver(BenchError):
    """The run has already ended."""


class InvalidSubmission(BenchError):
    """What the agent left cannot be graded."""


class Fault(BenchError):
    """A failure that is not the agent's."""


class ModelFault(Fault):
    """The model provider failed."""


class SandboxFault(Fault):
    """The sandbox, or the machine under it, failed."""


class TaskFault(Fault):
    """Code of the task itself failed."""


class Stopped(KeyboardInterrupt):
    """Somebody asked the run to stop; no agent that catches every Exception can miss it."""
