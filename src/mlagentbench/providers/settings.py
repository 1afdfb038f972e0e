"""The settings of a prompt as pydantic-ai's, without those that a model does not have."""

from typing import Any, NamedTuple, cast

from pydantic_ai.models import Model
from pydantic_ai.settings import ModelSettings, ToolOrOutput

from mlagentbench.errors import PromptRejected
from mlagentbench.providers.retry_policy import RetryPolicy
from mlagentbench.records import Prompt, Sampling

MAX_STOP_SEQUENCES = 4  # that every provider accepts; replies are cut at the rest here
SAMPLING_SETTINGS = ("temperature", "top_p", "top_k", "seed", "presence_penalty", "frequency_penalty")
# pydantic-ai leaves these out for models that choose them themselves, with no more than a Python warning.
SAMPLING_OF_REASONING = {"temperature", "top_p", "top_k", "presence_penalty", "frequency_penalty"}
OUR_NAMES = {"thinking": "effort", "openai_text_verbosity": "verbosity"}
EFFORTS: dict[str, bool | str] = {"none": False, "default": True}  # other levels have the same names


class AppliedSettings(NamedTuple):
    """What is sent, and the names of the settings that this model does not have."""

    settings: ModelSettings
    not_applied: tuple[str, ...]


def to_model_settings(
    prompt: Prompt,
    model: Model[Any],
    retry_policy: RetryPolicy,
    send_stop_sequences: bool = True,
    max_reply_tokens: int | None = None,
) -> AppliedSettings:
    """The settings that the model supports; the client's own retries are off, so that all are counted.

    Args:
        prompt: The prompt.
        model: The model that gets it.
        retry_policy: The timeouts.
        send_stop_sequences: Whether the provider accepts stop sequences.
        max_reply_tokens: The longest reply that the provider accepts, where that is known.

    Raises:
        PromptRejected: The choice of tools cannot be passed on.
    """
    profile = cast(dict[str, Any], model.profile)
    unsupported = {*model.unsupported_settings, *profile.get("openai_unsupported_model_settings", ())}
    if not (profile.get("supports_thinking") or profile.get("thinking_always_enabled")):
        unsupported.add("thinking")
    requested = _requested_settings(prompt)
    if "openai_text_verbosity" in requested and model.system not in ("openai", "azure"):
        unsupported.add("openai_text_verbosity")
    if _drops_sampling(profile, None if "thinking" in unsupported else requested.get("thinking")):
        unsupported.update(SAMPLING_OF_REASONING)
    if "tool_choice" in requested and "tool_choice" in unsupported:
        raise PromptRejected(f"{model.model_name} cannot be told which tool to call.")
    not_applied = tuple(OUR_NAMES.get(name, name) for name in requested if name in unsupported)
    settings: dict[str, Any] = {name: value for name, value in requested.items() if name not in unsupported}
    limits = [limit for limit in (prompt.max_tokens, max_reply_tokens) if limit is not None]
    if limits:
        settings["max_tokens"] = min(limits)
    if prompt.max_tokens and prompt.max_tokens > min(limits):
        not_applied += ("max_tokens",)
    stop_sequences = [stop for stop in prompt.stop if stop.strip()][:MAX_STOP_SEQUENCES]
    if send_stop_sequences and stop_sequences:
        settings["stop_sequences"] = stop_sequences
    transport = {
        "timeout": retry_policy.read_timeout_s,
        "request_timeout": retry_policy.attempt_timeout_s,
        "max_retries": 0,
    }
    sent = {name: value for name, value in {**settings, **transport}.items() if name not in unsupported}
    return AppliedSettings(cast(ModelSettings, sent), not_applied)


def _drops_sampling(profile: dict[str, Any], thinking: object) -> bool:
    """Whether the model takes no sampling settings, at all or while it reasons."""
    if profile.get("anthropic_disallows_sampling_settings"):
        return True
    if not profile.get("openai_supports_reasoning"):
        return False
    efforts = profile.get("openai_reasoning_efforts")
    can_be_off = (
        profile.get("openai_supports_reasoning_effort_none") if efforts is None else "none" in efforts
    )
    if not can_be_off or profile.get("thinking_always_enabled"):
        return True
    return bool(profile.get("thinking_enabled_by_default")) if thinking is None else thinking is not False


def _requested_settings(prompt: Prompt) -> dict[str, Any]:
    """The settings that the prompt names."""
    sampling: Sampling = prompt.sampling
    values = {name: getattr(sampling, name) for name in SAMPLING_SETTINGS}
    requested = {name: value for name, value in values.items() if value is not None}
    if sampling.effort:
        requested["thinking"] = EFFORTS.get(sampling.effort, sampling.effort)
    if sampling.verbosity:
        requested["openai_text_verbosity"] = sampling.verbosity
    choice = prompt.tool_choice
    if prompt.tools and choice.parallel is not None:
        requested["parallel_tool_calls"] = choice.parallel
    if prompt.tools and choice.mode == "auto" and choice.names:
        requested["tool_choice"] = ToolOrOutput(function_tools=list(choice.names))
    elif prompt.tools and choice.mode != "auto":
        requested["tool_choice"] = list(choice.names) if choice.names else choice.mode
    return requested
