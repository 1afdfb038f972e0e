"""Commands in this process, where no real process is needed."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from mlagentbench.cli import app
from mlagentbench.runner.setup import Setup
from mlagentbench.runner.start import start_run


@pytest.fixture
def call(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """Runs a command; returns its exit code, standard output and standard error."""

    def run_command(*args: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["mlagentbench", *map(str, args)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as caught:
            app.main()
        out, err = capsys.readouterr()
        return int(caught.value.code or 0), out, err

    return run_command


@pytest.fixture
def usage_error(call: Callable[..., tuple[int, str, str]]) -> Callable[..., str]:
    """Runs a command that must fail with exit code 2 and one line on standard error; returns that line."""

    def run_wrong_command(*args: object) -> str:
        code, out, err = call(*args)
        assert (code, out) == (2, "")
        assert err.startswith("mlagentbench: ") and err.count("\n") == 1, err
        return err

    return run_wrong_command


@pytest.fixture(scope="session")
def finished_run(setup: Setup, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of the tuner that no test changes."""
    folder = tmp_path_factory.mktemp("finished") / "a [bold] run[/]"
    assert start_run(setup, "tuner", folder, limits={"steps": 8}).score
    return folder
