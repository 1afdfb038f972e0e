"""Classifies provider errors as transient, permanent or too long a prompt, with a reason without keys."""

import re
from typing import Any, Literal, NamedTuple

from pydantic_ai import exceptions as raised

from mlagentbench.providers.names import key_variables, known_secrets

FailureKind = Literal[
    "transient",  # another attempt may succeed
    "permanent",
    "rejected",  # by the provider
    "unsupported",  # by the provider's package, before anything is sent
    "unexpected",
    "empty",
    "too_long",
    "stop_rejected",
    "limit_rejected",
]
TRANSIENT_ERRORS = (
    raised.ModelRateLimitError,
    raised.ModelUnavailableError,
    raised.ModelServerError,
    raised.ModelConnectionError,
    raised.ModelRequestTimeout,
)
PERMANENT_ERRORS = (
    raised.ModelAuthenticationError,
    raised.ModelNotFoundError,
    raised.ModelQuotaExceededError,
    raised.ContentFilterError,
)
ANY_PROMPT_ERRORS = (
    raised.ModelRateLimitError,
    raised.ModelQuotaExceededError,
    raised.ModelUnavailableError,
    raised.ModelConnectionError,
)
RETRYABLE_STATUSES = {408, 409, 425}  # for which pydantic-ai has no exception class
STATUS_UNAUTHORIZED = 401
STATUS_CONTENT_TOO_LARGE = 413
STATUS_RATE_LIMIT = 429
# As worded by OpenAI and compatible servers, Anthropic, Google, Mistral, Cohere, Hugging Face, llama.cpp and
# Groq.
CONTEXT_LENGTH_MESSAGE = re.compile(
    r"context.?(length|window|size)|prompt is too long|input.? (is )?too long|input token count"
    r"|too many (input )?tokens|too large for model|request too large|number of tokens .*(exceed|must be)"
    r"|`?inputs`? tokens \+",
    re.IGNORECASE,
)
# As worded by OpenAI, Anthropic, Google and vLLM, whose limit is what the prompt leaves: "> 32768 - 1000".
REPLY_LIMIT_MESSAGE = re.compile(
    r"max_?(completion_|output_|new_)?tokens\W.{0,80}?(too large|at most|support|exceed|> \d)",
    re.IGNORECASE | re.DOTALL,
)
WHAT_THE_PROMPT_LEAVES = re.compile(r"> (\d+) - (\d+)")
MAX_REASON_CHARS = 300


class TruncatedResponse(Exception):
    """The response ended before it was complete."""


class EmptyResponse(Exception):
    """The response has neither text nor tool calls."""


class ProviderFailure(NamedTuple):
    """A failed attempt.

    `retry_after_s` is the wait that the provider asks for, `max_reply_tokens` the longest reply it allows.
    `any_prompt` is true if every prompt would fail: the provider is overloaded, out of reach or not paid, or
    the key is wrong.
    """

    kind: FailureKind
    reason: str
    retry_after_s: float | None = None
    max_reply_tokens: int | None = None
    any_prompt: bool = False


def classify_error(
    error: Exception, provider: str, sent_stop_sequences: bool, sent_max_tokens: int | None = None
) -> ProviderFailure:
    """Decide what to do about an exception; a rejected setting only counts if it was sent."""
    text = _error_text(error)
    reason = format_reason(text, provider)
    status = error.status_code if isinstance(error, raised.ModelHTTPError) else None
    if status:
        reason = f"{status}: {reason}"
    if status and sent_max_tokens and (limit := _find_reply_limit(text, sent_max_tokens)):
        return ProviderFailure("limit_rejected", reason, max_reply_tokens=limit)
    if (
        isinstance(error, raised.ModelContextWindowExceededError)
        or status == STATUS_CONTENT_TOO_LARGE
        or _is_length_error(status, text)
    ):
        return ProviderFailure("too_long", reason)
    if isinstance(error, raised.ModelAuthenticationError):
        variables = " or ".join(key_variables(provider))
        reason = f"{reason} (check {variables})" if variables else reason
        # With 403, some providers refuse a prompt for its content.
        return ProviderFailure("permanent", reason, any_prompt=status == STATUS_UNAUTHORIZED)
    if (
        isinstance(error, raised.ModelRequestRejectedError)
        and sent_stop_sequences
        and re.search(r"\bstop", text)
    ):
        return ProviderFailure("stop_rejected", reason)
    return _classify_by_type(error, status, reason)


