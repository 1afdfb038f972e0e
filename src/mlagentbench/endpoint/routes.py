"""Which dialect answers at which path, whether or not the path begins with a version."""

import re
from typing import NamedTuple

from mlagentbench.endpoint.base import Dialect, Json
from mlagentbench.endpoint.chat import Chat
from mlagentbench.endpoint.google import Google
from mlagentbench.endpoint.messages import Messages
from mlagentbench.endpoint.responses import Responses

CHAT, MESSAGES, RESPONSES, GOOGLE = Chat(), Messages(), Responses(), Google()
VERSIONS = re.compile(r"^(/v1(alpha|beta)?\d*)+(?=/|$)")
GOOGLE_METHOD = re.compile(r"/models/(?P<model>[^/]+):(?P<method>\w+)$")
MODEL_NAME = "model"


class Route(NamedTuple):
    """How to answer a POST request: the dialect, and what it asks for."""

    dialect: Dialect
    action: str  # "generate", "stream", "stream_array", "count_tokens", or "" if unknown
    model: str = ""  # as the path names it


def find_route(target: str) -> Route:
    """The route for the target of a request; an unknown path has no action."""
    path, _, query = target.partition("?")
    path = VERSIONS.sub("", path).rstrip("/")
    if path == "/chat/completions":
        return Route(CHAT, "generate")
    if path == "/responses":
        return Route(RESPONSES, "generate")
    if path == "/messages":
        return Route(MESSAGES, "generate")
    if path == "/messages/count_tokens":
        return Route(MESSAGES, "count_tokens")
    if match := GOOGLE_METHOD.search(path):
        stream = "stream" if "alt=sse" in query.split("&") else "stream_array"
        actions = {
            "generateContent": "generate",
            "streamGenerateContent": stream,
            "countTokens": "count_tokens",
        }
        return Route(GOOGLE, actions.get(match["method"], ""), match["model"])
    return Route(CHAT, "")


def count_tokens_body(dialect: Dialect, tokens: int) -> Json:
    """The response to a request to count tokens."""
    return {"totalTokens": tokens} if dialect is GOOGLE else {"input_tokens": tokens}


def find_model_info(target: str) -> Json | None:
    """The list of models, or one of them, in the form of all APIs at once; None at any other path."""
    path = VERSIONS.sub("", target.partition("?")[0]).rstrip("/")
    if path == "/models":
        model = describe_model(MODEL_NAME)
        listed = {"object": "list", "data": [model], "has_more": False, "first_id": MODEL_NAME}
        return {**listed, "last_id": MODEL_NAME, "models": [model]}
    if path.startswith("/models/"):
        return describe_model(path.removeprefix("/models/"))
    return {} if path == "" else None


def describe_model(name: str) -> Json:
    """A model as the OpenAI, Anthropic and Google APIs describe it. Any name is the model of the run."""
    return {
        "id": name,
        "object": "model",
        "type": "model",
        "created": 0,
        "created_at": "1970-01-01T00:00:00Z",
        "owned_by": "mlagentbench",
        "display_name": name,
        "name": f"models/{name}",
        "displayName": name,
        "supportedGenerationMethods": ["generateContent", "countTokens"],
    }
