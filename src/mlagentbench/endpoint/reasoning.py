"""Carries the reasoning of a reply through a program: in an opaque token, which the program sends back."""

import base64
import binascii

from mlagentbench.endpoint.base import UnsupportedRequest
from mlagentbench.records import Reply

# What Google lets a program send where a function call came without a signature; Gemini CLI does.
NO_SIGNATURES = ("skip_thought_signature_validator", "context_engineering_is_the_way_to_go")


def state_token(reply: Reply) -> str:
    """What the provider wants back with this reply, as a token for a `signature` field; empty if nothing."""
    return base64.b64encode(reply.provider_state.encode()).decode()


def parse_state_token(token: object) -> str:
    """The state in a token that this endpoint gave to the program.

    Raises:
        UnsupportedRequest: It comes from elsewhere; the model of this run could not read it.
    """
    if token in (None, "", *NO_SIGNATURES):
        return ""
    try:
        state = base64.b64decode(str(token), validate=True).decode()
    except (binascii.Error, UnicodeDecodeError, ValueError):
        state = ""
    if not state.startswith(("{", "[")):  # it is JSON
        raise UnsupportedRequest("A reasoning block has a signature that is not from this endpoint.")
    return state
