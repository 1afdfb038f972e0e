"""How a language agent and its model come to the next step: what is shown, and what is done about a bad reply."""

import json
from collections.abc import Callable, Sequence

from mlagentbench.environment.environment import Environment
from mlagentbench.errors import PromptTooLong
from mlagentbench.language.grammar import build_reply_grammar
from mlagentbench.language.prompts import fill_prompt
from mlagentbench.language.replies import UnreadableReply, parse_reply
from mlagentbench.records import Call, Message, Step

MAX_REPLY_ATTEMPTS = 5  # at a reply that can be understood
MAX_HISTORY_CHARS, MIN_HISTORY_CHARS = (
    40_000,
    500,
)  # characters of steps that are shown, and the fewest that are worth showing
STOP_SEQUENCES = ("Observation:",)

BuildMessages = Callable[[int], list[Message]]
ParseReply = Callable[[str], tuple[Call, dict[str, str]]]


def choose_next_call(
    env: Environment,
    build_messages: BuildMessages,
    reply_fields: Sequence[str] = (),
    parse: ParseReply | None = None,
) -> tuple[Call, dict[str, str]]:
    """The step that the model wants next, and the entries of its reply.

    `show` makes the messages within so many characters; it is asked for less if the model cannot take them. `read`
    reads a reply that is not made of entries. One that cannot be understood is answered with what is wrong; after a
    few of them the step is a mistake on record.
    """
    talk = StepConversation(env, build_messages, "" if parse else grammar_for_reply(env, reply_fields))
    parse = parse or (lambda said: parse_reply(said, env.actions, reply_fields))
    problem = ""
    for _ in range(MAX_REPLY_ATTEMPTS):
        said = talk.ask(problem)
        try:
            return parse(said)
        except UnreadableReply as error:
            problem = str(error)
    return unreadable_reply_call(said), {}


def unreadable_reply_call(said: str) -> Call:
    """The step of a model that says nothing that could be done."""
    return Call(action="(no action could be understood)", thought=said[:MIN_HISTORY_CHARS])


class StepConversation:
    """What was said about one step."""

    def __init__(self, env: Environment, show: BuildMessages, grammar: str = "") -> None:
        self.env, self.build_messages, self.grammar = env, show, grammar
        self.max_chars = MAX_HISTORY_CHARS
        self.history: list[Message] = []

    def ask(self, problem: str = "") -> str:
        """The model's reply, after what was wrong with its last one."""
        if problem:
            self.history.append(Message(role="user", text=fill_prompt("misread", problem=problem)))
        while True:
            try:
                reply = self.env.ask(
                    [*self.build_messages(self.max_chars), *self.history[-2:]],
                    stop=STOP_SEQUENCES,
                    grammar=self.grammar,
                )
            except PromptTooLong:
                self.max_chars //= 2
                if self.max_chars < MIN_HISTORY_CHARS:
                    raise
            else:
                self.history.append(Message(role="assistant", text=reply.text))
                return reply.text


def grammar_for_reply(env: Environment, entries: Sequence[str]) -> str:
    """The form of a reply, for a model that can be bound to it."""
    model = env.model_calls.models.get("main")
    if not model or not model.supports_grammar:
        return ""
    return build_reply_grammar(entries, {name: action.arguments for name, action in env.actions.items()})


def system_and_user_messages(instructions: str, situation: str) -> list[Message]:
    """What never changes comes first, where a provider can keep it."""
    return [Message(role="system", text=instructions), Message(role="user", text=situation)]


def describe_progress(env: Environment, steps: Sequence[str], memory: str = "") -> str:
    """Where the run stands."""
    left = str(env.spec.limits.steps - len(env.steps))
    if not env.steps:
        return fill_prompt("begin", left=left)
    return fill_prompt("steps", memory=f"{memory}\n\n" if memory else "", steps="\n\n".join(steps), left=left)


def render_step(step: Step, max_chars: int, observation: str = "", reply_fields: str = "") -> str:
    """A step as the model sees it again, within so many characters."""
    why = reply_fields or (f"Thought: {step.call.thought}" if step.call.thought else "")
    args = json.dumps(step.call.args, ensure_ascii=False)
    lines = [f"Step {step.number}", truncate_middle(why, max_chars // 4), f"Action: {step.call.action}"]
    lines += [
        f"Action Input: {truncate_middle(args, max_chars // 4)}",
        f"Observation: {truncate_middle(observation or step.observation, max_chars // 2)}",
    ]
    return "\n".join(line for line in lines if line)


def truncate_middle(text: str, max_chars: int) -> str:
    """The beginning and the end of a text that is too long."""
    if len(text) <= max_chars:
        return text
    half = max(max_chars // 2, 1)
    return f"{text[:half]}\n[... {len(text) - 2 * half:,} characters left out ...]\n{text[-half:]}"
