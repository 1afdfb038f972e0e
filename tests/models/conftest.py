"""Hosted models whose provider is a server on the loopback."""

from collections.abc import Callable, Iterator

import pytest
from fake_provider import FakeProvider
from waiting import KEY, NAMES, Waits

from mlagentbench.models.hosted import Hosted
from mlagentbench.providers.names import COMPATIBLE_KEY_VARIABLE, PROVIDERS


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody's keys, addresses and proxies."""
    for provider in PROVIDERS.values():
        for name in (*provider.key_variables, provider.base_url_variable, COMPATIBLE_KEY_VARIABLE):
            if name:
                monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeProvider]:
    """The server, to which the usual providers now lead."""
    with FakeProvider(key=KEY) as server:
        for name in ("OPENAI", "ANTHROPIC", "GROQ"):
            monkeypatch.setenv(f"{name}_API_KEY", KEY)
            monkeypatch.setenv(f"{name}_BASE_URL", f"{server.url}/v1" if name == "OPENAI" else server.url)
        yield server


@pytest.fixture
def waits() -> Waits:
    """What the model waited."""
    return Waits()


@pytest.fixture
def ask(wire: FakeProvider, waits: Waits) -> Callable[..., Hosted]:
    """A model by the API that it speaks."""

    def make(api: str = "chat", **limits: float) -> Hosted:
        return Hosted(NAMES.get(api, api), waits.patience(**limits))  # type: ignore[arg-type]

    return make
