"""How a language agent and its model arrive at the next step: prompts, and what happens after a bad reply."""

import json
from collections.abc import Callable, Sequence

from mlagentbench.environment.environment import Environment
from mlagentbench.errors import PromptTooLong
from mlagentbench.language.grammar import build_reply_grammar
from mlagentbench.language.prompts import fill_prompt
from mlagentbench.language.replies import UnreadableReply, parse_reply
from mlagentbench.records import Call, Message, Step

MAX_REPLY_ATTEMPTS = 5  # then the step is recorded as a mistake
MAX_HISTORY_CHARS, MIN_HISTORY_CHARS = 40_000, 500  # characters of earlier steps in a prompt
STOP_SEQUENCES = ("Observation:",)

BuildMessages = Callable[[int], list[Message]]  # the messages, within a number of characters
ParseReply = Callable[[str], tuple[Call, dict[str, str]]]


def choose_next_call(
    env: Environment,
    build_messages: BuildMessages,
    reply_fields: Sequence[str] = (),
    parse: ParseReply | None = None,
) -> tuple[Call, dict[str, str]]:
    """Ask the model for the next call.

    A reply that cannot be parsed is answered with what is wrong. After several of them, the step is recorded
    as a mistake.

    Args:
        env: The environment.
        build_messages: Builds the prompt within a number of characters; called with less if it is too long.
        reply_fields: The fields that the reply must have before the action.
        parse: Parses replies of another form.

    Returns:
        The call, and the fields of the reply.
    """
    conversation = StepConversation(
        env, build_messages, "" if parse else grammar_for_reply(env, reply_fields)
    )
    parse = parse or (lambda reply: parse_reply(reply, env.actions, reply_fields))
    problem = ""
    for _ in range(MAX_REPLY_ATTEMPTS):
        reply = conversation.ask(problem)
        try:
            return parse(reply)
        except UnreadableReply as error:
            problem = str(error)
    return unreadable_reply_call(reply), {}


def unreadable_reply_call(reply: str) -> Call:
    """The call that stands for a reply without any readable action."""
    return Call(action="(no action could be understood)", thought=reply[:MIN_HISTORY_CHARS])


class StepConversation:
    """The messages between agent and model about one step."""

    def __init__(self, env: Environment, build_messages: BuildMessages, grammar: str = "") -> None:
        self.env, self.build_messages, self.grammar = env, build_messages, grammar
        self.max_chars = MAX_HISTORY_CHARS
        self.history: list[Message] = []

    def ask(self, problem: str = "") -> str:
        """Ask the model and return its reply; `problem` says what was wrong with the last one."""
        if problem:
            self.history.append(Message(role="user", text=fill_prompt("misread", problem=problem)))
        while True:
            try:
                messages = [*self.build_messages(self.max_chars), *self.history[-2:]]
                reply = self.env.ask(messages, stop=STOP_SEQUENCES, grammar=self.grammar)
            except PromptTooLong:
                self.max_chars //= 2
                if self.max_chars < MIN_HISTORY_CHARS:
                    raise
            else:
                self.history.append(Message(role="assistant", text=reply.text))
                return reply.text


def grammar_for_reply(env: Environment, reply_fields: Sequence[str]) -> str:
    """The grammar of a reply, for models that support one; else an empty string."""
    model = env.model_calls.models.get("main")
    if not model or not model.supports_grammar:
        return ""
    return build_reply_grammar(reply_fields, {name: action.arguments for name, action in env.actions.items()})


def system_and_user_messages(instructions: str, state: str) -> list[Message]:
    """A prompt of two messages; the constant part comes first, where providers can cache it."""
    return [Message(role="system", text=instructions), Message(role="user", text=state)]


def describe_progress(env: Environment, steps: Sequence[str], memory: str = "") -> str:
    """Describe the run to the model: what it remembers, its latest steps, and how many steps are left."""
    left = str(env.spec.limits.steps - len(env.steps))
    if not env.steps:
        return fill_prompt("begin", left=left)
    return fill_prompt("steps", memory=f"{memory}\n\n" if memory else "", steps="\n\n".join(steps), left=left)


def render_step(step: Step, max_chars: int, observation: str = "", reply_fields: str = "") -> str:
    """Render an earlier step for a prompt.

    Args:
        step: The step.
        max_chars: About how long the text may be.
        observation: Shown instead of the step's own observation.
        reply_fields: Shown instead of the step's thought.
    """
    reason = reply_fields or (f"Thought: {step.call.thought}" if step.call.thought else "")
    args = json.dumps(step.call.args, ensure_ascii=False)
    lines = [
        f"Step {step.number}",
        truncate_middle(reason, max_chars // 4),
        f"Action: {step.call.action}",
        f"Action Input: {truncate_middle(args, max_chars // 4)}",
        f"Observation: {truncate_middle(observation or step.observation, max_chars // 2)}",
    ]
    return "\n".join(line for line in lines if line)


def truncate_middle(text: str, max_chars: int) -> str:
    """The beginning and the end of a text that is too long."""
    if len(text) <= max_chars:
        return text
    half = max(max_chars // 2, 1)
    return f"{text[:half]}\n[... {len(text) - 2 * half:,} characters omitted ...]\n{text[-half:]}"
