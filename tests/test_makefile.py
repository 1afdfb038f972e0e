"""The Makefile says what to install where it cannot do so itself."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("target", ["bubblewrap", "chromium"])
def test_without_apt_or_sudo_make_says_what_to_install(tmp_path: Path, target: str) -> None:
    for program in ("bash", "id", "nproc"):
        (tmp_path / program).symlink_to(str(shutil.which(program)))
    make = shutil.which("make")
    assert make
    done = subprocess.run(
        [make, target], cwd=ROOT, env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert f"make: {target} is missing. Install it and run make again" in done.stderr
    assert "not found" not in done.stderr
