"""Command: any external agent, as a command line in the sandbox. It reaches models through our endpoint."""

import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from mlagentbench.agents.base import Agent
from mlagentbench.endpoint.external_program import ExternalProgram, ProgramSpec
from mlagentbench.endpoint.server import ModelRequest
from mlagentbench.environment import Environment
from mlagentbench.errors import Fault, ModelFault, PromptRejected, PromptTooLong, RunOver, UsageError
from mlagentbench.formatting import print_progress, strip_control_chars
from mlagentbench.language.prompts import fill_prompt
from mlagentbench.records import Call, Execution, Reply
from mlagentbench.runtimes.base import Runtime, ensure_package_runtime, require_pinned
from mlagentbench.system.cache import temporary_dir
from mlagentbench.system.progress import ProgressCallback

AGENT_RUNTIME_PATH, PROGRAM_PATH, TASK_PATH = "/opt/agent", "/opt/program", "/opt/task.md"
FAULT_LINES, MAX_FAULT_CHARS = 5, 600  # of the program's output in the note of a fault


class Command(Agent):
    """Runs an external program. Each of its requests to a model is a step with a snapshot."""

    needs_model = True
    # A program cannot skip what it did before: a resumed run starts it again with the recorded replies.
    restarts_on_resume = True

    def __init__(
        self,
        seed: int = 0,
        command: str = "",
        packages: str = "",
        program: str = "",
        environment: dict[str, Any] | None = None,
    ) -> None:
        """Create the agent.

        Args:
            seed: The seed.
            command: The command line. {task} is replaced by the path of the task description,
                {description} by its text, {python} by the Python with `packages`.
            packages: Pinned packages to install for the program, separated by spaces.
            program: A folder to mount at /opt/program.
            environment: Environment variables.
        """
        super().__init__(seed)
        self.command = _split_command(command)
        self.program = program
        self.environment = _check_environment(environment or {})
        self.packages = require_pinned(packages.split())
        self.runtime: Runtime | None = None
        if program and not Path(program).is_dir():
            raise UsageError(f"The option program must be a folder; {program} is not one.")

    def check_sandbox(self, sandbox: str) -> None:
        """Refuse to run without a sandbox if packages or a program must be mounted."""
        if sandbox == "none" and (self.packages or self.program):
            raise UsageError("Without a sandbox there is no /opt. Give the program by its path instead.")

    def prepare(self) -> None:
        """Install the packages; they are cached."""
        self.runtime = ensure_package_runtime(self.packages, print_progress) if self.packages else None

    def run(self, env: Environment) -> None:
        """Start the program, answer its model requests, and submit what it leaves."""
        with temporary_dir() as folder:
            task = folder / "task.md"
            task.write_text(_describe_task(env))
            env.context.external_program = ExternalProgram(
                env.context.sandbox,
                env.context.sandbox_spec(),
                self._program_spec(env, task),
                env.context.program_output_path,
            )
            self._serve_model_calls(env)
        if not env.done:
            env.step(Call(action="Final Answer", args={"final_answer": "the external program exited"}))

    def _program_spec(self, env: Environment, task: Path) -> ProgramSpec:
        mounts = [(task, TASK_PATH)]
        if self.runtime:
            mounts.append((self.runtime.folder, AGENT_RUNTIME_PATH))
        if self.program:
            mounts.append((Path(self.program).resolve(), PROGRAM_PATH))
        values = {
            "{task}": TASK_PATH,
            "{description}": _describe_task(env),
            "{python}": f"{AGENT_RUNTIME_PATH}/bin/python",
        }
        words = [_fill_placeholders(word, values) for word in self.command]
        return ProgramSpec(words, tuple(mounts), self.environment)

    def _serve_model_calls(self, env: Environment) -> None:
        """Let the program run until it asks a model, answer, and continue, until it exits."""
        reply, turn, program = Reply(), 0, env.context.external_program
        assert program
        notices = Notices(env.on_notice)
        while not env.done:
            turn += 1
            env.step(Call(action="Command", args={"turn": turn}, thought=reply.text))
            notices.show(f"refused a request of the program: {refusal}" for refusal in program.refusals)
            if env.context.external_program is None:
                _raise_if_never_answered(program, env.steps[-1].execution)
                return
            if program.request is None:
                return
            reply = _answer_request(env, program.request)
            notices.show(f"{reply.model} does not have the setting {name}" for name in reply.not_applied)


class Notices:
    """Lines for the person who watches the run, each shown once."""

    def __init__(self, show_line: ProgressCallback) -> None:
        self._show_line, self._shown = show_line, set[str]()

    def show(self, lines: Iterable[str]) -> None:
        """Show the lines that are new."""
        for line in lines:
            if line not in self._shown:
                self._shown.add(line)
                self._show_line(line)


def _answer_request(env: Environment, request: ModelRequest) -> Reply:
    """Pass a request of the program to the model; the reply is empty if it was refused."""
    try:
        reply = env.ask_prompt(request.prompt)
    except PromptTooLong as error:
        request.refuse("context_length_exceeded", str(error))
        return Reply()
    except PromptRejected as error:
        request.refuse("unsupported", str(error))
        return Reply()
    except RunOver:
        request.refuse("budget", "The budget of this run is used up.")
        raise
    except ModelFault as fault:
        request.refuse("model", str(fault))
        raise
    request.answer(reply)
    return reply


def _raise_if_never_answered(program: ExternalProgram, execution: Execution | None) -> None:
    """Raise a Fault if the program failed before the model had answered it once: it was not set up well.

    Its exit would otherwise count as the model's failure.
    """
    if execution is None or execution.limit or program.was_answered:
        return
    if execution.exit_code == 0 and not program.refusals:
        return  # it did what it wanted without a model
    lines = [line.strip() for line in strip_control_chars(program.output.text).splitlines() if line.strip()]
    printed = " | ".join(lines[-FAULT_LINES:])[-MAX_FAULT_CHARS:] or "nothing"
    refused = f" A request was refused: {program.refusals[-1]}" if program.refusals else ""
    raise Fault(
        f"The program ended with exit code {execution.exit_code} before the model had answered it.{refused}"
        f" It printed: {printed}"
    )


def _describe_task(env: Environment) -> str:
    """The problem statement, and how its limits apply to a program inside the sandbox."""
    return f"{env.problem_statement}{fill_prompt('program_limits')}\n"


def _split_command(command: str) -> list[str]:
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise UsageError(f"The option command cannot be parsed: {error}.") from error
    if "\0" in command:
        raise UsageError("The option command contains a NUL character.")
    if not words:
        raise UsageError("The agent command needs a command line: --set command='...'")
    return words


def _check_environment(variables: dict[str, Any]) -> dict[str, str]:
    """Environment variables as text."""
    texts = {name: str(value) for name, value in variables.items()}
    for name, value in texts.items():
        if not name or "=" in name or "\0" in name + value:
            raise UsageError(f"The option environment cannot set {name!r} to {value!r}.")
    return texts


def _fill_placeholders(word: str, values: dict[str, str]) -> str:
    for placeholder, value in values.items():
        word = word.replace(placeholder, value)
    return word
