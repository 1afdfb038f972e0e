"""The state of a run that actions work on."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from mlagentbench.endpoint.granted_model import GrantedModel
from mlagentbench.environment.model_calls import CallContext, ModelCalls
from mlagentbench.errors import ActionError, PromptRejected, PromptTooLong, UsageError
from mlagentbench.records import Execution, Limits, Message, Prompt, Reply, Role, Step
from mlagentbench.runtimes.base import Runtime
from mlagentbench.sandbox.access_log.recording import AccessLog
from mlagentbench.sandbox.base import Sandbox, SandboxSpec
from mlagentbench.sandbox.output import CommandOutput
from mlagentbench.sandbox.repl import Repl
from mlagentbench.system.stop_token import StopToken
from mlagentbench.workspace.files import Workspace
from mlagentbench.workspace.store import Store

if TYPE_CHECKING:
    from mlagentbench.endpoint.external_program import ExternalProgram

AskPerson = Callable[[str], str]
MAX_REPLY_TOKENS = 4000
MAX_RESEARCH_LOG_CHARS = 40_000


@dataclass
class ActionContext:
    """What an action may use. One object per run; the environment updates it before each step.

    Attributes:
        workspace: The files of the run.
        store: The snapshots.
        sandbox: Runs commands.
        runtime: The Python environment of commands.
        limits: The limits of the run.
        outputs_dir: Where the complete outputs of commands are written.
        model_calls: Asks the models, within the budget and on the record; actions use `ask_model`.
        seed: The seed of scripts.
        ask_person: Answers the questions of an interactive agent.
        stop_token: Whether the run or the current command should stop.
        access_log: Where file and socket accesses are recorded, if they are.
        steps: The steps so far.
        research_notes: The entries of the research log.
        repl: The interpreter of *Python REPL*, once it has been started.
        external_program: The program of the agent `command`, while it runs.
        step_time_limit_s: How long a command of the current step may take.
        output: What the command of the current step has printed so far.
        execution: How the command of the current step ended.
        grants_model: Whether the task lets commands in the sandbox call the run's model.
        rerun_step: The recorded step whose command runs again in a resumed run.
    """

    workspace: Workspace
    store: Store
    sandbox: Sandbox
    runtime: Runtime
    limits: Limits
    outputs_dir: Path
    model_calls: ModelCalls
    seed: int = 0
    ask_person: AskPerson | None = None
    stop_token: StopToken = field(default_factory=StopToken)
    access_log: AccessLog | None = None
    steps: list[Step] = field(default_factory=list)
    research_notes: list[str] = field(default_factory=list)
    repl: Repl | None = None
    external_program: "ExternalProgram | None" = None
    step_time_limit_s: float = 0.0
    output: CommandOutput | None = None
    execution: Execution | None = None
    grants_model: bool = False
    rerun_step: int | None = None

    def __post_init__(self) -> None:
        self.store.mapped_inodes = self.mapped_inodes

    def mapped_inodes(self) -> set[int]:
        """The inodes of files that a process living between steps has mapped into memory."""
        processes = (self.repl, self.external_program)
        return {inode for process in processes if process for inode in process.mapped_inodes}

    @property
    def call_context(self) -> CallContext:
        """The context of a model call that an action makes in the current step."""
        return CallContext(len(self.steps) + 1, inside_action=True)

    @property
    def step_output_path(self) -> Path:
        """The file for the complete output of the current step."""
        self.outputs_dir.mkdir(exist_ok=True)
        return self.outputs_dir / f"step-{len(self.steps) + 1:04d}.txt"

    @property
    def program_output_path(self) -> Path:
        """The file for the complete output of an external program."""
        self.outputs_dir.mkdir(exist_ok=True)
        return self.outputs_dir / "program.txt"

    def sandbox_spec(self) -> SandboxSpec:
        """What a command of the agent may see and use, given the files that are read-only now."""
        return SandboxSpec(
            workspace=self.workspace.root,
            runtime=self.runtime,
            limits=self.limits,
            read_only_paths=tuple(self.workspace.find_read_only_paths()),
            environment={"SEED": str(self.seed)},
            uid=self.workspace.owner,
            stop_token=self.stop_token,
            access_log=self.access_log,
            is_workspace_idle=lambda: not self.repl or self.repl.stayed_paused,
        )

    def grant_model(self) -> GrantedModel | None:
        """Open an endpoint to the run's model for one command, if the task grants it and there is a model."""
        if not self.grants_model or not self.model_calls.models:
            return None
        return GrantedModel(self.sandbox, self._answer_command)

    def _answer_command(self, prompt: Prompt) -> Reply:
        if self.rerun_step is not None:
            return self.model_calls.find_skipped_reply(prompt, self.rerun_step)
        return self.model_calls.ask(prompt, self.call_context)

    def research_log_text(self) -> str:
        """The notes of the research log; the latest ones if they are too long.

        Raises:
            ActionError: The log is empty.
        """
        if not self.research_notes:
            raise ActionError("The research log is empty.")
        return "\n\n".join(self.research_notes)[-MAX_RESEARCH_LOG_CHARS:]

    def ask_model(self, text: str, role: Role, repeated_chars: int = 0) -> str:
        """Ask a model a single question.

        Args:
            text: The message.
            role: Which model to ask.
            repeated_chars: How many characters of the message the reply has to repeat, about.

        Returns:
            The text of the reply.

        Raises:
            ActionError: The run has no model, or the message is too long for it, or the model rejects it and
                has answered others.
        """
        max_tokens = MAX_REPLY_TOKENS + repeated_chars // 2
        prompt = Prompt(messages=(Message(role="user", text=text),), max_tokens=max_tokens)
        try:
            return self.model_calls.ask(prompt, self.call_context, role).text
        except UsageError as error:
            raise ActionError("This action needs a model, and this run has none.") from error
        except PromptTooLong as error:
            raise ActionError(f"This is too long for the model: {error}") from error
        except PromptRejected as error:
            if role not in self.model_calls.answered_roles:
                raise
            raise ActionError(f"The model rejects this: {error}") from error

    def close(self) -> None:
        """Terminate the processes that may outlive a step, but not the run."""
        if self.repl:
            self.repl.close()
            self.repl = None
        if self.external_program:
            self.external_program.close()
            self.external_program = None
        if self.access_log:
            self.access_log.close()
        self.sandbox.release_workspace(SandboxSpec(self.workspace.root, self.runtime))
