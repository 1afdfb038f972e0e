"""The command that installs an extra works where the user is: in a checkout, or with an installed package."""

import subprocess
import sys
from pathlib import Path

from mlagentbench.system import extras


def test_in_a_checkout_the_command_installs_from_the_checkout() -> None:
    root = Path(__file__).parents[2]
    assert extras.install_command("gym") == f"{sys.executable} -m pip install -e '{root}[gym]'"


def test_the_command_is_accepted_by_pip() -> None:
    command = f"{extras.install_command('gym')} --dry-run --no-deps --no-build-isolation --no-index -q"
    completed = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert completed.returncode == 0, completed.stderr


def test_an_installed_package_is_extended_from_an_index(tmp_path: Path) -> None:
    copy = tmp_path / "lib" / "python3" / "site-packages" / "mlagentbench" / "system" / "extras.py"
    copy.parent.mkdir(parents=True)
    copy.write_text(Path(extras.__file__).read_text())
    program = f"import runpy; print(runpy.run_path({str(copy)!r})['install_command']('gym'))"
    printed = subprocess.check_output([sys.executable, "-c", program], text=True)
    assert printed == "pip install 'mlagentbench[gym]'\n"
