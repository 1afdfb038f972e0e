"""Command: any external agent, as a command line in the sandbox. It reaches models through our endpoint."""

import shlex
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from blake3 import blake3

from mlagentbench.agents.base import Agent
from mlagentbench.agents.programs.mounts import CA_BUNDLE_PATH, HOME_PATH, copy_home_command, find_ca_bundle
from mlagentbench.endpoint.external_program import ExternalProgram, ProgramSpec
from mlagentbench.endpoint.server import ModelRequest
from mlagentbench.environment import Environment
from mlagentbench.errors import ModelFault, ProgramFault, PromptRejected, PromptTooLong, RunOver, UsageError
from mlagentbench.formatting import print_progress, strip_control_chars
from mlagentbench.language.prompts import fill_prompt
from mlagentbench.records import EXTERNAL_COMMAND, Call, Execution, ProgramInfo, Reply
from mlagentbench.runtimes.base import require_pinned
from mlagentbench.runtimes.interpreters import find_interpreter
from mlagentbench.runtimes.programs import InstalledProgram, make_readable
from mlagentbench.runtimes.python_programs import ensure_python_program, lock_packages
from mlagentbench.system.cache import temporary_dir
from mlagentbench.system.hashing import hash_tree
from mlagentbench.system.progress import ProgressCallback

