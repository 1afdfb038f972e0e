"""Runs one run in a process of its own, so that a crash of the interpreter affects no other run."""

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

from pydantic import ValidationError

from mlagentbench.agents import base as agents
from mlagentbench.errors import UsageError
from mlagentbench.records import AgentSpec, Record
from mlagentbench.system.spawn import die_with_parent

# Exit codes of the child process, chosen so that code of an agent is unlikely to exit with one of them.
EXIT_DONE, EXIT_STOPPED, EXIT_USAGE_ERROR, EXIT_FAULT = 90, 91, 92, 93

PROCESS_DEATH_PREFIX = "The process of the run"  # starts the note of a run whose process died
STDERR_TAIL_BYTES = 2000  # of the child's output, the part that is kept for error messages
IMPORT_TIMEOUT_S = 60


class AgentTraits(Record):
    """What a plan needs to know about an agent."""

    needs_model: bool
    needs_tools: bool
    interactive: bool

    @classmethod
    def of_class(cls, agent_class: type[agents.Agent]) -> "AgentTraits":
        """The traits of an agent class."""
        return cls(**{name: getattr(agent_class, name) for name in cls.model_fields})


def inspect_agent(agent_spec: AgentSpec, sandbox: str) -> AgentTraits:
    """Check that an agent can be created for this sandbox. A file is imported in a process of its own."""
    if not agent_spec.agent.endswith(".py"):
        agent_class = agents.load_agent_class(agent_spec.agent)
        agents.instantiate_agent(agent_class, 0, agent_spec.options, sandbox)
        return AgentTraits.of_class(agent_class)
    try:
        process = subprocess.run(
            _child_command("traits", sandbox),
            input=agent_spec.model_dump_json(),
            capture_output=True,
            text=True,
            timeout=IMPORT_TIMEOUT_S,
            check=False,
        )
        if process.returncode == EXIT_USAGE_ERROR:
            raise UsageError(process.stderr.strip().rpartition("\n")[2])
        return AgentTraits.model_validate_json(process.stdout.rpartition("\n")[2])
    except subprocess.TimeoutExpired:
        raise UsageError(f"{agent_spec.agent} takes more than {IMPORT_TIMEOUT_S} s to import") from None
    except ValidationError:
        raise UsageError(
            f"{agent_spec.agent} {_describe_exit(process.returncode)} while it was imported"
        ) from None


def _child_command(*arguments: str) -> list[str]:
    module = "mlagentbench.runner.batch.child"
    return die_with_parent([sys.executable, "-P", "-m", module, str(os.getpid()), *arguments])


def _describe_exit(code: int) -> str:
    if code >= 0:
        return f"exited the interpreter (exit code {code})"
    return f"was killed by {signal.Signals(-code).name}"


class RunProcess:
    """A child process that executes one run."""

    def __init__(self, path: Path, gpu: str, task: Path) -> None:
        """Start the process for the run folder `path`."""
        self._child = subprocess.Popen(
            _child_command("resume", str(path), gpu, str(task)),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C goes to the batch only, which then stops its runs
        )
        self.stop_requested = False

    def stop(self) -> None:
        """Ask the run to stop as soon as possible."""
        self.stop_requested = True
        self._child.terminate()

    def wait(self) -> str:
        """Wait until the process ends.

        Returns:
            How the process failed, or an empty string.

        Raises:
            UsageError: The run cannot be started or resumed.
        """
        exit_code, stderr_tail = self._wait_and_read_stderr()
        if exit_code in (EXIT_DONE, EXIT_STOPPED) or self.stop_requested:
            return ""
        last_line = stderr_tail.decode("utf-8", "replace").strip().rpartition("\n")[2]
        if exit_code == EXIT_USAGE_ERROR:
            raise UsageError(last_line)
        if exit_code == EXIT_FAULT:
            return last_line
        return f"{PROCESS_DEATH_PREFIX} {_describe_exit(exit_code)}{': ' if last_line else ''}{last_line}"

    def _wait_and_read_stderr(self) -> tuple[int, bytes]:
        """Wait for the process itself: its own children may keep stderr open after it has ended."""
        stderr = self._child.stderr
        assert stderr
        pidfd, tail = os.pidfd_open(self._child.pid), b""
        try:
            poll = select.poll()
            poll.register(pidfd, select.POLLIN)
            poll.register(stderr, select.POLLIN)
            while True:
                ready = dict(poll.poll())
                if stderr.fileno() in ready:
                    data = os.read(stderr.fileno(), 1 << 16)
                    tail = (tail + data)[-STDERR_TAIL_BYTES:]
                    if not data:
                        poll.unregister(stderr)
                elif pidfd in ready:
                    break
            return self._child.wait(), tail
        finally:
            os.close(pidfd)
            stderr.close()
