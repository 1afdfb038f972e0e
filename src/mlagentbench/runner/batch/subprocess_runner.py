"""A run in a process of its own: what its agent does to the interpreter, it does to that one only."""

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

EXIT_DONE, EXIT_STOPPED, EXIT_USAGE_ERROR, EXIT_FAULT = (
    90,
    91,
    92,
    93,
)  # exit codes that no agent is likely to hit upon
PROCESS_DEATH_PREFIX = "the process of the run"
STDERR_TAIL_BYTES = 2000  # bytes of what it said last
IMPORT_TIMEOUT_S = 60  # seconds for an agent's file to be imported


class AgentTraits(Record):
    """What must be known of an agent before a run of it can be planned."""

    needs_model: bool
    interactive: bool


def inspect_agent(agent_spec: AgentSpec, sandbox: str) -> AgentTraits:
    """Of one of ours in such a sandbox; a file is anybody's code, and looked at in a process of its own."""
    if not agent_spec.agent.endswith(".py"):
        kind = agents.load_agent_class(agent_spec.agent)
        agents.instantiate_agent(kind, 0, agent_spec.options, sandbox)
        return AgentTraits(needs_model=kind.needs_model, interactive=kind.interactive)
    command = _child_command("traits", sandbox)
    try:
        done = subprocess.run(
            command,
            input=agent_spec.model_dump_json(),
            capture_output=True,
            text=True,
            timeout=IMPORT_TIMEOUT_S,
            check=False,
        )
        if done.returncode == EXIT_USAGE_ERROR:
            raise UsageError(done.stderr.strip().rpartition("\n")[2])
        return AgentTraits.model_validate_json(done.stdout.rpartition("\n")[2])
    except subprocess.TimeoutExpired:
        raise UsageError(f"{agent_spec.agent}: its import takes over {IMPORT_TIMEOUT_S} seconds") from None
    except ValidationError:
        raise UsageError(
            f"{agent_spec.agent} {_describe_exit(done.returncode)} when it is imported"
        ) from None


def _child_command(*words: str) -> list[str]:
    # It dies with us, however we die.
    die_too = ["setpriv", "--pdeathsig", "KILL", "--"]
    return [*die_too, sys.executable, "-P", "-m", "mlagentbench.runner.batch.child", str(os.getpid()), *words]


def _describe_exit(code: int) -> str:
    if code >= 0:
        return f"ended the interpreter (exit code {code})"
    return f"was killed by {signal.Signals(-code).name}"


class RunProcess:
    """One such process, under way."""

    def __init__(self, place: Path, gpu: str, task: Path) -> None:
        self._child = subprocess.Popen(
            _child_command("proceed", str(place), gpu, str(task)),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for the batch, which then stops its runs
        )
        self.stop_requested = False

    def stop(self) -> None:
        """Ask it to stop at its next moment."""
        self.stop_requested = True
        self._child.terminate()

    def wait(self) -> str:
        """Until it ends; why it died, if it did not end as it should. What it refuses to do is a UsageError."""
        assert self._child.stderr
        ended, heard = os.pidfd_open(self._child.pid), b""
        try:
            poll = select.poll()
            poll.register(ended, select.POLLIN)
            poll.register(self._child.stderr, select.POLLIN)
            while True:
                ready = dict(poll.poll())
                if self._child.stderr.fileno() in ready:
                    said = os.read(self._child.stderr.fileno(), 1 << 16)
                    heard = (heard + said)[-STDERR_TAIL_BYTES:]
                    if not said:
                        poll.unregister(self._child.stderr)
                elif ended in ready:  # its own children may still hold its output open
                    break
            code = self._child.wait()
        finally:
            os.close(ended)
            self._child.stderr.close()
        if code in (EXIT_DONE, EXIT_STOPPED) or self.stop_requested:
            return ""
        words = heard.decode("utf-8", "replace").strip().rpartition("\n")[2]
        if code == EXIT_USAGE_ERROR:
            raise UsageError(words)
        return (
            words
            if code == EXIT_FAULT
            else f"{PROCESS_DEATH_PREFIX} {_describe_exit(code)}{': ' if words else ''}{words}"
        )
