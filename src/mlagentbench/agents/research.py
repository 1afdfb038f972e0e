"""Research: the paper's agent. Reflects, plans, checks facts, then acts; optionally keeps a research log."""

from pydantic import PositiveInt

from mlagentbench.agents.base import Agent
from mlagentbench.environment import Environment
from mlagentbench.environment.dialogue import (
    choose_next_call,
    describe_progress,
    render_step,
    system_and_user_messages,
    truncate_middle,
)
from mlagentbench.errors import PromptTooLong
from mlagentbench.language.prompts import fill_prompt, format_actions
from mlagentbench.records import Message, Role, Step

PLAN_FIELD = "Research Plan and Status"
REPLY_FIELDS = ("Reflection", PLAN_FIELD, "Fact Check", "Thought")
MAX_OBSERVATION_CHARS = 5_000  # longer observations are summarised
MAX_SUMMARY_INPUT_CHARS = 20_000  # of an observation or a step that a model summarises


class Research(Agent):
    """Carries a plan with confirmed facts from step to step; sees the last three steps in full."""

    needs_model = True

    def __init__(self, seed: int = 0, memory: bool = False, window: PositiveInt = 3) -> None:
        super().__init__(seed)
        self.memory, self.window = memory, window
        self.plan = self.retrieved_notes = ""
        self.replies: dict[int, str] = {}  # the fields of each step's reply
        self.summaries: dict[int, str] = {}  # of long observations, by step

    def run(self, env: Environment) -> None:
        """Choose an action, run it and record it, until the run is over."""
        instructions = fill_prompt(
            "research",
            task=env.problem_statement,
            actions=format_actions(env.actions),
            steps=str(env.spec.limits.steps),
        )

        def build_messages(max_chars: int) -> list[Message]:
            steps = [self._render(step, max_chars // self.window) for step in self._visible_steps(env)]
            progress = describe_progress(env, steps, self._format_memory(max_chars))
            return system_and_user_messages(instructions, progress)

        while not env.done:
            call, fields = choose_next_call(env, build_messages, REPLY_FIELDS)
            self.plan = fields.get(PLAN_FIELD, self.plan)
            lines = [f"{name}: {fields[name]}" for name in REPLY_FIELDS if name in fields]
            self.replies[len(env.steps) + 1] = "\n".join(lines)
            env.step(call)
            self._record_step(env, env.steps[-1])

    def _visible_steps(self, env: Environment) -> list[Step]:
        """The last steps, without malformed calls that a valid one followed."""
        valid = [step for step in env.steps if step.call.action in env.actions or step is env.steps[-1]]
        return valid[-self.window :]

    def _render(self, step: Step, max_chars: int) -> str:
        """A step with its reply, and with the summary of a long observation."""
        observation, reply = self.summaries.get(step.number, ""), self.replies.get(step.number, "")
        return render_step(step, max_chars, observation, reply)

    def _format_memory(self, max_chars: int) -> str:
        parts = []
        if self.plan:
            parts.append(f"{PLAN_FIELD}, as you left it:\n{truncate_middle(self.plan, max_chars // 2)}")
        if self.retrieved_notes:
            parts.append(f"From your research log:\n{truncate_middle(self.retrieved_notes, max_chars // 2)}")
        return "\n\n".join(parts)

    def _record_step(self, env: Environment, step: Step) -> None:
        """Summarise a long observation; with memory, log the step and retrieve notes on earlier ones."""
        if len(step.observation) > MAX_OBSERVATION_CHARS:
            call = render_step(step, MAX_OBSERVATION_CHARS, observation="(see below)")
            observation = truncate_middle(step.observation, MAX_SUMMARY_INPUT_CHARS)
            question = fill_prompt("summarise_observation", call=call, observation=observation)
            summary = self._ask(env, question, "fast")
            self.summaries[step.number] = summary or truncate_middle(step.observation, MAX_OBSERVATION_CHARS)
        if not self.memory or env.done:
            return
        rendered = self._render(step, MAX_SUMMARY_INPUT_CHARS)
        note = self._ask(env, fill_prompt("log_step", step=rendered), "fast")
        note = note or truncate_middle(rendered, MAX_OBSERVATION_CHARS)
        env.context.research_notes.append(f"Step {step.number}: {note}")
        if len(env.steps) > self.window:
            log, plan = env.context.research_log_text(), self.plan or "none yet"
            self.retrieved_notes = self._ask(env, fill_prompt("retrieve", log=log, plan=plan), "fast")

    def _ask(self, env: Environment, text: str, role: Role) -> str:
        """The reply to one message, or nothing if the message is too long."""
        try:
            return env.ask([Message(role="user", text=text)], role).text
        except PromptTooLong:
            return ""
