"""PROVIDER:MODEL is a model of any provider that pydantic-ai reaches; http://HOST:PORT/v1#MODEL one of any server."""

import weakref
from typing import TYPE_CHECKING

from mlagentbench.errors import ModelFault, PromptTooLong
from mlagentbench.models.base import Model, Price
from mlagentbench.providers.loop import loop
from mlagentbench.providers.names import split
from mlagentbench.providers.opening import opened
from mlagentbench.providers.patience import Patience
from mlagentbench.records import Prompt, Reply

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelResponse

    from mlagentbench.providers.failures import Failure

MANY = 10**6  # tokens, enough for the highest step of any price


class Hosted(Model):
    """Asks until it has an answer, or until its patience ends; keys come from the environment and stay there."""

    def __init__(self, argument: str = "", patience: Patience | None = None) -> None:
        super().__init__(argument)
        self.provider, _ = split(argument)
        self.patience = patience or Patience()
        self._model = opened(argument)
        self._stops = True  # until it refuses to be told where to stop
        self.price = self._price()
        loop().open(self._model)
        weakref.finalize(self, loop().close, self._model).atexit = False

    def reply(self, prompt: Prompt) -> Reply:
        """The answer; what failed on the way to it is counted, and paid for."""
        from mlagentbench.providers.failures import understood

        began, tries = self.patience.clock(), 0
        heard: list[ModelResponse] = []
        while True:
            stops = self._stops and bool(prompt.stop)
            try:
                loop().complete(self._ask(prompt, heard))
                return self._counted(heard, prompt, tries)
            except Exception as error:  # noqa: BLE001 - each provider's package has errors of its own
                failure = understood(error, self.provider, stops)
            tries += 1
            self._bear(failure, tries, began)

    async def _ask(self, prompt: Prompt, heard: "list[ModelResponse]") -> None:
        """One try; it is streamed, so that a stalled connection is told from a long answer."""
        from pydantic_ai.direct import model_request_stream

        from mlagentbench.providers import wording

        asked = model_request_stream(
            self._model,
            wording.conversation(prompt),
            model_settings=wording.settings(prompt, self._model, self.patience, self._stops),
            model_request_parameters=wording.parameters(prompt),
        )
        async with asked as stream:
            try:
                async for _ in stream:
                    pass
            finally:
                heard.append(stream.get())
        wording.check(heard[-1], prompt)

    def _bear(self, failure: "Failure", tries: int, began: float) -> None:
        """Wait until the next try, if there is to be one."""
        patience = self.patience
        if failure.kind == "too long":
            raise PromptTooLong(f"{self.argument} takes no prompt of this length: {failure.reason}")
        if failure.kind == "final":
            raise ModelFault(f"{self.argument}: {failure.reason}")
        if failure.kind == "stop refused":
            self._stops = False  # the reply is cut by us, as it is anyway
            return
        wait = patience.wait(tries, failure.seconds)
        if tries >= patience.tries or patience.clock() - began + wait > patience.waiting:
            later = f"; it wants to be left alone for {failure.seconds:.0f} s" if failure.seconds else ""
            raise ModelFault(f"{self.argument} did not answer, asked {tries}×: {failure.reason}{later}")
        self.on_wait(
            f"{self.argument} does not answer ({failure.reason}); asked again in {wait:.0f} s, try {tries + 1}"
        )
        patience.pause(wait)

    def _counted(self, heard: "list[ModelResponse]", prompt: Prompt, retries: int) -> Reply:
        from mlagentbench.providers import wording
        from mlagentbench.providers.failures import scrubbed

        reply = wording.reply(heard[-1], prompt)
        used = [wording.tokens(each, prompt) for each in heard]
        return reply.but(
            text=scrubbed(reply.text, self.provider),
            calls=tuple(call.but(arguments=scrubbed(call.arguments, self.provider)) for call in reply.calls),
            input_tokens=sum(into for into, _ in used),
            output_tokens=sum(out for _, out in used),
            dollars=sum(self._cost(each, *tokens) for each, tokens in zip(heard, used, strict=True)),
            retries=retries,
        )

    def _cost(self, response: "ModelResponse", into: int, out: int) -> float:
        from mlagentbench.providers.wording import cost

        known, price = cost(response), self.price or Price(0.0, 0.0)
        return into * price.input + out * price.output if known is None else known

    def _price(self) -> Price | None:
        """What a token costs at most: some prices rise with the length of the prompt."""
        from mlagentbench.providers import wording

        dollars = [wording.expected(self._model, *tokens) for tokens in ((MANY, 0), (MANY, MANY))]
        if None in dollars:
            return None
        heard, both = (each or 0.0 for each in dollars)
        return Price(heard / MANY, (both - heard) / MANY)
