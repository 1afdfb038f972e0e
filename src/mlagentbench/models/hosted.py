"""PROVIDER:MODEL calls a model of any provider known to pydantic-ai; http://HOST:PORT/v1#MODEL one by URL."""

import weakref
from typing import TYPE_CHECKING

from mlagentbench.errors import ModelFault, PromptRejected, PromptTooLong
from mlagentbench.models.base import Model, Price
from mlagentbench.providers.event_loop import shared_event_loop
from mlagentbench.providers.factory import create_provider_model
from mlagentbench.providers.names import split_model_name
from mlagentbench.providers.retry_policy import RetryPolicy
from mlagentbench.records import Message, Prompt, Reply

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelResponse
    from pydantic_ai.settings import ModelSettings

    from mlagentbench.providers.failures import ProviderFailure
    from mlagentbench.providers.settings import AppliedSettings

PRICE_PROBE_TOKENS = 10**6  # enough to reach the highest tier of any tiered price
# Attempts that end with an empty reply, or with an exception that the provider's package does not define.
MAX_UNEXPECTED_ATTEMPTS = 3
# Any model can answer it. What fails while this is answered fails because of what was asked.
CHECK_PROMPT = Prompt(messages=(Message(role="user", text="Reply with OK."),), max_tokens=64)


class Hosted(Model):
    """A model behind an API, with retries. Keys come from the environment and are never recorded."""

    def __init__(self, argument: str = "", retry_policy: RetryPolicy | None = None) -> None:
        super().__init__(argument)
        self.provider, _ = split_model_name(argument)
        self.retry_policy = retry_policy or RetryPolicy()
        self._model = create_provider_model(argument)
        self._sends_stop_sequences = True  # until the provider rejects them
        self._max_reply_tokens: int | None = None  # once the provider has named it
        self.price = self._max_price()
        shared_event_loop().enter(self._model)
        weakref.finalize(self, shared_event_loop().close, self._model).atexit = False

    def reply(self, prompt: Prompt) -> Reply:
        """Return the reply; failed attempts are counted, and their tokens are paid for.

        A prompt on which the provider fails, although it answers another one, is rejected. It is no fault: an
        agent could void its run with it.
        """
        from mlagentbench.providers.failures import classify_error

        started, attempts, answers_others = self.retry_policy.clock(), 0, False
        responses: list[ModelResponse] = []
        while True:
            applied = self._apply_settings(prompt)
            try:
                shared_event_loop().run(self._request(prompt, applied.settings, responses))
                reply = self._build_reply(responses, prompt, attempts)
                return reply.replace(not_applied=applied.not_applied)
            except PromptRejected:
                raise
            except Exception as error:  # noqa: BLE001 - each provider's package has its own exceptions
                sent = applied.settings
                failure = classify_error(
                    error, self.provider, "stop_sequences" in sent, sent.get("max_tokens")
                )
            attempts += 1
            if answers_others:
                raise PromptRejected(f"{self.argument} refuses this prompt, and no other: {failure.reason}")
            if failure.kind == "empty" and attempts == MAX_UNEXPECTED_ATTEMPTS:
                return self._build_reply(responses, prompt, attempts - 1)
            if self._may_be_the_prompt(failure, attempts, started):
                answers_others = self._answers_other_prompts(responses)
            if not answers_others:
                self._wait_or_raise(failure, attempts, started)

    async def _request(
        self, prompt: Prompt, settings: "ModelSettings", responses: "list[ModelResponse]"
    ) -> None:
        """Make one attempt. It is streamed, which distinguishes a stalled connection from a long answer."""
        from pydantic_ai.direct import model_request_stream

        from mlagentbench.providers import translation

        request = model_request_stream(
            self._model,
            translation.to_messages(prompt, self._model),
            model_settings=settings,
            model_request_parameters=translation.to_request_parameters(prompt, self._model),
        )
        async with request as stream:
            try:
                async for _ in stream:
                    pass
            finally:
                responses.append(stream.get())
        translation.check_response(responses[-1], prompt)

    def _apply_settings(self, prompt: Prompt) -> "AppliedSettings":
        from mlagentbench.providers.settings import to_model_settings

        return to_model_settings(
            prompt, self._model, self.retry_policy, self._sends_stop_sequences, self._max_reply_tokens
        )

    def _may_be_the_prompt(self, failure: "ProviderFailure", attempts: int, started: float) -> bool:
        """Whether to find out if the prompt is the cause, before a failure becomes a fault."""
        if failure.any_prompt or failure.kind not in ("unexpected", "transient", "permanent", "rejected"):
            return False
        if failure.kind == "unexpected" and attempts == MAX_UNEXPECTED_ATTEMPTS:
            return True
        is_retried = failure.kind in ("unexpected", "transient")
        return not is_retried or self._wait_s(failure, attempts, started) is None

    def _answers_other_prompts(self, responses: "list[ModelResponse]") -> bool:
        try:
            settings = self._apply_settings(CHECK_PROMPT).settings
            shared_event_loop().run(self._request(CHECK_PROMPT, settings, responses))
        except Exception:  # noqa: BLE001 - each provider's package has its own exceptions
            return False
        return True

    def _wait_s(self, failure: "ProviderFailure", attempts: int, started: float) -> float | None:
        """The wait until the next attempt; None if there is to be none."""
        policy = self.retry_policy
        wait_s = policy.next_wait_s(attempts, failure.retry_after_s)
        if attempts >= policy.max_attempts or policy.clock() - started + wait_s > policy.max_total_wait_s:
            return None
        return wait_s

    def _wait_or_raise(self, failure: "ProviderFailure", attempts: int, started: float) -> None:
        """Wait until the next attempt, or raise if there is to be none."""
        if failure.kind == "too_long":
            raise PromptTooLong(f"The prompt is too long for {self.argument}: {failure.reason}")
        if failure.kind in ("permanent", "rejected"):
            raise ModelFault(f"{self.argument}: {failure.reason}")
        if failure.kind == "unsupported":
            raise PromptRejected(f"{self.argument}: {failure.reason}")
        if failure.kind == "limit_rejected":
            self._max_reply_tokens = failure.max_reply_tokens  # lower than what was sent
            return
        if failure.kind == "stop_rejected":
            self._sends_stop_sequences = False  # replies are cut at stop sequences here in any case
            return
        wait_s = self._wait_s(failure, attempts, started)
        if wait_s is None:
            retry_after = (
                f" (the provider asks to retry after {failure.retry_after_s:.0f} s)"
                if failure.retry_after_s
                else ""
            )
            raise ModelFault(
                f"{self.argument} failed after {attempts} attempts: {failure.reason}{retry_after}"
            )
        self.on_retry(
            f"{self.argument} failed ({failure.reason}); attempt {attempts + 1} follows in {wait_s:.0f} s"
        )
        self.retry_policy.sleep(wait_s)

    def _build_reply(self, responses: "list[ModelResponse]", prompt: Prompt, retries: int) -> Reply:
        from mlagentbench.providers import translation
        from mlagentbench.providers.failures import redact_keys

        reply = translation.to_reply(responses[-1], prompt)
        tokens = [translation.count_tokens(response, prompt) for response in responses]
        return reply.replace(
            text=redact_keys(reply.text, self.provider),
            reasoning=redact_keys(reply.reasoning, self.provider),
            calls=tuple(
                call.replace(arguments=redact_keys(call.arguments, self.provider)) for call in reply.calls
            ),
            input_tokens=sum(input_tokens for input_tokens, _ in tokens),
            output_tokens=sum(output_tokens for _, output_tokens in tokens),
            dollars=sum(
                self._response_cost(response, *counts)
                for response, counts in zip(responses, tokens, strict=True)
            ),
            retries=retries,
        )

    def _response_cost(self, response: "ModelResponse", input_tokens: int, output_tokens: int) -> float:
        from mlagentbench.providers.translation import response_cost

        dollars, price = response_cost(response), self.price or Price(0.0, 0.0)
        return input_tokens * price.input + output_tokens * price.output if dollars is None else dollars

    def _max_price(self) -> Price | None:
        """The highest price of a token; some prices rise with the length of the prompt."""
        from mlagentbench.providers import translation

        input_only = translation.estimate_cost(self._model, PRICE_PROBE_TOKENS, 0)
        both = translation.estimate_cost(self._model, PRICE_PROBE_TOKENS, PRICE_PROBE_TOKENS)
        if input_only is None or both is None:
            return None
        return Price(input_only / PRICE_PROBE_TOKENS, (both - input_only) / PRICE_PROBE_TOKENS)
