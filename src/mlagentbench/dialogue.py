"""How a language agent and its model come to the next step: what is shown, and what is done about a bad reply."""

import json
from collections.abc import Callable, Sequence

from mlagentbench.environment import Environment
from mlagentbench.errors import PromptTooLong
from mlagentbench.language.grammar import reply_grammar
from mlagentbench.language.prompts import fill
from mlagentbench.language.replies import Misread, read_reply
from mlagentbench.records import Call, Message, Step

TRIES = 5  # at a reply that can be understood
ROOM, LEAST = 40_000, 500  # characters of steps that are shown, and the fewest that are worth showing
STOP = ("Observation:",)

Show = Callable[[int], list[Message]]
Read = Callable[[str], tuple[Call, dict[str, str]]]


def decide(
    env: Environment, show: Show, entries: Sequence[str] = (), read: Read | None = None
) -> tuple[Call, dict[str, str]]:
    """The step that the model wants next, and the entries of its reply.

    `show` makes the messages within so many characters; it is asked for less if the model cannot take them. `read`
    reads a reply that is not made of entries. One that cannot be understood is answered with what is wrong; after a
    few of them the step is a mistake on record.
    """
    talk = Talk(env, show, "" if read else grammar(env, entries))
    read = read or (lambda said: read_reply(said, env.actions, entries))
    problem = ""
    for _ in range(TRIES):
        said = talk.ask(problem)
        try:
            return read(said)
        except Misread as error:
            problem = str(error)
    return mistake(said), {}


def mistake(said: str) -> Call:
    """The step of a model that says nothing that could be done."""
    return Call(action="(no action could be understood)", thought=said[:LEAST])


class Talk:
    """What was said about one step."""

    def __init__(self, env: Environment, show: Show, grammar: str = "") -> None:
        self.env, self.show, self.grammar = env, show, grammar
        self.room = ROOM
        self.said: list[Message] = []

    def ask(self, problem: str = "") -> str:
        """The model's reply, after what was wrong with its last one."""
        if problem:
            self.said.append(Message(role="user", text=fill("misread", problem=problem)))
        while True:
            try:
                reply = self.env.ask([*self.show(self.room), *self.said[-2:]], stop=STOP, grammar=self.grammar)
            except PromptTooLong:
                self.room //= 2
                if self.room < LEAST:
                    raise
            else:
                self.said.append(Message(role="assistant", text=reply.text))
                return reply.text


def grammar(env: Environment, entries: Sequence[str]) -> str:
    """The form of a reply, for a model that can be bound to it."""
    model = env.ledger.models.get("main")
    if not model or not model.bound:
        return ""
    return reply_grammar(entries, {name: action.arguments for name, action in env.actions.items()})


def messages(instructions: str, situation: str) -> list[Message]:
    """What never changes comes first, where a provider can keep it."""
    return [Message(role="system", text=instructions), Message(role="user", text=situation)]


def situation(env: Environment, steps: Sequence[str], memory: str = "") -> str:
    """Where the run stands."""
    left = str(env.spec.limits.steps - len(env.steps))
    if not env.steps:
        return fill("begin", left=left)
    return fill("steps", memory=f"{memory}\n\n" if memory else "", steps="\n\n".join(steps), left=left)


def told(step: Step, room: int, observation: str = "", entries: str = "") -> str:
    """A step as the model sees it again, within so many characters."""
    why = entries or (f"Thought: {step.call.thought}" if step.call.thought else "")
    args = json.dumps(step.call.args, ensure_ascii=False)
    lines = [f"Step {step.number}", cut(why, room // 4), f"Action: {step.call.action}"]
    lines += [
        f"Action Input: {cut(args, room // 4)}",
        f"Observation: {cut(observation or step.observation, room // 2)}",
    ]
    return "\n".join(line for line in lines if line)


def cut(text: str, room: int) -> str:
    """The beginning and the end of a text that is too long."""
    if len(text) <= room:
        return text
    half = max(room // 2, 1)
    return f"{text[:half]}\n[... {len(text) - 2 * half:,} characters left out ...]\n{text[-half:]}"
