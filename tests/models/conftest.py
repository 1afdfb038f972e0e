"""Hosted models whose provider is a server on the loopback."""

from collections.abc import Callable, Iterator

import pytest
from waiting import KEY, NAMES, Waits
from wire import Wire

from mlagentbench.models.hosted import Hosted
from mlagentbench.providers.names import COMPATIBLE, PROVIDERS


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody's keys, addresses and proxies."""
    for provider in PROVIDERS.values():
        for name in (*provider.keys, provider.address, COMPATIBLE):
            if name:
                monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch) -> Iterator[Wire]:
    """The server, to which the usual providers now lead."""
    with Wire(key=KEY) as server:
        for name in ("OPENAI", "ANTHROPIC", "GROQ"):
            monkeypatch.setenv(f"{name}_API_KEY", KEY)
            monkeypatch.setenv(f"{name}_BASE_URL", f"{server.url}/v1" if name == "OPENAI" else server.url)
        yield server


@pytest.fixture
def waits() -> Waits:
    """What the model waited."""
    return Waits()


@pytest.fixture
def ask(wire: Wire, waits: Waits) -> Callable[..., Hosted]:
    """A model by the API that it speaks."""

    def make(api: str = "chat", **limits: float) -> Hosted:
        return Hosted(NAMES.get(api, api), waits.patience(**limits))  # type: ignore[arg-type]

    return make
