"""Creates the pydantic-ai model for a name, or raises one line that says what is missing."""

import os
import re
from typing import TYPE_CHECKING, Any

from mlagentbench.errors import UsageError
from mlagentbench.providers.names import COMPATIBLE_KEY_VARIABLE, PROVIDERS, key_variables, split_model_name
from mlagentbench.system.extras import install_command

if TYPE_CHECKING:
    from pydantic_ai.models import Model

EXTRAS_OF_MODELS = ("openai", "anthropic", "google", "mistral", "groq", "cohere")  # in mlagentbench[models]


def create_provider_model(name: str) -> "Model[Any]":
    """Create the pydantic-ai model for `PROVIDER:MODEL` or a URL; nothing is sent yet."""
    provider, model = split_model_name(name)
    for variable in key_variables(provider):
        _check_key(variable)
    try:
        from pydantic_ai.exceptions import UserError
        from pydantic_ai.models import infer_model
    except ImportError as error:
        raise UsageError(
            f"{name} needs packages that are not installed: {install_command('models')}"
        ) from error
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
    except Exception as error:  # each provider's package validates its settings differently
        raise UsageError(f"{name} cannot be used: {_shorten(str(error))}") from error


def _create_compatible_model(url: str, model: str) -> "Model[Any]":
    """A server with an OpenAI-compatible chat completions API; only widely supported parameters are used."""
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.profiles.openai import OpenAIModelProfile
    from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider

    profile = OpenAIModelProfile(
        openai_chat_supports_max_completion_tokens=False,
        openai_supports_strict_tool_definition=False,
        supports_json_schema_output=True,  # a server without it rejects the request itself
        supports_json_object_output=True,
    )
    key = os.environ.get(COMPATIBLE_KEY_VARIABLE)
    provider = OpenAICompatibleProvider("compatible", base_url=url, api_key=key, profile=profile)
    return OpenAIChatModel(model, provider=provider)


def _check_key(variable: str) -> None:
    """Reject a key that is not a valid header value: the HTTP client's own error message would show it."""
    key = os.environ.get(variable)
    if key is not None and not (key.isascii() and key.isprintable() and key.strip() == key != ""):
        raise UsageError(
            f"{variable} is empty, or contains spaces, line breaks or non-ASCII characters. "
            "Set it to the key alone."
        )


def _install_command(problem: str) -> str:
    extra = re.search(r"pydantic-ai-slim\[([\w-]+)\]", problem)
    if not extra or extra[1] in EXTRAS_OF_MODELS:
        return install_command("models")
    return f"pip install 'pydantic-ai-slim[{extra[1]}]'"


def _explain_user_error(provider: str, problem: str) -> str:
    if problem.startswith("Unknown model"):
        return (
            f"No such provider: {provider!r}. Available: {', '.join(PROVIDERS)}. "
            "For a server by URL, use http://HOST:PORT/v1#MODEL."
        )
    variables = [name for name in re.findall(r"`([A-Z][A-Z0-9_]+)`", problem) if not os.environ.get(name)]
    return f"{' or '.join(dict.fromkeys(variables))} is not set." if variables else _shorten(problem)


def _shorten(text: str) -> str:
    return " ".join(text.split())[:300]
