"""Command: any external agent, as a command line in the sandbox. It reaches models through our endpoint."""

import shlex
from pathlib import Path
from typing import Any

from mlagentbench.agents.base import Agent
from mlagentbench.endpoint.external_program import ExternalProgram, ProgramSpec
from mlagentbench.environment import Environment
from mlagentbench.errors import ModelFault, PromptTooLong, RunOver, UsageError
from mlagentbench.formatting import print_progress
from mlagentbench.language.prompts import fill_prompt
from mlagentbench.records import Call
from mlagentbench.runtimes.base import Runtime, ensure_package_runtime, require_pinned
from mlagentbench.system.cache import temporary_dir

AGENT_RUNTIME_PATH, PROGRAM_PATH, TASK_PATH = "/opt/agent", "/opt/program", "/opt/task.md"


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
        reply_text, turn = "", 0
        while not env.done:
            turn += 1
            env.step(Call(action="Command", args={"turn": turn}, thought=reply_text))
            request = env.context.external_program.request if env.context.external_program else None
            if request is None:
                return
            prompt = request.prompt
            try:
                reply = env.ask(
                    prompt.messages, stop=prompt.stop, tools=prompt.tools, max_tokens=prompt.max_tokens
                )
            except PromptTooLong as error:
                request.refuse("context_length_exceeded", str(error))
                reply_text = ""
            except RunOver:
                request.refuse("budget", "The budget of this run is used up.")
                raise
            except ModelFault as fault:
                request.refuse("model", str(fault))
                raise
            else:
                request.answer(reply)
                reply_text = reply.text


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
