"""What engines are told, and what people are told who have none."""

from dataclasses import replace
from pathlib import Path

import pytest

from mlagentbench.errors import UsageError
from mlagentbench.sandbox.base import SandboxSpec
from mlagentbench.sandbox.container_options import engine_options
from mlagentbench.sandbox.selection import create_sandbox


def told(box: SandboxSpec, engine: str, gpus: str = "", hosts_own: bool = True) -> list[str]:
    return [*engine_options(box, Path("/door"), engine, gpus, hosts_own)]


@pytest.mark.parametrize("engine", ["podman", "docker"])
def test_every_engine_is_told_to_take_all_rights_away(engine: str, box: SandboxSpec) -> None:
    said = " ".join(told(box, engine))
    for words in (
        "--read-only ",
        "--network none",
        "--cap-drop all",
        "no-new-privileges",
        "--ipc private",
        "--rm",
    ):
        assert words in said
    assert "seccomp=unconfined" not in said and "--privileged" not in said
    assert f"source={box.workspace},destination=/workspace " in f"{said} "
    assert f"source={box.runtime.folder},destination=/opt/runtime,ro=true" in said


def test_docker_is_told_nothing_that_only_podman_knows(box: SandboxSpec) -> None:
    said = " ".join(told(box, "docker"))
    assert not [word for word in ("read-only-tmpfs", "no-hosts", "notmpcopyup", "keep-id") if word in said]


def test_gpus_are_named_as_cdi_names_them(box: SandboxSpec) -> None:
    assert not [word for word in told(box, "podman") if "nvidia" in word]
    assert [word for word in told(box, "podman", "0, 2") if "nvidia" in word] == [
        "nvidia.com/gpu=0",
        "nvidia.com/gpu=2",
    ]
    assert "nvidia.com/gpu=all" in told(box, "docker", "all")


def test_an_image_keeps_its_own_programs(box: SandboxSpec) -> None:
    assert not [word for word in told(box, "podman", hosts_own=False) if "source=/usr" in word]
    assert not [word for word in told(box, "podman", hosts_own=False) if word.startswith("/usr/")]


def test_a_workspace_that_may_only_be_read_is_mounted_once(box: SandboxSpec) -> None:
    said = [
        word for word in told(replace(box, read_only_paths=(".", "data/a.csv")), "podman") if "/workspace" in word
    ]
    assert [word.partition("destination=")[2] for word in said] == [
        "/workspace,ro=true",
        "/workspace/data",
        "/workspace/data/a.csv,ro=true",
    ]


def test_commas_and_quotes_in_names_are_no_further_options(box: SandboxSpec) -> None:
    strange = Path('/a,ro=false,"b')
    assert '"source=/a,ro=false,""b"' in " ".join(told(replace(box, workspace=strange), "podman"))


@pytest.mark.parametrize("engine", ["podman", "docker"])
def test_without_the_engine_one_sentence_says_so(
    engine: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match=f"{engine} is not installed on this machine. Install it"):
        create_sandbox(f"{engine}:some/image")


def test_docker_takes_no_folder_as_a_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, box: SandboxSpec
) -> None:
    (tmp_path / "docker").write_text("#!/bin/sh\n")
    (tmp_path / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(UsageError, match="import it as an image"):
        create_sandbox("docker:/srv/root").start(["true"], box)
