"""How the user installs an optional part of this package."""

import shlex
import sys
from pathlib import Path

CHECKOUT = Path(__file__).parents[3]


def install_command(extra: str) -> str:
    """The command that installs an extra: of the checkout that this code runs from, or from an index."""
    if (CHECKOUT / "pyproject.toml").is_file() and (CHECKOUT / "src" / "mlagentbench").is_dir():
        return f"{shlex.quote(sys.executable)} -m pip install -e {shlex.quote(f'{CHECKOUT}[{extra}]')}"
    return f"pip install 'mlagentbench[{extra}]'"