PROGRAM_PATH, TASK_PATH = "/opt/program", "/opt/task.md"
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
        home: str = "",
        python: str = "",
    ) -> None:
        """Create the agent.

        Args:
            seed: The seed.
            command: The command line. {task} is replaced by the path of the task description,
                {description} by its text, {python} by the Python with `packages`, {url} and {port} by the
                address of the models.
            packages: Pinned packages to install for the program, separated by spaces; or the path of a
                file with requirements and their hashes.
            program: A folder to mount at /opt/program.
            environment: Environment variables.
            home: A folder whose content is copied into the program's home folder.
            python: The Python for `packages`: a version such as 3.12, or the path of an interpreter.
        """
        super().__init__(seed)
        self.command = split_command(command)
        self.environment: Mapping[str, str] = _check_environment(environment or {})
        self.packages = packages.split()
        self.interpreter = find_interpreter(python)
        if python and not packages:
            raise UsageError("The option python chooses the Python of packages: set packages, too.")
        self.program_folder = _check_folder("program", program)
        self.home_folder = _check_folder("home", home)
        if self.program_folder:
            _check_program(self.program_folder, self.command)
        if not packages.endswith(".txt"):
            require_pinned(self.packages)
        self.installed = InstalledProgram((), "")

    def check_sandbox(self, sandbox: str) -> None:
        """Refuse to run without a network, or without mounts if something must be mounted."""
        if sandbox == "landlock":
            raise UsageError(
                "The agent command needs a loopback network, which --sandbox landlock does not have. "
                "Use --sandbox bwrap."
            )
        if sandbox == "none" and (self.packages or self.program_folder or self.home_folder):
            raise UsageError("Without a sandbox there is no /opt. Give the program by its path instead.")

    def prepare(self) -> None:
        """Install the packages, which are cached, and identify the program."""
        if self.packages:
            lock = lock_packages(self.packages, self.interpreter, print_progress)
            self.installed = ensure_python_program(lock, self.interpreter, print_progress)
        folders = [folder for folder in (self.program_folder, self.home_folder) if folder]
        if self.packages or folders:
            content = self.installed.lock + hash_tree(*folders)
            name = self.packages[0].partition("==")[0] if self.packages else folders[0].name
            self.program = ProgramInfo(name=name, hash=blake3(content.encode()).hexdigest())
        self.program_lock = self.installed.lock

    def run(self, env: Environment) -> None:
        """Start the program, answer its model requests, and submit what it leaves."""
        with temporary_dir() as folder:
            (folder / "task.md").write_text(_describe_task(env))
            self.write_home(folder / "home")
            env.context.external_program = ExternalProgram(
                env.context.sandbox,
                env.context.sandbox_spec(),
                self._program_spec(env, folder),
                env.context.program_output_path,
            )
            self._serve_model_calls(env)
        if not env.done:
            env.step(Call(action="Final Answer", args={"final_answer": "the external program exited"}))

    def write_home(self, folder: Path) -> None:
        """Create `folder` with what the program's home folder must contain, if anything."""
        if self.home_folder:
            shutil.copytree(self.home_folder, folder, symlinks=True)

    def _program_spec(self, env: Environment, folder: Path) -> ProgramSpec:
        mounts = [(folder / "task.md", TASK_PATH), (find_ca_bundle(), CA_BUNDLE_PATH), *self.installed.mounts]
        if self.program_folder:
            mounts.append((self.program_folder, PROGRAM_PATH))
        command = self.command
        if (folder / "home").is_dir():
            make_readable(folder / "home")
            mounts.append((folder / "home", HOME_PATH))
            command = copy_home_command(command)
        placeholders = {
            **self.installed.placeholders,
            "{task}": TASK_PATH,
            "{description}": _describe_task(env),
        }
        environment = {**self.installed.environment, **self.environment}
        return ProgramSpec(command, tuple(mounts), environment, placeholders)

    def _serve_model_calls(self, env: Environment) -> None:
        """Let the program run until it asks a model, answer, and continue, until it exits."""
        reply, turn, program = Reply(), 0, env.context.external_program
        assert program
        notices = Notices(env.on_notice)
        while not env.done:
            turn += 1
            calls = {"calls": [call.model_dump() for call in reply.calls]} if reply.calls else {}
            thought = "\n\n".join(filter(None, (reply.reasoning, reply.text)))
            env.step(Call(action=EXTERNAL_COMMAND, args={"turn": turn, **calls}, thought=thought))
            notices.show(f"A request of the program was refused: {refusal}" for refusal in program.refusals)
            if env.context.external_program is None:
                _raise_if_never_answered(program, env.steps[-1].execution)
                return
            if program.request is None:
                return
            reply = _answer_request(env, program.request)
            notices.show(
                f"The model {reply.model} does not have the setting {name}, which the program asked for."
                for name in reply.not_applied
            )


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
    """Raise a ProgramFault if the program failed before the model had answered it: it was not set up well.

    Its exit would otherwise count as the model's failure.
    """
    if execution is None or execution.limit or program.was_answered:
        return
    if execution.exit_code == 0 and not program.refusals:
        return  # it did what it wanted without a model
    lines = [line.strip() for line in strip_control_chars(program.output.text).splitlines() if line.strip()]
    printed = " | ".join(lines[-FAULT_LINES:])[-MAX_FAULT_CHARS:] or "nothing"
    refused = f" A request was refused: {program.refusals[-1]}" if program.refusals else ""
    raise ProgramFault(
        f"The program ended with exit code {execution.exit_code} before the model had answered it.{refused}"
        f" It printed: {printed}"
    )


def _describe_task(env: Environment) -> str:
    """The problem statement, and how its limits apply to a program inside the sandbox."""
    return f"{env.problem_statement}{fill_prompt('program_limits')}\n"


def split_command(command: str) -> list[str]:
    """The words of a command line; raises UsageError if it has none."""
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


def _check_folder(option: str, path: str) -> Path | None:
    """The folder that an option names; None if it is not set."""
    folder = Path(path).expanduser().resolve()
    if path and folder.is_file():
        raise UsageError(f"The option {option} must be a folder; {path} is a file. Try {folder.parent}")
    if path and not folder.is_dir():
        raise UsageError(f"The option {option} must be a folder; {path} is not one.")
    return folder if path else None


def _check_program(folder: Path, command: list[str]) -> None:
    """Refuse a command line that names a file which the folder does not have."""
    for word in command:
        if not word.startswith(f"{PROGRAM_PATH}/"):
            continue
        path = word.removeprefix(f"{PROGRAM_PATH}/")
        if not (folder / path).exists() and not (folder / path).is_symlink():
            npm = " Run npm install in it first, or give the folder that contains node_modules."
            hint = npm if path.startswith("node_modules/") else ""
            raise UsageError(f"{word} does not exist: {folder} is mounted there and has no {path}.{hint}")
