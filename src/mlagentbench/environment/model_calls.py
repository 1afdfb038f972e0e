"""Calls to language models: within the budget, counted, recorded, and answered from the record on resume."""

import logging
import math
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from contextvars import copy_context
from threading import RLock, Thread
from typing import Literal, NamedTuple, TypeVar

from mlagentbench.errors import Fault, PromptRejected, PromptTooLong, RunOver, UsageError
from mlagentbench.models.base import Model
from mlagentbench.records import Limits, Message, ModelCall, Prompt, Reply, Role
from mlagentbench.system.journal import Journal, escape_invalid_utf8
from mlagentbench.system.stop_token import POLL_INTERVAL_S, StopToken

log = logging.getLogger(__name__)

REPLY_GRACE_S = 5.0  # how long a stopping run waits for a reply that is already paid for
CHARS_PER_TOKEN = 3  # a low guess, so that the tokens of a prompt are over- rather than underestimated

MessageOrReply = TypeVar("MessageOrReply", Message, Reply)


class CallContext(NamedTuple):
    """What a model call is for: the step, and whether an action makes the call or the agent itself."""

    step: int
    inside_action: bool = False


class ModelCalls:
    """All model calls of one run: the models by role, what was asked, and what it cost.

    A role without a model of its own falls back to the main model.
    """

    def __init__(
        self,
        models: Mapping[Role, Model],
        limits: Limits,
        journal: Journal,
        recorded: Iterable[ModelCall] = (),
        stop_token: StopToken | None = None,
        completed_steps: int = 0,
        match_by_order: bool = False,
    ) -> None:
        """Open the model calls of a run.

        Args:
            models: The models by role.
            limits: The run's budget of tokens and dollars.
            journal: Where each call is recorded.
            recorded: Earlier calls of a resumed run; they answer until they run out.
            stop_token: Checked while waiting for a reply.
            completed_steps: How many recorded steps the agent must reproduce exactly.
            match_by_order: Recognise recorded calls by their order alone, not by their prompts.
        """
        self.models, self.limits, self.stop_token = models, limits, stop_token or StopToken()
        self.tokens, self.dollars = 0, 0.0
        self.exhausted_budget: Literal["tokens", "money"] | None = None
        self.pending_role: Role | None = None  # the role that is being asked right now
        self.answered_roles: set[Role] = set()
        self._completed_steps, self._match_by_order = completed_steps, match_by_order
        self._replayed_seconds = 0.0
        self._journal, self._recorded = journal, iter(recorded)
        self._next: ModelCall | None = next(self._recorded, None)
        self._count = 0
        self._skipped: dict[int, list[ModelCall]] = {}  # calls inside replayed steps, by step
        self._lock = RLock()

    def ask(self, prompt: Prompt, context: CallContext, role: Role = "main") -> Reply:
        """Return the model's reply, from the record or live.

        Raises:
            RunOver: The call would exceed the budget.
            PromptTooLong: The model does not accept a prompt of this length.
            PromptRejected: The model does not support something in the prompt.
            UsageError: The run has no model.
            Fault: The call differs from the recorded one, while steps are replayed.
        """
        with self._lock:
            model = self._model_for_role(role)
            prompt = self._cap_to_budget(_escape_prompt(prompt), model)
            if recorded := self._match_recorded_call(prompt, context, role):
                return self._replay_call(recorded, model)
            return self._call_model(prompt, context, role, model)

    def record_external_call(
        self, prompt: Prompt, context: CallContext, role: Role, reply: Reply, seconds: float
    ) -> None:
        """Record and count a call that an outside driver made to a model of its own."""
        with self._lock:
            self._record(_escape_prompt(prompt), context, role, _escape_invalid_utf8(reply), seconds)

    def skip_recorded_calls(self, step: int) -> None:
        """Skip the calls that the action of a replayed step made: the action does not run again."""
        while self._next and self._next.inside and self._next.step == step:
            call = self._pop_recorded_call()
            self._skipped.setdefault(step, []).append(call)
            if call.reply:
                self.answered_roles.add(call.role)
                self._model_for_role(call.role).skip_replayed(call.reply)

    def find_skipped_reply(self, prompt: Prompt, step: int) -> Reply:
        """Return the recorded reply to a call of a replayed step whose command runs again.

        No model is asked and nothing is counted. The limit of tokens is not compared: it depends on what was
        left of the budget.

        Raises:
            PromptTooLong: The model did not accept the prompt.
            PromptRejected: The model did not accept the prompt, or the step has no such call.
        """
        wanted, calls = _escape_prompt(prompt).replace(max_tokens=None), self._skipped.get(step, [])
        for call in calls:
            if call.prompt.replace(max_tokens=None) == wanted:
                calls.remove(call)
                if call.reply is None:
                    raise _failed_call_error(call)
                return call.reply
        raise PromptRejected("This command runs again in a resumed run, and its record has no such call.")

    def restore_usage(self, tokens: int, dollars: float) -> None:
        """Set the usage to what the record says it was after a replayed step."""
        self.tokens, self.dollars = tokens, dollars

    def take_replayed_seconds(self) -> float:
        """Return the original duration of the calls replayed since the last call of this method."""
        seconds, self._replayed_seconds = self._replayed_seconds, 0.0
        return seconds

    def _model_for_role(self, role: Role) -> Model:
        model = self.models.get(role) or self.models.get("main")
        if not model:
            raise UsageError("This run has no model. Pass --model NAME (mlagentbench list models).")
        return model

    def _cap_to_budget(self, prompt: Prompt, model: Model) -> Prompt:
        """The prompt with a reply limit that fits the budget; RunOver if the prompt alone does not fit."""
        prompt_tokens = estimate_tokens(prompt)
        max_tokens = math.inf if prompt.max_tokens is None else prompt.max_tokens
        if self.limits.tokens is not None:
            max_tokens = min(max_tokens, self.limits.tokens - self.tokens - prompt_tokens)
            self.exhausted_budget = "tokens" if max_tokens <= 0 else self.exhausted_budget
        if self.limits.dollars is not None:
            if model.price is None:
                raise UsageError("A limit in dollars needs a model whose price is known.")
            left = self.limits.dollars - self.dollars - prompt_tokens * model.price.input
            max_tokens = min(max_tokens, int(left / model.price.output)) if model.price.output else max_tokens
            self.exhausted_budget = "money" if left <= 0 or max_tokens <= 0 else self.exhausted_budget
        if self.exhausted_budget:
            raise RunOver(f"The run is over: {self.exhausted_budget}")
        cap = None if max_tokens == math.inf else max_tokens
        return prompt if cap == prompt.max_tokens else prompt.replace(max_tokens=cap)

    def _match_recorded_call(self, prompt: Prompt, context: CallContext, role: Role) -> ModelCall | None:
        """Return the next recorded call if it matches; drop and count those of an incomplete step."""
        call = self._next
        if call is None:
            return None
        if self._match_by_order or (call.prompt, call.role, call.inside) == (
            prompt,
            role,
            context.inside_action,
        ):
            return self._pop_recorded_call()
        if call.step <= self._completed_steps:
            raise Fault(
                f"Replay diverged at step {context.step}: the model call differs from the recorded one."
                f" Resume with --from-step {context.step - 1} to continue from there."
            )
        while self._next:
            unused = self._pop_recorded_call()
            if unused.reply:
                self._model_for_role(unused.role).skip_replayed(unused.reply)
                self._count_usage(unused.reply)
        return None

    def _pop_recorded_call(self) -> ModelCall:
        assert self._next
        call, self._next = self._next, next(self._recorded, None)
        self._count = call.number
        return call

    def _replay_call(self, call: ModelCall, model: Model) -> Reply:
        self._replayed_seconds += call.seconds
        if call.reply is None:
            raise _failed_call_error(call)
        model.skip_replayed(call.reply)
        self._count_usage(call.reply)
        self.answered_roles.add(call.role)
        return call.reply

    def _call_model(self, prompt: Prompt, context: CallContext, role: Role, model: Model) -> Reply:
        started = time.monotonic()
        self.pending_role = role
        try:
            result: Reply | PromptTooLong | PromptRejected = _escape_invalid_utf8(
                self._wait_for_reply(model, prompt)
            )
        except (PromptTooLong, PromptRejected) as error:
            result = error
        finally:
            self.pending_role = None
        call = self._record(prompt, context, role, result, time.monotonic() - started)
        if call.reply is None:
            raise _failed_call_error(call)
        self.answered_roles.add(role)
        return call.reply

    def _record(
        self,
        prompt: Prompt,
        context: CallContext,
        role: Role,
        result: Reply | PromptTooLong | PromptRejected,
        seconds: float,
    ) -> ModelCall:
        reply = result if isinstance(result, Reply) else None
        call = ModelCall(
            number=self._count + 1,
            step=context.step,
            inside=context.inside_action,
            role=role,
            model=reply.model if reply else "",
            prompt=prompt,
            reply=reply,
            too_long=_error_text(result) if isinstance(result, PromptTooLong) else "",
            rejected=_error_text(result) if isinstance(result, PromptRejected) else "",
            seconds=round(seconds, 4),
        )
        self._journal.append(call.model_dump_json())
        self._count = call.number
        if reply:
            self._count_usage(reply)
            tokens = (reply.input_tokens, reply.output_tokens)
            log.info("%s model %s: %d + %d tokens, %.2f s", role, reply.model, *tokens, seconds)
        return call

    def _wait_for_reply(self, model: Model, prompt: Prompt) -> Reply:
        """The model's reply, requested in a thread of its own so that a stop request need not wait for it."""
        if model.replies_at_once:
            return model.reply(prompt)
        future: Future[Reply] = Future()
        context = copy_context()  # adapters keep their state in context variables
        Thread(
            target=context.run, args=(_reply_into, future, model, prompt), name="model", daemon=True
        ).start()
        grace_s = REPLY_GRACE_S
        while True:
            try:
                return future.result(timeout=POLL_INTERVAL_S)
            except TimeoutError:
                if future.done():
                    raise  # a TimeoutError of the model itself
            grace_s -= POLL_INTERVAL_S if self.stop_token.requested else 0.0
            if grace_s <= 0:
                self.stop_token.raise_if_requested()

    def _count_usage(self, reply: Reply) -> None:
        self.tokens += reply.input_tokens + reply.output_tokens
        self.dollars += reply.dollars


