"""Research: the paper's agent. Reflects, plans, checks its facts, then acts; may keep a research log."""

from pydantic import PositiveInt

from mlagentbench.agents.base import Agent
from mlagentbench.environment.dialogue import (
    choose_next_call,
    describe_progress,
    render_step,
    system_and_user_messages,
    truncate_middle,
)
from mlagentbench.environment.environment import Environment
from mlagentbench.errors import PromptTooLong
from mlagentbench.language.prompts import fill_prompt, format_actions
from mlagentbench.records import Message, Role, Step

PLAN_FIELD = "Research Plan and Status"
REPLY_FIELDS = ("Reflection", PLAN_FIELD, "Fact Check", "Thought")
MAX_OBSERVATION_CHARS = 5_000  # characters of an observation; a longer one is summarised
MAX_SUMMARY_INPUT_CHARS = 20_000  # characters of it, or of a step, that a model is shown to make a summary


class Research(Agent):
    """Carries a plan of confirmed facts from step to step; the last three steps are in view in full."""

    needs_model = True

    def __init__(self, seed: int = 0, memory: bool = False, window: PositiveInt = 3) -> None:
        super().__init__(seed)
        self.memory, self.window = memory, window
        self.plan = self.retrieved_notes = ""
        self.reply_fields_by_step: dict[int, str] = {}  # by step: the entries of the reply, and what was seen
        self.summaries_by_step: dict[int, str] = {}

    def run(self, env: Environment) -> None:
        """Decide, act, take note, until it is over."""
        limit = str(env.spec.limits.steps)
        instructions = fill_prompt(
            "research", task=env.task.description, actions=format_actions(env.actions), steps=limit
        )

        def show(room: int) -> list[Message]:
            steps = self._visible_steps(env)
            view = [
                render_step(
                    s,
                    room // self.window,
                    self.summaries_by_step.get(s.number, ""),
                    self.reply_fields_by_step.get(s.number, ""),
                )
                for s in steps
            ]
            return system_and_user_messages(
                instructions, describe_progress(env, view, self._format_memory(room))
            )

        while not env.done:
            call, entries = choose_next_call(env, show, REPLY_FIELDS)
            self.plan = entries.get(PLAN_FIELD, self.plan)
            number = len(env.steps) + 1
            self.reply_fields_by_step[number] = "\n".join(
                f"{name}: {entries[name]}" for name in REPLY_FIELDS if name in entries
            )
            env.step(call)
            self._record_step(env, env.steps[-1])

    def _visible_steps(self, env: Environment) -> list[Step]:
        """The last steps; those that were only a mistake in form are gone once a good one followed."""
        good = [step for step in env.steps if step.call.action in env.actions or step is env.steps[-1]]
        return good[-self.window :]

    def _format_memory(self, room: int) -> str:
        parts = (
            [f"{PLAN_FIELD}, as you left it:\n{truncate_middle(self.plan, room // 2)}"] if self.plan else []
        )
        parts += (
            [f"From your research log:\n{truncate_middle(self.retrieved_notes, room // 2)}"]
            if self.retrieved_notes
            else []
        )
        return "\n\n".join(parts)

    def _record_step(self, env: Environment, step: Step) -> None:
        """Shorten what is long; with memory, write the step into the log and look up what is out of view."""
        if len(step.observation) > MAX_OBSERVATION_CHARS:
            call = render_step(step, MAX_OBSERVATION_CHARS, observation="(see below)")
            text = fill_prompt(
                "summarise_observation",
                call=call,
                observation=truncate_middle(step.observation, MAX_SUMMARY_INPUT_CHARS),
            )
            self.summaries_by_step[step.number] = self._ask(env, text, "fast") or truncate_middle(
                step.observation, MAX_OBSERVATION_CHARS
            )
        if not self.memory or env.done:
            return
        story = render_step(
            step,
            MAX_SUMMARY_INPUT_CHARS,
            self.summaries_by_step.get(step.number, ""),
            self.reply_fields_by_step[step.number],
        )
        summary = self._ask(env, fill_prompt("log_step", step=story), "fast")
        env.context.research_notes.append(
            f"Step {step.number}: {summary or truncate_middle(story, MAX_OBSERVATION_CHARS)}"
        )
        if len(env.steps) > self.window:
            text = fill_prompt("retrieve", log=env.context.research_log_text(), plan=self.plan or "none yet")
            self.retrieved_notes = self._ask(env, text, "fast")

    def _ask(self, env: Environment, text: str, role: Role) -> str:
        try:
            return env.ask([Message(role="user", text=text)], role).text
        except PromptTooLong:
            return ""
