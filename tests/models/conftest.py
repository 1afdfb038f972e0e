"""Hosted models whose provider is a server on the loopback interface."""

from collections.abc import Callable, Iterator

import pytest
from fake_provider import FakeProvider
from retry_clock import KEY, NAMES, RetryClock

from mlagentbench.models.hosted import Hosted
from mlagentbench.providers.names import COMPATIBLE_KEY_VARIABLE, PROVIDERS


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove keys, base URLs and proxies of the machine."""
    for provider in PROVIDERS.values():
        for name in (*provider.key_variables, provider.base_url_variable, COMPATIBLE_KEY_VARIABLE):
            if name:
                monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeProvider]:
    """A fake provider that OpenAI, Anthropic and Groq models connect to."""
    with FakeProvider(key=KEY) as server:
        for name in ("OPENAI", "ANTHROPIC", "GROQ"):
            monkeypatch.setenv(f"{name}_API_KEY", KEY)
            monkeypatch.setenv(f"{name}_BASE_URL", f"{server.url}/v1" if name == "OPENAI" else server.url)
        yield server


@pytest.fixture
def retries() -> RetryClock:
    """The waits of the model under test."""
    return RetryClock()


@pytest.fixture
def create(server: FakeProvider, retries: RetryClock) -> Callable[..., Hosted]:
    """Create a model by API or by name."""

    def create_model(api: str = "chat", **limits: float) -> Hosted:
        return Hosted(NAMES.get(api, api), retries.policy(**limits))  # type: ignore[arg-type]

    return create_model