def _reply_into(future: "Future[Reply]", model: Model, prompt: Prompt) -> None:
    try:
        future.set_result(model.reply(prompt))
    except BaseException as error:  # noqa: BLE001 - raised again in the thread that asked
        future.set_exception(error)


def _error_text(error: Exception) -> str:
    return escape_invalid_utf8(str(error)) or type(error).__name__


def _failed_call_error(call: ModelCall) -> PromptTooLong | PromptRejected:
    """The exception of a recorded call that has no reply."""
    return PromptRejected(call.rejected) if call.rejected else PromptTooLong(call.too_long)


def _escape_prompt(prompt: Prompt) -> Prompt:
    messages = tuple(_escape_invalid_utf8(message) for message in prompt.messages)
    return prompt if messages == prompt.messages else prompt.replace(messages=messages)


def _escape_invalid_utf8(message: MessageOrReply) -> MessageOrReply:
    """The same record if all of its text is valid, as almost always: copying a record takes longer."""
    calls = tuple(
        call.replace(name=escape_invalid_utf8(call.name), arguments=escape_invalid_utf8(call.arguments))
        for call in message.calls
    )
    text, reasoning = escape_invalid_utf8(message.text), escape_invalid_utf8(message.reasoning)
    if (text, reasoning, calls) == (message.text, message.reasoning, message.calls):
        return message
    return message.replace(text=text, reasoning=reasoning, calls=calls)


def estimate_tokens(prompt: Prompt) -> int:
    """Estimate the tokens of a prompt, rather too many than too few."""
    message_chars = sum(
        len(message.text) + len(message.reasoning) + sum(len(call.arguments) for call in message.calls)
        for message in prompt.messages
    )
    tool_chars = sum(len(tool.description) + len(str(tool.parameters)) for tool in prompt.tools)
    return (message_chars + tool_chars) // CHARS_PER_TOKEN + 1
