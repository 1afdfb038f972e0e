import os
import zipfile
from pathlib import Path

import pytest

from mlagentbench.errors import SandboxFault, UsageError
from mlagentbench.runtimes import base
from mlagentbench.runtimes.base import ensure_runtime, find_runtime, read_requirements, runtime_names


@pytest.fixture
def requirements_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with one small runtime, whose only package is in a local wheel folder."""
    folder = tmp_path / "requirements"
    folder.mkdir()
    with zipfile.ZipFile(tmp_path / "tiny-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("tiny.py", "ANSWER = 42\n")
        wheel.writestr("tiny-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
        wheel.writestr(
            "tiny-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr("tiny-1.0.dist-info/RECORD", "")
    (folder / "small.txt").write_text("# A small runtime.\ntiny==1.0\n")
    monkeypatch.setattr(base, "REQUIREMENTS_FOLDER", folder)
    monkeypatch.setenv("MLAGENTBENCH_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    return folder


@pytest.mark.parametrize("name", runtime_names())
def test_every_package_of_every_runtime_is_pinned(name: str) -> None:
    assert all(line.count("==") == 1 and " " not in line for line in read_requirements(name))
    assert len({line.split("==")[0] for line in read_requirements(name)}) == len(read_requirements(name))


def test_torch_includes_all_of_tabular() -> None:
    assert set(read_requirements("tabular")) < set(read_requirements("torch"))
    assert find_runtime("tabular").hash != find_runtime("torch").hash


def test_an_unknown_runtime_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match=r"No such runtime: 'jax'\. Available: grading, tabular"):
        find_runtime("jax")


def test_a_runtime_is_built_once_per_content(requirements_folder: Path) -> None:
    progress: list[str] = []
    built = ensure_runtime("small", progress.append)
    assert (built.packages / "tiny.py").read_text() == "ANSWER = 42\n" and progress
    progress.clear()
    assert ensure_runtime("small", progress.append) == built and not progress
    (requirements_folder / "small.txt").write_text("tiny==1.0\n# only the comment has changed\n")
    assert find_runtime("small") == built
    (requirements_folder / "small.txt").write_text("tiny==2.0\n")
    assert find_runtime("small").hash != built.hash and not find_runtime("small").is_built


def test_a_failed_build_gives_a_reason_and_leaves_nothing(requirements_folder: Path) -> None:
    (requirements_folder / "small.txt").write_text("tiny==3.0\n")
    with pytest.raises(SandboxFault, match=r"Cannot build the runtime small: ERROR: .*tiny==3\.0"):
        ensure_runtime("small", lambda line: None)
    left = [
        path.name for path in find_runtime("small").folder.parent.iterdir() if not path.name.endswith(".lock")
    ]
    assert not left and not find_runtime("small").is_built


def test_the_user_inside_the_sandbox_can_read_a_runtime_whatever_the_umask(requirements_folder: Path) -> None:
    before = os.umask(0o077)
    try:
        built = ensure_runtime("small", lambda line: None)
    finally:
        os.umask(before)
    for path in (built.folder, *built.folder.rglob("*")):
        if not path.is_symlink():
            assert path.stat().st_mode & 0o044 == 0o044, path
