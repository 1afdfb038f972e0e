"""PROVIDER:MODEL is a model of any provider that pydantic-ai reaches; http://HOST:PORT/v1#MODEL one of any server."""

import weakref
from typing import TYPE_CHECKING

from mlagentbench.errors import ModelFault, PromptTooLong
from mlagentbench.models.base import Model, Price
from mlagentbench.providers.event_loop import shared_event_loop
from mlagentbench.providers.factory import create_provider_model
from mlagentbench.providers.names import split_model_name
from mlagentbench.providers.retry_policy import RetryPolicy
from mlagentbench.records import Prompt, Reply

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelResponse

    from mlagentbench.providers.failures import ProviderFailure

PRICE_PROBE_TOKENS = 10**6  # tokens, enough for the highest step of any price


class Hosted(Model):
    """Asks until it has an answer, or until its patience ends; keys come from the environment and stay there."""

    def __init__(self, argument: str = "", retry_policy: RetryPolicy | None = None) -> None:
        super().__init__(argument)
        self.provider, _ = split_model_name(argument)
        self.retry_policy = retry_policy or RetryPolicy()
        self._model = create_provider_model(argument)
        self._sends_stop_sequences = True  # until it refuses to be told where to stop
        self.price = self._max_price()
        shared_event_loop().enter(self._model)
        weakref.finalize(self, shared_event_loop().close, self._model).atexit = False

    def reply(self, prompt: Prompt) -> Reply:
        """The answer; what failed on the way to it is counted, and paid for."""
        from mlagentbench.providers.failures import classify_error

        began, tries = self.retry_policy.clock(), 0
        heard: list[ModelResponse] = []
        while True:
            stops = self._sends_stop_sequences and bool(prompt.stop)
            try:
                shared_event_loop().run(self._request(prompt, heard))
                return self._build_reply(heard, prompt, tries)
            except Exception as error:  # noqa: BLE001 - each provider's package has errors of its own
                failure = classify_error(error, self.provider, stops)
            tries += 1
            self._wait_or_raise(failure, tries, began)

    async def _request(self, prompt: Prompt, heard: "list[ModelResponse]") -> None:
        """One try; it is streamed, so that a stalled connection is told from a long answer."""
        from pydantic_ai.direct import model_request_stream

        from mlagentbench.providers import translation

        asked = model_request_stream(
            self._model,
            translation.to_messages(prompt),
            model_settings=translation.to_model_settings(
                prompt, self._model, self.retry_policy, self._sends_stop_sequences
            ),
            model_request_parameters=translation.to_request_parameters(prompt),
        )
        async with asked as stream:
            try:
                async for _ in stream:
                    pass
            finally:
                heard.append(stream.get())
        translation.check_response(heard[-1], prompt)

    def _wait_or_raise(self, failure: "ProviderFailure", tries: int, began: float) -> None:
        """Wait until the next try, if there is to be one."""
        patience = self.retry_policy
        if failure.kind == "too long":
            raise PromptTooLong(f"{self.argument} takes no prompt of this length: {failure.reason}")
        if failure.kind == "final":
            raise ModelFault(f"{self.argument}: {failure.reason}")
        if failure.kind == "stop refused":
            self._sends_stop_sequences = False  # the reply is cut by us, as it is anyway
            return
        wait = patience.next_wait_s(tries, failure.retry_after_s)
        if tries >= patience.max_attempts or patience.clock() - began + wait > patience.max_total_wait_s:
            later = (
                f"; it wants to be left alone for {failure.retry_after_s:.0f} s"
                if failure.retry_after_s
                else ""
            )
            raise ModelFault(f"{self.argument} did not answer, asked {tries}×: {failure.reason}{later}")
        self.on_retry(
            f"{self.argument} does not answer ({failure.reason}); asked again in {wait:.0f} s, try {tries + 1}"
        )
        patience.sleep(wait)

    def _build_reply(self, heard: "list[ModelResponse]", prompt: Prompt, retries: int) -> Reply:
        from mlagentbench.providers import translation
        from mlagentbench.providers.failures import redact_keys

        reply = translation.to_reply(heard[-1], prompt)
        used = [translation.count_tokens(each, prompt) for each in heard]
        return reply.replace(
            text=redact_keys(reply.text, self.provider),
            calls=tuple(
                call.replace(arguments=redact_keys(call.arguments, self.provider)) for call in reply.calls
            ),
            input_tokens=sum(into for into, _ in used),
            output_tokens=sum(out for _, out in used),
            dollars=sum(self._response_cost(each, *tokens) for each, tokens in zip(heard, used, strict=True)),
            retries=retries,
        )

    def _response_cost(self, response: "ModelResponse", into: int, out: int) -> float:
        from mlagentbench.providers.translation import response_cost

        known, price = response_cost(response), self.price or Price(0.0, 0.0)
        return into * price.input + out * price.output if known is None else known

    def _max_price(self) -> Price | None:
        """What a token costs at most: some prices rise with the length of the prompt."""
        from mlagentbench.providers import translation

        dollars = [
            translation.estimate_cost(self._model, *tokens)
            for tokens in ((PRICE_PROBE_TOKENS, 0), (PRICE_PROBE_TOKENS, PRICE_PROBE_TOKENS))
        ]
        if None in dollars:
            return None
        heard, both = (each or 0.0 for each in dollars)
        return Price(heard / PRICE_PROBE_TOKENS, (both - heard) / PRICE_PROBE_TOKENS)
