"""Exceptions, grouped by who handles them.

BenchError
├─ UsageError         the user: one line, exit code 2
├─ ActionError        the agent: becomes its observation; the run continues
├─ PromptTooLong      the agent: it can ask again with a shorter prompt
├─ RunOver            the runner: step() was called after the end
├─ InvalidSubmission  the result: the agent failed, and that is a result
└─ Fault              the harness: the run is void, never a zero, and always reported
   ├─ ModelFault      the provider failed
   │  └─ PromptRejected   the prompt has something that the model does not support
   ├─ ProgramFault    an external program failed before the model had answered it
   ├─ SandboxFault    the machine failed
   └─ TaskFault       prepare.py or grade.py failed

Stopped is a KeyboardInterrupt that reaches every thread: the run is left as it is and can be resumed.
"""


class BenchError(Exception):
    """Base class of all exceptions that this package raises on purpose."""


class UsageError(BenchError):
    """The user asked for something that does not exist or does not fit."""


class ActionError(BenchError):
    """An action failed; the message is written for the agent."""


class PromptTooLong(BenchError):
    """The prompt exceeds the model's context."""


class RunOver(BenchError):
    """The run has ended."""


class InvalidSubmission(BenchError):
    """The submission cannot be graded."""


class Fault(BenchError):
    """A failure that is not the agent's."""


class ModelFault(Fault):
    """The model provider failed."""


class PromptRejected(ModelFault):
    """The model does not support something in the prompt; an external program is told, and may ask again."""


class ProgramFault(Fault):
    """An external program failed before the model had answered it: it is not set up well.

    A batch does not repeat such a run, and reports count it as a failure if the same program started in
    another run. Otherwise a program could choose its runs, after it has seen the task.
    """

    @classmethod
    def is_cause_of(cls, note: str) -> bool:
        """Whether the note of a result says that such a fault ended the run."""
        return note.startswith(f"{cls.__name__}: ")


class SandboxFault(Fault):
    """The sandbox or the machine failed."""


class TaskFault(Fault):
    """The task's own code failed.

    Attributes:
        details: The last lines that the code printed, for the author of the task.
    """

    def __init__(self, message: str, details: str = "") -> None:
        super().__init__(message)
        self.details = details


class Stopped(KeyboardInterrupt):
    """The run was asked to stop. Not an Exception, so agents that catch everything still stop."""
