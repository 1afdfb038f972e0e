import os
from pathlib import Path

import pytest

from mlagentbench.grading.sources import forbidden_imports, numbers_above


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "submission"
    place.mkdir()
    return place


def test_forbidden_imports_are_found_in_every_module_that_is_imported(folder: Path) -> None:
    (folder / "pack").mkdir()
    (folder / "pack" / "__init__.py").write_text("from . import inner\nfrom .inner import deep\n")
    (folder / "pack" / "inner.py").write_text("def deep():\n    from scipy.signal import convolve\n")
    (folder / "beside.py").write_text("import code, numba as numpy\n")
    (folder / "unused.py").write_text("import torch\n")
    (folder / "code.py").write_text("import numpy as np, os.path\nimport beside\nfrom pack import inner\n")
    assert sorted(forbidden_imports(folder, "code.py", ("scipy", "numba", "torch"))) == [
        "beside.py line 1 imports numba",
        "pack/inner.py line 2 imports scipy.signal.convolve",
    ]


def test_looking_for_imports_follows_no_link_and_survives_any_file(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "secret.py").write_text("import torch\n")
    (folder / "code.py").symlink_to(tmp_path / "secret.py")
    (folder / "a.py").symlink_to("/dev/zero")
    (folder / "b.py").write_bytes(b"\0\xff" * 100)
    (folder / "c.py").write_text("(" * 100_000)
    (folder / "d.py").write_text("x = " + "-" * 100_000 + "1")
    (folder / "e.py").write_text("import torch\n" + "#" * (1 << 21))
    os.mkfifo(folder / "f.py")
    (folder / "g.py").mkdir()
    unseen = {
        "code": "code.py cannot be looked at: it is reached through a link",
        "a": "a.py cannot be looked at: it is reached through a link",
        "d": "d.py cannot be looked at: it is nested too deep",
        "e": "e.py cannot be looked at: it is longer than 1,048,576 bytes",
    }
    for name in ("code", *"abcdefgh"):
        expected = [unseen[name]] if name in unseen else []
        assert forbidden_imports(folder, f"{name}.py", ("torch",)) == expected
        assert numbers_above(folder, f"{name}.py", ".", 0) == expected


@pytest.mark.parametrize(
    "source",
    ["import " + "a" * 300, "import " + ".".join("a" * 5000), "epochs = " + "+".join("1" * 2500), "x = 1" + "0" * 400],
    ids=["a long name", "a long path", "a long sum", "a large number"],
)
def test_no_source_makes_the_search_fail(folder: Path, source: str) -> None:
    (folder / "train.py").write_text(f"{source}\nimport torch\n")
    assert forbidden_imports(folder, "train.py", ("torch",)) == ["train.py line 2 imports torch"]
    assert numbers_above(folder, "train.py", "epoch", 10) == []


def test_a_number_too_large_for_a_computer_is_over_any_limit(folder: Path) -> None:
    (folder / "train.py").write_text("epochs = 1" + "0" * 400)
    assert len(numbers_above(folder, "train.py", "epoch", 10)) == 1


OVER = {
    "a constant": "EPOCHS = 20",
    "with a type": "epochs: int = 20",
    "one of several": "lr, n_epochs = 0.1, 20",
    "an attribute": "config.epochs = 20",
    "an argument": "fit(model, epochs=20)",
    "a product": "EPOCHS = 4 * 5",
    "a loop": "for epoch in range(20): pass",
    "a loop from somewhere": "for epoch in range(1, 21): pass",
    "on the way": "if (epochs := 20): pass",
    "in a dictionary of keywords": "config = dict(max_epochs=20)",
}


@pytest.mark.parametrize("source", OVER.values(), ids=OVER.keys())
def test_a_number_over_the_limit_is_found_however_it_gets_its_name(folder: Path, source: str) -> None:
    (folder / "train.py").write_text(f"import other\n{source}\n")
    (found,) = numbers_above(folder, "train.py", "epoch", 10)
    assert found.startswith("train.py line 2 sets ") and found.endswith("to 20; at most 10 is allowed")


@pytest.mark.parametrize(
    "source",
    ["EPOCHS = 10", "for epoch in range(1, 11): pass", "BATCH = 64", "epochs = count()", "epochs = True", "f(*epochs)"],
)
def test_what_is_within_the_limit_or_of_another_name_is_not_found(folder: Path, source: str) -> None:
    (folder / "train.py").write_text(source)
    assert numbers_above(folder, "train.py", "epoch", 10) == []


def test_numbers_are_also_looked_for_in_the_modules_beside(folder: Path) -> None:
    (folder / "train.py").write_text("from settings import *\n")
    (folder / "settings.py").write_text("EPOCHS = 50\n")
    assert numbers_above(folder, "train.py", "epoch", 10) == [
        "settings.py line 1 sets EPOCHS to 50; at most 10 is allowed"
    ]


def test_more_scripts_than_can_be_looked_at_in_time_are_told_of(folder: Path) -> None:
    (folder / "train.py").write_text("import a, b, c\n")
    for name in "abc":
        (folder / f"{name}.py").write_text("EPOCHS = 50\n#" + "x" * 900_000)
    assert numbers_above(folder, "train.py", "epoch", 10) == [
        "c.py line 1 sets EPOCHS to 50; at most 10 is allowed",
        "b.py line 1 sets EPOCHS to 50; at most 10 is allowed",
        "a.py cannot be looked at: it and what was looked at before are over 2,097,152 bytes",
    ]
