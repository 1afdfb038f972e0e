"""The options given to container engines, and the messages if there is no engine."""

from dataclasses import replace
from pathlib import Path

import pytest

from mlagentbench.errors import UsageError
from mlagentbench.sandbox.base import SandboxSpec
from mlagentbench.sandbox.container_options import engine_options
from mlagentbench.sandbox.selection import create_sandbox


def list_options(spec: SandboxSpec, engine: str, gpus: str = "", use_host_programs: bool = True) -> list[str]:
    return [*engine_options(spec, Path("/control"), engine, gpus, use_host_programs)]


@pytest.mark.parametrize("engine", ["podman", "docker"])
def test_every_engine_drops_all_privileges(engine: str, spec: SandboxSpec) -> None:
    options = " ".join(list_options(spec, engine))
    for text in (
        "--read-only ",
        "--network none",
        "--cap-drop all",
        "no-new-privileges",
        "--ipc private",
        "--rm",
    ):
        assert text in options
    assert "seccomp=unconfined" not in options and "--privileged" not in options
    assert f"source={spec.workspace},destination=/workspace " in f"{options} "
    assert f"source={spec.runtime.folder},destination=/opt/runtime,ro=true" in options


def test_docker_gets_no_option_that_only_podman_has(spec: SandboxSpec) -> None:
    options = " ".join(list_options(spec, "docker"))
    assert not [
        option for option in ("read-only-tmpfs", "no-hosts", "notmpcopyup", "keep-id") if option in options
    ]


def test_gpus_are_passed_by_their_cdi_names(spec: SandboxSpec) -> None:
    assert not [option for option in list_options(spec, "podman") if "nvidia" in option]
    assert [option for option in list_options(spec, "podman", "0, 2") if "nvidia" in option] == [
        "nvidia.com/gpu=0",
        "nvidia.com/gpu=2",
    ]
    assert "nvidia.com/gpu=all" in list_options(spec, "docker", "all")


def test_an_image_keeps_its_own_programs(spec: SandboxSpec) -> None:
    assert not [
        option for option in list_options(spec, "podman", use_host_programs=False) if "source=/usr" in option
    ]
    assert not [
        option
        for option in list_options(spec, "podman", use_host_programs=False)
        if option.startswith("/usr/")
    ]


def test_a_read_only_workspace_is_mounted_once(spec: SandboxSpec) -> None:
    options = [
        option
        for option in list_options(replace(spec, read_only_paths=(".", "data/a.csv")), "podman")
        if "/workspace" in option
    ]
    assert [option.partition("destination=")[2] for option in options] == [
        "/workspace,ro=true",
        "/workspace/data",
        "/workspace/data/a.csv,ro=true",
    ]


def test_commas_and_quotes_in_paths_cannot_add_options(spec: SandboxSpec) -> None:
    strange = Path('/a,ro=false,"b')
    assert '"source=/a,ro=false,""b"' in " ".join(list_options(replace(spec, workspace=strange), "podman"))


@pytest.mark.parametrize("engine", ["podman", "docker"])
def test_without_the_engine_the_message_says_so(
    engine: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match=f"{engine} is not installed on this machine. Install it"):
        create_sandbox(f"{engine}:some/image")


def test_docker_cannot_use_a_folder_as_a_root_file_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spec: SandboxSpec
) -> None:
    (tmp_path / "docker").write_text("#!/bin/sh\n")
    (tmp_path / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(UsageError, match="import it as an image"):
        create_sandbox("docker:/srv/root").start(["true"], spec)
