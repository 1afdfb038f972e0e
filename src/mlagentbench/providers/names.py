"""The providers of hosted models by name, and where each finds its key."""

import os
from typing import NamedTuple

from mlagentbench.errors import UsageError

COMPATIBLE_KEY_VARIABLE = (
    "OPENAI_COMPATIBLE_API_KEY"  # for servers named by URL: no key of OpenAI's goes to a stranger
)
MIN_SECRET_CHARS = 12  # characters; whatever is shorter guards nothing, and may be a word of a reply


class Provider(NamedTuple):
    """What a person must know of a provider; the first variable that is set counts."""

    description: str
    key_variables: tuple[str, ...]
    base_url_variable: str = ""  # the variable that names another server of its kind


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
    "vercel": Provider("Vercel's gateway", ("VERCEL_AI_GATEWAY_API_KEY", "VERCEL_OIDC_TOKEN")),
    "azure": Provider("Azure OpenAI", ("AZURE_OPENAI_API_KEY",), "AZURE_OPENAI_ENDPOINT"),
    "bedrock": Provider("Amazon Bedrock; pydantic-ai-slim[bedrock]", ("AWS_BEARER_TOKEN_BEDROCK",)),
    "xai": Provider("xAI; pydantic-ai-slim[xai]", ("XAI_API_KEY",)),
    "ollama": Provider("Ollama", ("OLLAMA_API_KEY",), "OLLAMA_BASE_URL"),
    "vllm": Provider("vLLM", ("VLLM_API_KEY",), "VLLM_BASE_URL"),
}
RENAMED_PROVIDERS = {"google-gla": "google", "google-vertex": "google-cloud"}  # as they were called before


def split_model_name(name: str) -> tuple[str, str]:
    """The provider and the model of `PROVIDER:MODEL`; a server by URL (`http://…/v1#MODEL`) is its own provider."""
    if name.startswith(("http://", "https://")):
        address, _, model = name.partition("#")
        if not model or any(sign in address for sign in "@?"):
            raise UsageError(
                f"a server is named http://HOST:PORT/v1#MODEL, without a query or a password; its key is {COMPATIBLE_KEY_VARIABLE}"
            )
        return address, model
    provider, _, model = name.partition(":")
    if not model:
        raise UsageError(f"no model {name!r}; a hosted one is PROVIDER:MODEL, and others are in: list models")
    return RENAMED_PROVIDERS.get(provider, provider), model


def key_variables(provider: str) -> tuple[str, ...]:
    """The variables in which a provider may find its key."""
    if provider.startswith("http"):
        return (COMPATIBLE_KEY_VARIABLE,)
    found = PROVIDERS.get(provider) or PROVIDERS.get(provider.removesuffix("-responses"))
    return found.key_variables if found else ()


def known_secrets(provider: str) -> tuple[str, ...]:
    """The keys that a provider may have been sent, and may send back; of a stranger, all that look like one."""
    names = key_variables(provider) or [
        name for name in os.environ if name.endswith(("KEY", "TOKEN", "SECRET"))
    ]
    values = (os.environ.get(name, "").strip() for name in names)
    return tuple(value for value in values if len(value) >= MIN_SECRET_CHARS)
