"""What a model must do, and how one is found."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import NamedTuple

from mlagentbench import discovery
from mlagentbench.records import Prompt, Reply


class Price(NamedTuple):
    """Dollars for a token that goes in, and for one that comes out."""

    input: float
    output: float


class Model(ABC):
    """A language model; `argument` is what stands after the colon of its name."""

    price: Price | None = Price(0.0, 0.0)  # None: not known
    supports_grammar = False  # whether it keeps to a grammar
    on_retry: Callable[[str], None] = staticmethod(
        lambda line: None
    )  # hears of every failure that is waited out

    def __init__(self, argument: str = "") -> None:
        self.argument = argument

    @abstractmethod
    def reply(self, prompt: Prompt) -> Reply:
        """Answer; a prompt that is too long is PromptTooLong, a provider that fails for good a ModelFault."""

    def skip_replayed(self, reply: Reply) -> None:  # noqa: B027 - most have nothing to remember
        """Take note of a reply that it gave before, in the part of a run that is replayed."""


def load_model(name: str) -> Model:
    """A model by its name: one of ours (`local`, `scripted:FILE`), or `PROVIDER:MODEL` of any provider."""
    kind, _, argument = name.partition(":")
    if kind not in discovery.plugin_names("models"):
        kind, argument = "hosted", name
    found = discovery.find_single_subclass(discovery.load_plugin("models", kind), Model)  # type: ignore[type-abstract]
    return found(argument)
