"""What a provider's failure means: worth another try, too long a prompt, or the end; said in a line, without keys."""

import re
from typing import Any, Literal, NamedTuple

from pydantic_ai import exceptions as raised

from mlagentbench.providers.names import key_variables, known_secrets

FailureKind = Literal["passing", "too long", "stop refused", "final"]
TRANSIENT_ERRORS = (
    raised.ModelRateLimitError,
    raised.ModelUnavailableError,
    raised.ModelServerError,
    raised.ModelConnectionError,
    raised.ModelRequestTimeout,
)
PERMANENT_ERRORS = (
    raised.ModelRequestRejectedError,
    raised.ModelQuotaExceededError,
    raised.UserError,
    raised.ContentFilterError,
)
RETRYABLE_STATUSES = {408, 409, 425}  # statuses that ask for another try and belong to no family
STATUS_CONTENT_TOO_LARGE = 413
# As providers say it: OpenAI and those like it, Anthropic, Google, Mistral, Cohere, Hugging Face and llama.cpp, Groq.
CONTEXT_LENGTH_MESSAGE = re.compile(
    r"context.?(length|window|size)|prompt is too long|input.? (is )?too long|input token count"
    r"|too many (input )?tokens|too large for model|request too large|number of tokens .*(exceed|must be)"
    r"|`?inputs`? tokens \+",
    re.IGNORECASE,
)
MAX_REASON_CHARS = 300  # characters of a reason


class TruncatedResponse(Exception):
    """The answer broke off before its end."""


class EmptyResponse(Exception):
    """The answer says nothing at all."""


class ProviderFailure(NamedTuple):
    """What came instead of an answer; seconds are those after which the provider wants to be asked again."""

    kind: FailureKind
    reason: str
    retry_after_s: float | None = None


def classify_error(error: Exception, provider: str, sent_stop_sequences: bool) -> ProviderFailure:
    """What to make of an error; `stops` says that stop sequences were sent."""
    said = _error_text(error)
    reason = format_reason(said, provider)
    status = error.status_code if isinstance(error, raised.ModelHTTPError) else None
    if status:
        reason = f"{status}: {reason}"
    seconds = error.retry_after if isinstance(error, raised.ModelAPIError) else None
    if (
        isinstance(error, raised.ModelContextWindowExceededError)
        or status == STATUS_CONTENT_TOO_LARGE
        or _is_length_error(status, said)
    ):
        return ProviderFailure("too long", reason)
    if isinstance(error, raised.ModelAuthenticationError):
        variables = " or ".join(key_variables(provider))
        return ProviderFailure("final", f"{reason} (check {variables})" if variables else reason)
    if (
        isinstance(error, raised.ModelRequestRejectedError)
        and sent_stop_sequences
        and re.search(r"\bstop", said)
    ):
        return ProviderFailure("stop refused", reason)
    if isinstance(error, PERMANENT_ERRORS):
        return ProviderFailure("final", reason)
    if isinstance(error, raised.ModelHTTPError) and not isinstance(error, TRANSIENT_ERRORS):
        return ProviderFailure("passing" if status in RETRYABLE_STATUSES else "final", reason, seconds)
    return ProviderFailure(
        "passing", reason, seconds
    )  # whatever else a provider's package raises, it raises on the answer


def _is_length_error(status: int | None, said: str) -> bool:
    """Whether a refusal is about length; a rate limit is, if no single request may be this large."""
    if status == 429:
        return "too large" in said.lower()
    return status is not None and 400 <= status < 500 and bool(CONTEXT_LENGTH_MESSAGE.search(said))


def _error_text(error: Exception) -> str:
    if isinstance(error, raised.ModelTimeoutError | raised.ModelRequestTimeout):
        return f"no answer in time ({error.message})"
    if isinstance(error, raised.ModelHTTPError):
        return _message_in_body(error.body) or str(error.body or "no reason given")
    return str(error) or type(error).__name__


def _message_in_body(body: Any) -> str:
    """The sentence in an error's body, wherever the provider keeps it."""
    while isinstance(body, dict):
        body = next((body[key] for key in ("error", "message", "detail") if body.get(key)), "")
    return body if isinstance(body, str) else str(body)


def format_reason(text: str, provider: str) -> str:
    """A reason as people and records may see it."""
    line = " ".join(redact_keys(text, provider).split())
    line = re.sub(r"(?i)(bearer|api[_-]?key['\"]?\s*[:=])\s*['\"]?[\w.~+/=-]{8,}", r"\1 [key]", line)
    return line if len(line) <= MAX_REASON_CHARS else f"{line[: MAX_REASON_CHARS - 1]}…"


def redact_keys(text: str, provider: str) -> str:
    """The text without the keys that its sender was sent."""
    for secret in known_secrets(provider):
        text = text.replace(secret, "[key]")
    return text
