"""Provider names, and the environment variables of their keys."""

import os
from typing import NamedTuple

from mlagentbench.errors import UsageError

# The key for servers given by URL, so that OPENAI_API_KEY is never sent to a third party.
COMPATIBLE_KEY_VARIABLE = "OPENAI_COMPATIBLE_API_KEY"
MIN_SECRET_CHARS = 12  # shorter values protect nothing and may occur in a reply as ordinary words


class Provider(NamedTuple):
    """What a user must know about a provider; the first key variable that is set counts."""

    description: str
    key_variables: tuple[str, ...]
    base_url_variable: str = ""  # overrides the server address


PROVIDERS = {
    "openai": Provider("OpenAI, responses API", ("OPENAI_API_KEY",), "OPENAI_BASE_URL"),
    "openai-chat": Provider("OpenAI, chat completions", ("OPENAI_API_KEY",), "OPENAI_BASE_URL"),
    "anthropic": Provider("Anthropic", ("ANTHROPIC_API_KEY",), "ANTHROPIC_BASE_URL"),
    "google": Provider("Google Gemini", ("GOOGLE_API_KEY", "GEMINI_API_KEY"), "GOOGLE_GEMINI_BASE_URL"),
    "mistral": Provider("Mistral", ("MISTRAL_API_KEY",)),
    "groq": Provider("Groq", ("GROQ_API_KEY",), "GROQ_BASE_URL"),
    "cohere": Provider("Cohere", ("CO_API_KEY",), "CO_BASE_URL"),
    "huggingface": Provider("Hugging Face; pydantic-ai-slim[huggingface]", ("HF_TOKEN",)),
    "openrouter": Provider("OpenRouter", ("OPENROUTER_API_KEY",)),
    "deepseek": Provider("DeepSeek", ("DEEPSEEK_API_KEY",)),
    "together": Provider("Together", ("TOGETHER_API_KEY",)),
    "fireworks": Provider("Fireworks", ("FIREWORKS_API_KEY",)),
    "cerebras": Provider("Cerebras", ("CEREBRAS_API_KEY",)),
    "moonshotai": Provider("Moonshot", ("MOONSHOTAI_API_KEY",), "MOONSHOTAI_BASE_URL"),
    "nebius": Provider("Nebius", ("NEBIUS_API_KEY",)),
    "ovhcloud": Provider("OVHcloud", ("OVHCLOUD_API_KEY",)),
    "sambanova": Provider("SambaNova", ("SAMBANOVA_API_KEY",), "SAMBANOVA_BASE_URL"),
    "alibaba": Provider("Alibaba", ("ALIBABA_API_KEY", "DASHSCOPE_API_KEY")),
    "zai": Provider("Z.ai", ("ZAI_API_KEY",)),
    "vercel": Provider("Vercel AI Gateway", ("VERCEL_AI_GATEWAY_API_KEY", "VERCEL_OIDC_TOKEN")),
    "azure": Provider("Azure OpenAI", ("AZURE_OPENAI_API_KEY",), "AZURE_OPENAI_ENDPOINT"),
    "bedrock": Provider("Amazon Bedrock; pydantic-ai-slim[bedrock]", ("AWS_BEARER_TOKEN_BEDROCK",)),
    "xai": Provider("xAI; pydantic-ai-slim[xai]", ("XAI_API_KEY",)),
    "ollama": Provider("Ollama", ("OLLAMA_API_KEY",), "OLLAMA_BASE_URL"),
    "vllm": Provider("vLLM", ("VLLM_API_KEY",), "VLLM_BASE_URL"),
}
RENAMED_PROVIDERS = {"google-gla": "google", "google-vertex": "google-cloud"}  # old names still accepted


def split_model_name(name: str) -> tuple[str, str]:
    """Split `PROVIDER:MODEL`; for a server by URL (`http://…/v1#MODEL`) the URL is the provider."""
    if name.startswith(("http://", "https://")):
        url, _, model = name.partition("#")
        if not model or any(character in url for character in "@?"):
            raise UsageError(
                "Name a server as http://HOST:PORT/v1#MODEL, without a query or a password. "
                f"Its key is read from {COMPATIBLE_KEY_VARIABLE}."
            )
        return url, model
    provider, _, model = name.partition(":")
    if not model:
        raise UsageError(
            f"No such model: {name!r}. Name a hosted model as PROVIDER:MODEL; `mlagentbench list models` "
            "shows all models."
        )
    return RENAMED_PROVIDERS.get(provider, provider), model


def key_variables(provider: str) -> tuple[str, ...]:
    """The environment variables that may hold a provider's key."""
    if provider.startswith("http"):
        return (COMPATIBLE_KEY_VARIABLE,)
    known = PROVIDERS.get(provider) or PROVIDERS.get(provider.removesuffix("-responses"))
    return known.key_variables if known else ()


def known_secrets(provider: str) -> tuple[str, ...]:
    """The keys that a provider may echo; for an unknown provider, all variables that look like keys."""
    names = key_variables(provider) or [
        name for name in os.environ if name.endswith(("KEY", "TOKEN", "SECRET"))
    ]
    values = (os.environ.get(name, "").strip() for name in names)
    return tuple(value for value in values if len(value) >= MIN_SECRET_CHARS)