def _classify_by_type(error: Exception, status: int | None, reason: str) -> ProviderFailure:
    any_prompt = isinstance(error, ANY_PROMPT_ERRORS) and not isinstance(error, raised.ModelTimeoutError)
    retry_after_s = error.retry_after if isinstance(error, raised.ModelAPIError) else None
    if isinstance(error, PERMANENT_ERRORS):
        return ProviderFailure("permanent", reason, any_prompt=any_prompt)
    if isinstance(error, raised.ModelRequestRejectedError):
        return ProviderFailure("rejected", reason)
    if isinstance(error, raised.UserError):
        return ProviderFailure("unsupported", reason)
    if isinstance(error, raised.ModelHTTPError) and not isinstance(error, TRANSIENT_ERRORS):
        kind: FailureKind = "transient" if status in RETRYABLE_STATUSES else "permanent"
        return ProviderFailure(kind, reason, retry_after_s)
    if isinstance(error, EmptyResponse):
        return ProviderFailure("empty", reason)
    if isinstance(error, (raised.ModelAPIError, TruncatedResponse)):
        return ProviderFailure("transient", reason, retry_after_s, any_prompt=any_prompt)
    # Any other exception of a provider's package comes from writing the request or reading the response.
    return ProviderFailure("unexpected", reason)


def _is_length_error(status: int | None, text: str) -> bool:
    """Whether a request was rejected for its length; a rate limit counts if the request can never pass."""
    if status == STATUS_RATE_LIMIT:
        return "too large" in text.lower()
    return status is not None and 400 <= status < 500 and bool(CONTEXT_LENGTH_MESSAGE.search(text))


def _find_reply_limit(text: str, sent: int) -> int | None:
    """The longest reply that the provider allows, if it complains about the limit that was sent."""
    if not REPLY_LIMIT_MESSAGE.search(text):
        return None
    if leaves := WHAT_THE_PROMPT_LEAVES.search(text):
        limit = int(leaves[1]) - int(leaves[2])
        return limit if 0 < limit < sent else None
    return max((int(number) for number in re.findall(r"\d{2,7}", text) if int(number) < sent), default=None)


def _error_text(error: Exception) -> str:
    if isinstance(error, raised.ModelTimeoutError | raised.ModelRequestTimeout):
        return f"timed out ({error.message})"
    if isinstance(error, raised.ModelHTTPError):
        return _message_in_body(error.body) or str(error.body or "no reason given")
    return str(error) or type(error).__name__


def _message_in_body(body: Any) -> str:
    """The error message in a response body; providers nest it differently."""
    while isinstance(body, dict):
        body = next((body[key] for key in ("error", "message", "detail") if body.get(key)), "")
    return body if isinstance(body, str) else str(body)


def format_reason(text: str, provider: str) -> str:
    """The text on one line, shortened, without keys."""
    line = " ".join(redact_keys(text, provider).split())
    line = re.sub(r"(?i)(bearer|api[_-]?key['\"]?\s*[:=])\s*['\"]?[\w.~+/=-]{8,}", r"\1 [key]", line)
    return line if len(line) <= MAX_REASON_CHARS else f"{line[: MAX_REASON_CHARS - 1]}…"


def redact_keys(text: str, provider: str) -> str:
    """Replace every key that this provider may know with `[key]`."""
    for secret in known_secrets(provider):
        text = text.replace(secret, "[key]")
    return text
