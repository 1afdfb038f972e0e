"""Runtimes are installed with uv or pip, with the same result."""

import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest

from mlagentbench.errors import SandboxFault
from mlagentbench.runtimes import install
from mlagentbench.runtimes.install import install_packages, read_pip_settings, uv_environment, uv_options

pytest.importorskip("uv")
Install = Callable[[], list[str]]


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a package, which is the only source of packages."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    with zipfile.ZipFile(folder / "tiny-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("tiny.py", "ANSWER = 42\n")
        wheel.writestr("tests/check_tiny.py", "ANSWER = 42\n")
        wheel.writestr("tiny-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
        tags = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        wheel.writestr("tiny-1.0.dist-info/WHEEL", tags)
        wheel.writestr("tiny-1.0.dist-info/RECORD", "")
    for name in [name for name in os.environ if name.startswith(("PIP_", "UV_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv-cache"))
    return folder


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "target"


@pytest.fixture
def install_locked(wheels: Path, target: Path, tmp_path: Path) -> Install:
    """Installs the package by its hash, and returns the progress lines."""
    digest = sha256((wheels / "tiny-1.0-py3-none-any.whl").read_bytes()).hexdigest()
    (tmp_path / "lock.txt").write_text(f"tiny==1.0 --hash=sha256:{digest}\n")
    arguments = ["--require-hashes", "--no-deps", "--only-binary", ":all:", "-r", str(tmp_path / "lock.txt")]

    def run() -> list[str]:
        lines: list[str] = []
        install_packages("small", arguments, target, lines.append)
        return lines

    return run


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        (["Collecting a", "ERROR: No matching distribution"], "ERROR: No matching distribution"),
        (["ERROR: Exception:", "Traceback", "ValueError: odd"], "ValueError: odd"),
        ([], "no output"),
    ],
)
def test_the_reason_of_a_failed_installation_is_the_line_that_says_it(output: list[str], reason: str) -> None:
    assert install._find_reason(output) == reason


def test_a_full_disk_is_named(wheels: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    program = (
        "from pathlib import Path\nfrom mlagentbench.runtimes.install import install_packages\n"
        f"install_packages('small', ['tiny==1.0'], Path({str(cache / 'target')!r}), print)"
    )
    with zipfile.ZipFile(wheels / "tiny-1.0-py3-none-any.whl", "a") as wheel:
        wheel.writestr("large.bin", os.urandom(4 << 20))
    small_disk = ["bwrap", "--dev-bind", "/", "/", "--size", str(1 << 20), "--tmpfs", str(cache)]
    environment = {**os.environ, "MLAGENTBENCH_HOME": str(cache)}
    done = subprocess.run(
        [*small_disk, sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    assert f"Cannot build the runtime small: the disk is full: 0.0 GB are free in {cache}." in done.stderr


def used_uv(lines: list[str]) -> bool:
    return any(line.startswith("  resolved 1 package") for line in lines)


def test_locked_packages_are_installed_with_uv_and_compiled(install_locked: Install, target: Path) -> None:
    umask = os.umask(0o077)
    try:
        assert used_uv(install_locked())
    finally:
        os.umask(umask)
    assert (target / "tiny.py").read_text() == "ANSWER = 42\n"
    assert list(target.glob("__pycache__/tiny.*.pyc")) and not (target / ".lock").exists()
    assert not list(target.glob("tests/__pycache__"))  # nobody imports the tests of packages
    for path in (target, *target.rglob("*")):
        assert path.stat().st_mode & 0o044 == 0o044, path
        assert path.is_dir() or path.stat().st_nlink == 1, path  # nothing is shared with the cache of uv


def test_without_uv_packages_are_installed_with_pip(
    install_locked: Install, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(install, "find_spec", lambda name: None)
    assert not used_uv(install_locked())
    assert (target / "tiny.py").read_text() == "ANSWER = 42\n"


def test_with_a_setting_that_uv_lacks_packages_are_installed_with_pip(
    install_locked: Install, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_TRUSTED_HOST", "packages.example.org")
    assert read_pip_settings() is None
    assert not used_uv(install_locked()) and (target / "tiny.py").exists()


def test_a_file_with_another_hash_is_not_installed(
    install_locked: Install, wheels: Path, target: Path
) -> None:
    with zipfile.ZipFile(wheels / "tiny-1.0-py3-none-any.whl", "a") as wheel:
        wheel.writestr("more.py", "")
    with pytest.raises(SandboxFault, match=r"Cannot build the runtime small: ERROR: .*HASHES"):
        install_locked()
    assert not (target / "tiny.py").exists()


def test_settings_of_pip_are_translated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    config = tmp_path / "pip.conf"
    config.write_text(
        "[global]\nindex-url = https://user:secret@one.example.org/simple\ntimeout = 9\n"
        "find-links = /wheels\n    /more\n[install]\nno-index = false\n[download]\ntrusted-host = x\n"
    )
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", str(config))
    monkeypatch.setenv(
        "PIP_EXTRA_INDEX_URL", "https://two.example.org/simple https://three.example.org/simple"
    )
    monkeypatch.setenv("PIP_CERT", "/certificates.pem")
    monkeypatch.setenv("UV_INDEX", "https://other.example.org/simple")
    settings = read_pip_settings()
    assert settings is not None
    assert [word for word in uv_options(settings) if word.startswith("/")] == ["/wheels", "/more"]
    assert "--no-index" not in uv_options(settings) and "secret" not in " ".join(uv_options(settings))
    environment = uv_environment(settings)
    assert environment["UV_DEFAULT_INDEX"] == "https://user:secret@one.example.org/simple"
    assert environment["UV_EXTRA_INDEX_URL"].split()[1] == "https://three.example.org/simple"
    assert environment["SSL_CERT_FILE"] == "/certificates.pem" and "UV_INDEX" not in environment
