"""Command: any outside agent, as a command line in the sandbox. Models it reaches only through our endpoint."""

import shlex
import sys
from pathlib import Path
from typing import Any

from mlagentbench.agents.base import Agent
from mlagentbench.endpoint.external_program import ExternalProgram, ProgramSpec
from mlagentbench.environment.environment import Environment
from mlagentbench.errors import ModelFault, PromptTooLong, RunOver, UsageError
from mlagentbench.records import Call
from mlagentbench.runtimes.base import Runtime, ensure_package_runtime, require_pinned
from mlagentbench.system.cache import temporary_dir

AGENT_RUNTIME_PATH, PROGRAM_PATH, TASK_PATH = "/opt/agent", "/opt/program", "/opt/task.md"


class Command(Agent):
    """Runs a program of somebody else's; each of its questions to a model is a step, with a snapshot."""

    needs_model = True
    restarts_on_resume = (
        True  # nobody can tell a program to skip what it did: it does it again, and hears the same replies
    )

    def __init__(
        self,
        seed: int = 0,
        command: str = "",
        packages: str = "",
        program: str = "",
        environment: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(seed)
        self.command, self.program, self.environment = (
            _split_command(command),
            program,
            _check_environment(environment or {}),
        )
        self.packages = require_pinned(packages.split())
        self.runtime: Runtime | None = None
        if program and not Path(program).is_dir():
            raise UsageError(f"the option program must be a folder, and there is none at {program}")

    def check_sandbox(self, sandbox: str) -> None:
        """Its packages and its program lie where only a sandbox can put them."""
        if sandbox == "none" and (self.packages or self.program):
            raise UsageError("without a sandbox there is no /opt: name the program by its path instead")

    def prepare(self) -> None:
        """Its packages are installed once, and kept."""
        self.runtime = ensure_package_runtime(self.packages, _say) if self.packages else None

    def run(self, env: Environment) -> None:
        """Start it, answer its questions, and submit what it leaves."""
        with temporary_dir() as folder:
            task = folder / "task.md"
            task.write_text(env.task.description)
            env.context.external_program = ExternalProgram(
                env.context.sandbox,
                env.context.sandbox_spec(),
                self._program(env, task),
                env.context.program_output_path,
            )
            self._serve_model_calls(env)
        if not env.done:
            env.step(Call(action="Final Answer", args={"final_answer": "the outside program has ended"}))

    def _program(self, env: Environment, task: Path) -> ProgramSpec:
        mounts = [(task, TASK_PATH)]
        if self.runtime:
            mounts.append((self.runtime.folder, AGENT_RUNTIME_PATH))
        if self.program:
            mounts.append((Path(self.program).resolve(), PROGRAM_PATH))
        blanks = {
            "{task}": TASK_PATH,
            "{description}": env.task.description,
            "{python}": f"{AGENT_RUNTIME_PATH}/bin/python",
        }
        words = [_fill_placeholders(word, blanks) for word in self.command]
        return ProgramSpec(words, tuple(mounts), self.environment)

    def _serve_model_calls(self, env: Environment) -> None:
        """Turn by turn: it runs until it asks, the model answers, it runs on."""
        said, turn = "", 0
        while not env.done:
            turn += 1
            env.step(Call(action="Command", args={"turn": turn}, thought=said))
            question = env.context.external_program.request if env.context.external_program else None
            if question is None:
                return
            asked = question.prompt
            try:
                reply = env.ask(
                    asked.messages, stop=asked.stop, tools=asked.tools, max_tokens=asked.max_tokens
                )
            except PromptTooLong as error:
                question.refuse("context_length_exceeded", str(error))
                said = ""
            except RunOver:
                question.refuse("budget", "the budget of this run is used up")
                raise
            except ModelFault as fault:
                question.refuse("model", str(fault))
                raise
            else:
                question.answer(reply)
                said = reply.text


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _split_command(command: str) -> list[str]:
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise UsageError(f"the option command cannot be read: {error}") from error
    if "\0" in command:
        raise UsageError("the option command has a zero byte, which no command can have")
    if not words:
        raise UsageError("the agent command needs to know what to run: --set command='...'")
    return words


def _check_environment(given: dict[str, Any]) -> dict[str, str]:
    """As an environment can hold them."""
    told = {name: str(value) for name, value in given.items()}
    for name, value in told.items():
        if not name or "=" in name or "\0" in name + value:
            raise UsageError(f"the option environment cannot set {name!r} to {value!r}")
    return told


def _fill_placeholders(word: str, blanks: dict[str, str]) -> str:
    for blank, value in blanks.items():
        word = word.replace(blank, value)
    return word
