"""Research: the paper's agent. Reflects, plans, checks its facts, then acts; may keep a research log."""

from pydantic import PositiveInt

from mlagentbench.agents.base import Agent
from mlagentbench.dialogue import cut, decide, messages, situation, told
from mlagentbench.environment import Environment
from mlagentbench.errors import PromptTooLong
from mlagentbench.language.prompts import fill, offer
from mlagentbench.records import Message, Role, Step

PLAN = "Research Plan and Status"
ENTRIES = ("Reflection", PLAN, "Fact Check", "Thought")
LONG = 5_000  # characters of an observation; a longer one is summarised
MOST = 20_000  # characters of it, or of a step, that a model is shown to make a summary


class Research(Agent):
    """Carries a plan of confirmed facts from step to step; the last three steps are in view in full."""

    needs_model = True

    def __init__(self, seed: int = 0, memory: bool = False, window: PositiveInt = 3) -> None:
        super().__init__(seed)
        self.memory, self.window = memory, window
        self.plan = self.recalled = ""
        self.said: dict[int, str] = {}  # by step: the entries of the reply, and what was seen
        self.seen: dict[int, str] = {}

    def run(self, env: Environment) -> None:
        """Decide, act, take note, until it is over."""
        limit = str(env.spec.limits.steps)
        instructions = fill("research", task=env.task.description, actions=offer(env.actions), steps=limit)

        def show(room: int) -> list[Message]:
            steps = self._in_view(env)
            view = [
                told(s, room // self.window, self.seen.get(s.number, ""), self.said.get(s.number, "")) for s in steps
            ]
            return messages(instructions, situation(env, view, self._memory(room)))

        while not env.done:
            call, entries = decide(env, show, ENTRIES)
            self.plan = entries.get(PLAN, self.plan)
            number = len(env.steps) + 1
            self.said[number] = "\n".join(f"{name}: {entries[name]}" for name in ENTRIES if name in entries)
            env.step(call)
            self._note(env, env.steps[-1])

    def _in_view(self, env: Environment) -> list[Step]:
        """The last steps; those that were only a mistake in form are gone once a good one followed."""
        good = [step for step in env.steps if step.call.action in env.actions or step is env.steps[-1]]
        return good[-self.window :]

    def _memory(self, room: int) -> str:
        parts = [f"{PLAN}, as you left it:\n{cut(self.plan, room // 2)}"] if self.plan else []
        parts += [f"From your research log:\n{cut(self.recalled, room // 2)}"] if self.recalled else []
        return "\n\n".join(parts)

    def _note(self, env: Environment, step: Step) -> None:
        """Shorten what is long; with memory, write the step into the log and look up what is out of view."""
        if len(step.observation) > LONG:
            call = told(step, LONG, observation="(see below)")
            text = fill("summarise_observation", call=call, observation=cut(step.observation, MOST))
            self.seen[step.number] = self._ask(env, text, "fast") or cut(step.observation, LONG)
        if not self.memory or env.done:
            return
        story = told(step, MOST, self.seen.get(step.number, ""), self.said[step.number])
        summary = self._ask(env, fill("log_step", step=story), "fast")
        env.world.log.append(f"Step {step.number}: {summary or cut(story, LONG)}")
        if len(env.steps) > self.window:
            text = fill("retrieve", log=env.world.research_log(), plan=self.plan or "none yet")
            self.recalled = self._ask(env, text, "fast")

    def _ask(self, env: Environment, text: str, role: Role) -> str:
        try:
            return env.ask([Message(role="user", text=text)], role).text
        except PromptTooLong:
            return ""
