"""Command: any outside agent, as a command line in the sandbox. Models it reaches only through our endpoint."""

import shlex
import sys
from pathlib import Path
from typing import Any

from mlagentbench.agents.base import Agent
from mlagentbench.endpoint.outside import Outside, Program
from mlagentbench.environment import Environment
from mlagentbench.errors import ModelFault, PromptTooLong, RunOver, UsageError
from mlagentbench.home import scratch
from mlagentbench.records import Call
from mlagentbench.runtimes.base import Runtime, ensure_packages, pinned

AGENT, PROGRAM, TASK = "/opt/agent", "/opt/program", "/opt/task.md"


class Command(Agent):
    """Runs a program of somebody else's; each of its questions to a model is a step, with a snapshot."""

    needs_model = True
    begins_again = True  # nobody can tell a program to skip what it did: it does it again, and hears the same replies

    def __init__(
        self,
        seed: int = 0,
        command: str = "",
        packages: str = "",
        program: str = "",
        environment: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(seed)
        self.command, self.program, self.environment = _words(command), program, _variables(environment or {})
        self.packages = pinned(packages.split())
        self.runtime: Runtime | None = None
        if program and not Path(program).is_dir():
            raise UsageError(f"the option program must be a folder, and there is none at {program}")

    def require(self, sandbox: str) -> None:
        """Its packages and its program lie where only a sandbox can put them."""
        if sandbox == "none" and (self.packages or self.program):
            raise UsageError("without a sandbox there is no /opt: name the program by its path instead")

    def prepare(self) -> None:
        """Its packages are installed once, and kept."""
        self.runtime = ensure_packages(self.packages, _say) if self.packages else None

    def run(self, env: Environment) -> None:
        """Start it, answer its questions, and submit what it leaves."""
        with scratch() as folder:
            task = folder / "task.md"
            task.write_text(env.task.description)
            env.world.outside = Outside(
                env.world.sandbox, env.world.box(), self._program(env, task), env.world.program_output
            )
            self._attend(env)
        if not env.done:
            env.step(Call(action="Final Answer", args={"final_answer": "the outside program has ended"}))

    def _program(self, env: Environment, task: Path) -> Program:
        mounts = [(task, TASK)]
        if self.runtime:
            mounts.append((self.runtime.folder, AGENT))
        if self.program:
            mounts.append((Path(self.program).resolve(), PROGRAM))
        blanks = {"{task}": TASK, "{description}": env.task.description, "{python}": f"{AGENT}/bin/python"}
        words = [_filled(word, blanks) for word in self.command]
        return Program(words, tuple(mounts), self.environment)

    def _attend(self, env: Environment) -> None:
        """Turn by turn: it runs until it asks, the model answers, it runs on."""
        said, turn = "", 0
        while not env.done:
            turn += 1
            env.step(Call(action="Command", args={"turn": turn}, thought=said))
            question = env.world.outside.question if env.world.outside else None
            if question is None:
                return
            asked = question.prompt
            try:
                reply = env.ask(asked.messages, stop=asked.stop, tools=asked.tools, max_tokens=asked.max_tokens)
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


def _words(command: str) -> list[str]:
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise UsageError(f"the option command cannot be read: {error}") from error
    if "\0" in command:
        raise UsageError("the option command has a zero byte, which no command can have")
    if not words:
        raise UsageError("the agent command needs to know what to run: --set command='...'")
    return words


def _variables(given: dict[str, Any]) -> dict[str, str]:
    """As an environment can hold them."""
    told = {name: str(value) for name, value in given.items()}
    for name, value in told.items():
        if not name or "=" in name or "\0" in name + value:
            raise UsageError(f"the option environment cannot set {name!r} to {value!r}")
    return told


def _filled(word: str, blanks: dict[str, str]) -> str:
    for blank, value in blanks.items():
        word = word.replace(blank, value)
    return word
