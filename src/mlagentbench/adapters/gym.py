"""Tasks as Gymnasium environments: import this module, then gymnasium.make("mlagentbench/house-price-v0")."""

import json
import string
from contextlib import ExitStack, suppress
from itertools import count
from pathlib import Path
from typing import Any

from mlagentbench.environment.dialogue import truncate_middle, unreadable_reply_call
from mlagentbench.environment.environment import Environment
from mlagentbench.errors import Fault, RunOver, UsageError
from mlagentbench.formatting import print_progress
from mlagentbench.language.prompts import fill_prompt, format_actions
from mlagentbench.language.replies import UnreadableReply, parse_reply
from mlagentbench.records import Call, Result, Start
from mlagentbench.runner.session import Session, open_session, reopen_session
from mlagentbench.runner.setup import choose_run_folder, prepare_setup
from mlagentbench.system.extras import install_command
from mlagentbench.task import Task

try:
    import gymnasium
    from gymnasium.spaces import Text
except ImportError as error:
    raise ImportError(f"Gymnasium is not installed: {install_command('gym')}") from error

MAX_TEXT_CHARS = 200_000  # of an action, and of an observation
CHARACTERS = frozenset(string.ascii_letters + string.digits + string.punctuation + " \n\t")


class ResearchEnv(gymnasium.Env[str, str]):
    """One task. An episode is a run with its own folder; the reward is the improvement, given at the end.

    Both spaces are printable ASCII. In an action, JSON can escape all other characters; in an observation
    they are shown as escapes, and `info["text"]` has the original text.

    Args:
        task: A task of the suite, or the folder of a task.
        edition: The edition of the data.
        out: The folder for the run folders of the episodes; by default, new folders in `runs/`.
        limits: Limits of each run, such as `{"steps": 30}`; defaults come from the task.
        sandbox: How scripts are isolated.
        instance: The instance of a task that has several.
        gpu: The GPUs that scripts may use.
        start: The solution that the agent starts from: "starter", "reference" or "expert".
    """

    metadata = {"render_modes": []}  # noqa: RUF012 - as Gymnasium has it

    def __init__(
        self,
        task: str,
        edition: str = "open",
        out: str | Path | None = None,
        limits: dict[str, Any] | None = None,
        sandbox: str = "auto",
        instance: str = "",
        gpu: str = "",
        start: Start = "starter",
    ) -> None:
        self.setup = prepare_setup(task, edition, sandbox, print_progress, instance, gpu, start=start)
        self.out = Path(out) if out else None
        self.limits = limits or {}
        self.action_space = Text(MAX_TEXT_CHARS, min_length=0, charset=CHARACTERS)
        self.observation_space = Text(MAX_TEXT_CHARS, min_length=0, charset=CHARACTERS)
        self._session: Session | None = None
        self._exit_stack = ExitStack()

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        """Start a new run. The previous one is suspended if it is not over.

        Args:
            seed: The seed of the run; by default it follows from the last seed given.
            options: `{"resume": folder}` resumes a suspended run instead.

        Returns:
            The task with its actions, and the info dictionary.

        Raises:
            UsageError: An option is unknown, or the run cannot be resumed.
        """
        super().reset(seed=seed)
        self.close()
        if unknown := set(options or {}) - {"resume"}:
            raise UsageError(f"reset has no option {', '.join(sorted(unknown))}. Available: resume.")
        if options and "resume" in options:
            session = reopen_session(Path(options["resume"]), print_progress, setup=self.setup)
        else:
            seed = int(self.np_random.integers(2**31)) if seed is None else seed
            session = open_session(self.setup, "gymnasium", self._new_run_folder(), seed, self.limits)
        self._session = self._exit_stack.enter_context(session)
        env = self._session.env
        steps = str(env.spec.limits.steps)
        text = fill_prompt(
            "gym", task=env.problem_statement.strip(), steps=steps, actions=format_actions(env.actions)
        )
        if env.steps:
            text = f"{text}\n\nThe last observation:\n{env.steps[-1].observation}"
        return self._encode_observation(text), self._build_info(text)

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Take one action.

        Args:
            action: A JSON object with `action` and `args`, or `Action:` and `Action Input:` lines.

        Returns:
            Observation, reward, whether the agent submitted, whether a limit ended the run, and the info
            dictionary. The reward is 0 until the run is over.

        Raises:
            Fault: The benchmark failed; the run is void.
        """
        if self._session is None or self._session.result:
            raise gymnasium.error.ResetNeeded("No run is active. Call reset().")
        text, env = "The run is over.", self._session.env
        try:
            with suppress(RunOver):  # the time limit may have passed since the last step
                text = self._session.step(parse_action(action, env)).observation
        except Fault:
            self._session.finish()
            raise
        info, submitted = self._build_info(text), env.ending == "submitted"
        if not self._session.done:
            return self._encode_observation(text), 0.0, False, False, info
        result = self._session.finish()
        if result.ending == "fault":
            raise Fault(result.note)
        return (
            self._encode_observation(text),
            result.improvement or 0.0,
            submitted,
            not submitted,
            info | _outcome_info(result),
        )

    def close(self) -> None:
        """Close the run; if it is not over, it is not graded and can be resumed."""
        if self._session and not self._session.result:
            self._session.suspend()
        self._exit_stack.close()
        self._session = None

    def _new_run_folder(self) -> Path:
        if self.out is None:
            return choose_run_folder(self.setup.task.name, "gymnasium")
        for number in count(1):
            folder = self.out / f"episode-{number:04d}"
            with suppress(FileExistsError):  # environments in several processes may share `out`
                folder.mkdir(parents=True)
                break
        return folder

    def _encode_observation(self, text: str) -> str:
        """Make the text a member of the space: escape other characters, cut the middle of very long text."""
        escaped = "".join(c if c in CHARACTERS else c.encode("unicode_escape").decode() for c in text)
        return truncate_middle(escaped, MAX_TEXT_CHARS - 100)

    def _build_info(self, text: str) -> dict[str, Any]:
        assert self._session
        env, steps = self._session.env, self._session.env.steps
        return {
            "step": len(steps),
            "failed": bool(steps) and steps[-1].failed,
            "steps_left": env.spec.limits.steps - len(steps),
            "seconds_left": env.seconds_left,
            "folder": str(self._session.folder),
            "text": text,
        }


def _outcome_info(result: Result) -> dict[str, Any]:
    fields = {
        "score",
        "baseline",
        "improvement",
        "gap_closed",
        "progress",
        "improved",
        "p_value",
        "success",
        "valid",
        "ending",
        "note",
    }
    return result.model_dump(include=fields)


def parse_action(text: str, env: Environment) -> Call:
    """Parse an action; text without a valid action becomes a call that fails, and counts as a step."""
    if len(text) > MAX_TEXT_CHARS:
        return unreadable_reply_call(text)
    try:
        return Call.model_validate(json.loads(text))
    except (ValueError, RecursionError):
        pass
    try:
        return parse_reply(text, env.actions)[0]
    except UnreadableReply:
        return unreadable_reply_call(text)


def register_tasks() -> None:
    """Register the tasks of the suite, and mlagentbench/task-v0 for any folder: make(..., task=FOLDER)."""
    entry_point = f"{__name__}:{ResearchEnv.__name__}"
    gymnasium.register("mlagentbench/task-v0", entry_point, nondeterministic=True)
    for name in Task.names():
        kwargs = {"task": name}
        gymnasium.register(f"mlagentbench/{name}-v0", entry_point, nondeterministic=True, kwargs=kwargs)


register_tasks()
