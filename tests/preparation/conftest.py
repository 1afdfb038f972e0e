"""A cache folder for every test, and servers that stop with it."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from loopback import Request, Serve, Server

from mlagentbench.preparation import download

CREDENTIAL_VARIABLES = (
    "KAGGLE_USERNAME",
    "KAGGLE_KEY",
    "KAGGLE_API_TOKEN",
    "KAGGLE_CONFIG_DIR",
    "HF_TOKEN",
    "HF_ENDPOINT",
)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache folder of this test, without credentials or proxies of the user."""
    for name in (*CREDENTIAL_VARIABLES, "MLAGENTBENCH_KAGGLE_URL", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setenv("MLAGENTBENCH_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(download, "INITIAL_RETRY_DELAY_S", 0.01)
    return tmp_path / "home"


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Starts servers, and stops them after the test."""
    servers: list[Server] = []

    def start(answer: Callable[[Request], None]) -> Server:
        servers.append(Server(answer))
        threading.Thread(target=servers[-1].serve_forever, args=(0.01,), daemon=True).start()
        return servers[-1]

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture
def progress() -> list[str]:
    """The progress messages."""
    return []
