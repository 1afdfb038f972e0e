"""Installs the example of a documentation page as a package with an entry point."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mlagentbench.discovery import installed_plugins


@contextmanager
def installed_example(
    page: Path, package: str, module: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """Write the Python and the TOML block of `page` as an installed package below `folder`."""
    blocks = dict(re.findall(r"```(python|toml)\n(.*?)```", page.read_text(), re.DOTALL))
    code, metadata = folder / package, folder / f"{package}-1.0.dist-info"
    for path in (code, metadata):
        path.mkdir()
    (code / "__init__.py").touch()
    (code / f"{module}.py").write_text(blocks["python"])
    name = package.replace("_", "-")
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    group = re.sub(r'\[project\.entry-points\."(.+)"\]', r"[\1]", blocks["toml"])
    (metadata / "entry_points.txt").write_text(re.sub(r'"|\s*#.*', "", group))
    monkeypatch.syspath_prepend(str(folder))
    installed_plugins.cache_clear()
    yield
    installed_plugins.cache_clear()
