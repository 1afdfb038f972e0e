"""The interface of a language model, and loading one by name."""

from abc import ABC, abstractmethod
from typing import NamedTuple

from mlagentbench import discovery
from mlagentbench.records import Prompt, Reply
from mlagentbench.system.progress import ProgressCallback, ignore_progress


class Price(NamedTuple):
    """Dollars per input token and per output token."""

    input: float
    output: float


class Model(ABC):
    """A language model. Subclass it to add one: `docs/extend/model.md`.

    Attributes:
        argument: The part of the model's name after the colon: `FILE` in `scripted:FILE`.
        price: Price per token; None if unknown, in which case `--dollars` is refused.
        supports_grammar: Whether replies follow `Prompt.grammar` (GBNF).
        supports_tools: Whether replies may call `Prompt.tools`.
        replies_at_once: Whether `reply` never waits, so that a request to stop need not interrupt it.
        on_retry: Called with one line of text before each retry.
    """

    price: Price | None = Price(0.0, 0.0)
    supports_grammar = False
    supports_tools = True
    replies_at_once = False
    on_retry: ProgressCallback = staticmethod(ignore_progress)

    def __init__(self, argument: str = "") -> None:
        self.argument = argument

    @abstractmethod
    def reply(self, prompt: Prompt) -> Reply:
        """Answer a prompt. May be called from any thread.

        Args:
            prompt: The messages, tools, stop sequences, token limit and grammar.

        Returns:
            The text and tool calls, with the tokens and dollars that they cost.

        Raises:
            PromptTooLong: The prompt does not fit the context window; the agent may send a shorter one.
            PromptRejected: The model does not support something in the prompt, such as tools.
            ModelFault: The provider failed and retrying does not help; the run ends with a fault.
        """

    def skip_replayed(self, reply: Reply) -> None:  # noqa: B027 - most models keep no state
        """Advance past a reply from the part of the run that a resume replays.

        Only models with state of their own need this, for example a position in a script.

        Args:
            reply: The recorded reply.
        """


def load_model(name: str) -> Model:
    """Load a model by name.

    Args:
        name: A built-in model (`local`, `scripted:FILE`), one of another package, a hosted one
            (`PROVIDER:MODEL`), or a server (`http://HOST:PORT/v1#MODEL`).

    Returns:
        The model, ready to be called.

    Raises:
        UsageError: The name is unknown, or a package, file or key is missing.
    """
    model_class, argument = find_model_class(name)
    return model_class(argument)


def find_model_class(name: str) -> tuple[type[Model], str]:
    """Find the class of a model, without loading the model.

    Args:
        name: As for `load_model`.

    Returns:
        The class, and the argument to create it with.

    Raises:
        UsageError: The name is unknown.
    """
    kind, _, argument = name.partition(":")
    if kind not in discovery.plugin_names("models"):
        kind, argument = "hosted", name
    return discovery.load_class("models", kind, Model), argument  # type: ignore[type-abstract]
