"""From a name to a model that can be asked, or to one line that says what is missing."""

import os
import re
from typing import TYPE_CHECKING, Any

from mlagentbench.errors import UsageError
from mlagentbench.providers.names import COMPATIBLE_KEY_VARIABLE, PROVIDERS, key_variables, split_model_name

if TYPE_CHECKING:
    from pydantic_ai.models import Model

INSTALL_COMMAND = "pip install 'mlagentbench[models]'"


def create_provider_model(name: str) -> "Model[Any]":
    """The model of pydantic-ai that goes by this name; nothing is sent to anybody yet."""
    provider, model = split_model_name(name)
    for variable in key_variables(provider):
        _check_key(variable)
    try:
        from pydantic_ai.exceptions import UserError
        from pydantic_ai.models import infer_model
    except ImportError as error:
        raise UsageError(f"{name} needs packages that are not installed: {INSTALL_COMMAND}") from error
    try:
        return (
            _create_compatible_model(provider, model)
            if provider.startswith("http")
            else infer_model(f"{provider}:{model}")
        )
    except ImportError as error:
        raise UsageError(
            f"{name} needs packages that are not installed: {_install_command(str(error))}"
        ) from error
    except UserError as error:
        raise UsageError(f"{name}: {_explain_user_error(provider, str(error))}") from error
    except Exception as error:  # every provider's own package checks its settings in its own way
        raise UsageError(f"{name} cannot be used: {_shorten(str(error))}") from error


def _create_compatible_model(address: str, model: str) -> "Model[Any]":
    """Any server that speaks OpenAI's chat completions, in the words that all of them know."""
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.profiles.openai import OpenAIModelProfile
    from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider

    profile = OpenAIModelProfile(
        openai_chat_supports_max_completion_tokens=False, openai_supports_strict_tool_definition=False
    )
    key = os.environ.get(COMPATIBLE_KEY_VARIABLE)
    provider = OpenAICompatibleProvider("compatible", base_url=address, api_key=key, profile=profile)
    return OpenAIChatModel(model, provider=provider)


def _check_key(variable: str) -> None:
    """A key that no header can carry would be shown by whoever refuses it."""
    key = os.environ.get(variable)
    if key is not None and not (key.isascii() and key.isprintable() and key.strip() == key != ""):
        raise UsageError(
            f"{variable} is empty, or has blanks or line breaks around it: set it to the key alone"
        )


def _install_command(problem: str) -> str:
    found = re.search(r"pydantic-ai-slim\[([\w-]+)\]", problem)
    ours = not found or found[1] in ("openai", "anthropic", "google", "mistral", "groq", "cohere")
    return INSTALL_COMMAND if ours or not found else f"pip install 'pydantic-ai-slim[{found[1]}]'"


def _explain_user_error(provider: str, problem: str) -> str:
    if problem.startswith("Unknown model"):
        known = ", ".join(PROVIDERS)
        return f"there is no provider {provider!r}; there are: {known}; or name a server: http://HOST:PORT/v1#MODEL"
    variables = [name for name in re.findall(r"`([A-Z][A-Z0-9_]+)`", problem) if not os.environ.get(name)]
    return f"{' or '.join(dict.fromkeys(variables))} is not set" if variables else _shorten(problem)


def _shorten(text: str) -> str:
    return " ".join(text.split())[:300]
