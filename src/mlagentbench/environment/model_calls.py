"""Every call of a model: kept within the budget, counted, recorded; and answered from the record on resume."""

import time
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from contextvars import copy_context
from threading import RLock, Thread
from typing import Literal, TypeVar

from mlagentbench.errors import Fault, PromptTooLong, RunOver, UsageError
from mlagentbench.models.base import Model
from mlagentbench.records import Limits, Message, ModelCall, Prompt, Reply, Role
from mlagentbench.system.journal import Journal, escape_invalid_utf8
from mlagentbench.system.stop_token import POLL_INTERVAL_S, StopToken

REPLY_GRACE_S = 5.0  # seconds for a reply that is paid for, when somebody wants to stop
CHARS_PER_TOKEN = 3  # of a token, or more: a prompt is guessed to be rather too long than too short

MessageOrReply = TypeVar("MessageOrReply", Message, Reply)


class ModelCalls:
    """The models of one run, by role, and the account of what they were asked and what they cost."""

    def __init__(
        self,
        models: Mapping[Role, Model],
        limits: Limits,
        journal: Journal,
        recorded: Iterable[ModelCall] = (),
        stopping: StopToken | None = None,
    ) -> None:
        self.models, self.limits, self.stop_token = models, limits, stopping or StopToken()
        self.tokens, self.dollars = 0, 0.0
        self.step, self.inside = 1, False  # what is asked for now
        self.exhausted_budget: Literal["tokens", "money"] | None = None
        self.pending_role: Role | None = None
        self.replayed_seconds = 0.0  # seconds that recorded calls took, since somebody looked
        self.match_by_order = (
            False  # whether a recorded call is known by its place alone, and not by what was asked
        )
        self.completed_steps = 0  # steps of the record that must come out the same
        self._journal, self._recorded = journal, iter(recorded)
        self._next: ModelCall | None = next(self._recorded, None)
        self._count = 0
        self._lock = RLock()

    def ask(self, prompt: Prompt, role: Role = "main") -> Reply:
        """A model's answer, if the budget allows one; a role without a model of its own is played by main."""
        with self._lock:
            model = self._model_for_role(role)
            prompt = prompt.replace(
                messages=tuple(_escape_invalid_utf8(message) for message in prompt.messages)
            )
            prompt = self._cap_to_budget(prompt, model)
            if known := self._match_recorded_call(prompt, role):
                return self._replay_call(known, model)
            return self._call_model(prompt, role, model)

    def skip_recorded_calls(self, step: int) -> None:
        """A recorded step is not done again: forget what its action asked of models."""
        while self._next and self._next.inside and self._next.step == step:
            call = self._pop_recorded_call()
            if call.reply:
                self._model_for_role(call.role).skip_replayed(call.reply)

    def _model_for_role(self, role: Role) -> Model:
        found = self.models.get(role) or self.models.get("main")
        if not found:
            raise UsageError("this run has no model: pass --model NAME (mlagentbench list models)")
        return found

    def _cap_to_budget(self, prompt: Prompt, model: Model) -> Prompt:
        """The prompt, its reply cut short where it could pass a limit; no call is made that must pass one."""
        most, size = prompt.max_tokens, estimate_tokens(prompt)
        if self.limits.tokens is not None:
            most = min(most, self.limits.tokens - self.tokens - size)
            self.exhausted_budget = "tokens" if most <= 0 else self.exhausted_budget
        if self.limits.dollars is not None:
            if model.price is None:
                raise UsageError("a limit in dollars needs a model whose price is known")
            left = self.limits.dollars - self.dollars - size * model.price.input
            most = min(most, int(left / model.price.output)) if model.price.output else most
            self.exhausted_budget = "money" if left <= 0 or most <= 0 else self.exhausted_budget
        if self.exhausted_budget:
            raise RunOver(f"the run is over: {self.exhausted_budget}")
        return prompt.replace(max_tokens=most)

    def _match_recorded_call(self, prompt: Prompt, role: Role) -> ModelCall | None:
        """The recorded call that comes next, if it is this one."""
        call = self._next
        if call is None:
            return None
        if self.match_by_order or (call.prompt, call.role, call.inside) == (prompt, role, self.inside):
            return self._pop_recorded_call()
        if call.step <= self.completed_steps:
            raise Fault(
                f"the agent does not repeat itself: what it asks the model for step {self.step} is not what it asked"
                f" before; resume with --from-step {self.step - 1} to let it go on differently from there"
            )
        while self._next:  # it was asked for a step that was never done: paid for, but of no use now
            spent = self._pop_recorded_call()
            if spent.reply:
                self._model_for_role(spent.role).skip_replayed(spent.reply)
                self._count_usage(spent.reply)
        return None

    def _pop_recorded_call(self) -> ModelCall:
        assert self._next
        call, self._next = self._next, next(self._recorded, None)
        self._count = call.number
        return call

    def _replay_call(self, call: ModelCall, model: Model) -> Reply:
        self.replayed_seconds += call.seconds
        if call.reply is None:
            raise PromptTooLong(call.too_long)
        model.skip_replayed(call.reply)
        self._count_usage(call.reply)
        return call.reply

    def _call_model(self, prompt: Prompt, role: Role, model: Model) -> Reply:
        started, reply, too_long = time.monotonic(), None, ""
        self.pending_role = role
        try:
            reply = _escape_invalid_utf8(self._wait_for_reply(model, prompt))
        except PromptTooLong as error:
            too_long = str(error) or "the prompt is too long"
        finally:
            self.pending_role = None
        self._record(prompt, role, reply, too_long, time.monotonic() - started)
        if reply is None:
            raise PromptTooLong(too_long)
        return reply

    def record_external_call(self, prompt: Prompt, role: Role, reply: Reply, seconds: float) -> None:
        """Take down what whoever steps from outside asked by himself: it is recorded and counted as any other call."""
        with self._lock:
            prompt = prompt.replace(
                messages=tuple(_escape_invalid_utf8(message) for message in prompt.messages)
            )
            self._record(prompt, role, _escape_invalid_utf8(reply), "", seconds)

    def _record(self, prompt: Prompt, role: Role, reply: Reply | None, too_long: str, seconds: float) -> None:
        call = ModelCall(
            number=self._count + 1,
            step=self.step,
            inside=self.inside,
            role=role,
            model=reply.model if reply else "",
            prompt=prompt,
            reply=reply,
            too_long=too_long,
            seconds=round(seconds, 4),
        )
        self._journal.append(call.model_dump_json())
        self._count = call.number
        if reply:
            self._count_usage(reply)

    def _wait_for_reply(self, model: Model, prompt: Prompt) -> Reply:
        """What the model says, asked in a thread of its own: whoever wants to stop need not wait for it."""
        answer: Future[Reply] = Future()
        context = copy_context()  # a model of somebody else's may look for its own things there
        Thread(
            target=context.run, args=(_reply_into, answer, model, prompt), name="model", daemon=True
        ).start()
        patience = REPLY_GRACE_S
        while True:
            try:
                return answer.result(timeout=POLL_INTERVAL_S)
            except TimeoutError:
                if answer.done():
                    raise  # it is the model's own
            patience -= POLL_INTERVAL_S if self.stop_token.requested else 0.0
            if patience <= 0:
                self.stop_token.raise_if_requested()

    def _count_usage(self, reply: Reply) -> None:
        self.tokens += reply.input_tokens + reply.output_tokens
        self.dollars += reply.dollars


def _reply_into(answer: "Future[Reply]", model: Model, prompt: Prompt) -> None:
    try:
        answer.set_result(model.reply(prompt))
    except BaseException as error:  # noqa: BLE001 - handed to the thread that asked
        answer.set_exception(error)


def _escape_invalid_utf8(said: MessageOrReply) -> MessageOrReply:
    calls = tuple(
        call.replace(name=escape_invalid_utf8(call.name), arguments=escape_invalid_utf8(call.arguments))
        for call in said.calls
    )
    return said.replace(text=escape_invalid_utf8(said.text), calls=calls)


def estimate_tokens(prompt: Prompt) -> int:
    """How many tokens a prompt may have, rather more than fewer."""
    said = sum(
        len(message.text) + sum(len(call.arguments) for call in message.calls) for message in prompt.messages
    )
    offered = sum(len(tool.description) + len(str(tool.parameters)) for tool in prompt.tools)
    return (said + offered) // CHARS_PER_TOKEN + 1
