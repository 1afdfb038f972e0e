"""What a provider's failure means: worth another try, too long a prompt, or the end; said in a line, without keys."""

import re
from typing import Any, Literal, NamedTuple

from pydantic_ai import exceptions as raised

from mlagentbench.providers.names import key_variables, secrets

Kind = Literal["passing", "too long", "stop refused", "final"]
PASSING = (
    raised.ModelRateLimitError,
    raised.ModelUnavailableError,
    raised.ModelServerError,
    raised.ModelConnectionError,
    raised.ModelRequestTimeout,
)
FINAL = (raised.ModelRequestRejectedError, raised.ModelQuotaExceededError, raised.UserError, raised.ContentFilterError)
AGAIN = {408, 409, 425}  # statuses that ask for another try and belong to no family
TOO_LARGE = 413
# As providers say it: OpenAI and those like it, Anthropic, Google, Mistral, Cohere, Hugging Face and llama.cpp, Groq.
LENGTH = re.compile(
    r"context.?(length|window|size)|prompt is too long|input.? (is )?too long|input token count"
    r"|too many (input )?tokens|too large for model|request too large|number of tokens .*(exceed|must be)"
    r"|`?inputs`? tokens \+",
    re.IGNORECASE,
)
LONGEST = 300  # characters of a reason


class Cut(Exception):
    """The answer broke off before its end."""


class Nothing(Exception):
    """The answer says nothing at all."""


class Failure(NamedTuple):
    """What came instead of an answer; seconds are those after which the provider wants to be asked again."""

    kind: Kind
    reason: str
    seconds: float | None = None


def understood(error: Exception, provider: str, stops: bool) -> Failure:
    """What to make of an error; `stops` says that stop sequences were sent."""
    said = _said(error)
    reason = one_line(said, provider)
    status = error.status_code if isinstance(error, raised.ModelHTTPError) else None
    if status:
        reason = f"{status}: {reason}"
    seconds = error.retry_after if isinstance(error, raised.ModelAPIError) else None
    if isinstance(error, raised.ModelContextWindowExceededError) or status == TOO_LARGE or _about_length(status, said):
        return Failure("too long", reason)
    if isinstance(error, raised.ModelAuthenticationError):
        variables = " or ".join(key_variables(provider))
        return Failure("final", f"{reason} (check {variables})" if variables else reason)
    if isinstance(error, raised.ModelRequestRejectedError) and stops and re.search(r"\bstop", said):
        return Failure("stop refused", reason)
    if isinstance(error, FINAL):
        return Failure("final", reason)
    if isinstance(error, raised.ModelHTTPError) and not isinstance(error, PASSING):
        return Failure("passing" if status in AGAIN else "final", reason, seconds)
    return Failure("passing", reason, seconds)  # whatever else a provider's package raises, it raises on the answer


def _about_length(status: int | None, said: str) -> bool:
    """Whether a refusal is about length; a rate limit is, if no single request may be this large."""
    if status == 429:
        return "too large" in said.lower()
    return status is not None and 400 <= status < 500 and bool(LENGTH.search(said))


def _said(error: Exception) -> str:
    if isinstance(error, raised.ModelTimeoutError | raised.ModelRequestTimeout):
        return f"no answer in time ({error.message})"
    if isinstance(error, raised.ModelHTTPError):
        return _message(error.body) or str(error.body or "no reason given")
    return str(error) or type(error).__name__


def _message(body: Any) -> str:
    """The sentence in an error's body, wherever the provider keeps it."""
    while isinstance(body, dict):
        body = next((body[key] for key in ("error", "message", "detail") if body.get(key)), "")
    return body if isinstance(body, str) else str(body)


def one_line(text: str, provider: str) -> str:
    """A reason as people and records may see it."""
    line = " ".join(scrubbed(text, provider).split())
    line = re.sub(r"(?i)(bearer|api[_-]?key['\"]?\s*[:=])\s*['\"]?[\w.~+/=-]{8,}", r"\1 [key]", line)
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 1]}…"


def scrubbed(text: str, provider: str) -> str:
    """The text without the keys that its sender was sent."""
    for secret in secrets(provider):
        text = text.replace(secret, "[key]")
    return text
