import marshal
import os
import time
import zipfile
from importlib.util import MAGIC_NUMBER
from pathlib import Path

import pytest

from mlagentbench.grading.script_rules import forbidden_imports, numbers_above


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "submission"
    path.mkdir()
    return path


def test_forbidden_imports_are_found_in_every_imported_module(folder: Path) -> None:
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


def test_the_check_follows_no_link_and_survives_any_file(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "secret.py").write_text("import torch\n")
    (folder / "code.py").symlink_to(tmp_path / "secret.py")
    (folder / "a.py").symlink_to("/dev/zero")
    (folder / "b.py").write_bytes(b"\0\xff" * 100)
    (folder / "c.py").write_text("(" * 100_000)
    (folder / "d.py").write_text("x = " + "-" * 100_000 + "1")
    (folder / "e.py").write_text("import torch\n" + "#" * (1 << 21))
    os.mkfifo(folder / "f.py")
    (folder / "g.py").mkdir()
    unchecked = {
        "code": "code.py cannot be checked: it is reached through a link",
        "a": "a.py cannot be checked: it is reached through a link",
        "d": "d.py cannot be checked: it is nested too deeply",
        "e": "e.py cannot be checked: it is longer than 1,048,576 bytes",
    }
    for name in ("code", *"abcdefgh"):
        expected = [unchecked[name]] if name in unchecked else []
        assert forbidden_imports(folder, f"{name}.py", ("torch",)) == expected
        assert numbers_above(folder, f"{name}.py", ".", 0) == expected


@pytest.mark.parametrize(
    "source",
    [
        "import " + "a" * 300,
        "import " + ".".join("a" * 5000),
        "epochs = " + "+".join("1" * 2500),
        "x = 1" + "0" * 400,
    ],
    ids=["long name", "long module path", "long sum", "large number"],
)
def test_no_source_makes_the_check_fail(folder: Path, source: str) -> None:
    (folder / "train.py").write_text(f"{source}\nimport torch\n")
    assert forbidden_imports(folder, "train.py", ("torch",)) == ["train.py line 2 imports torch"]
    assert numbers_above(folder, "train.py", "epoch", 10) == []


def test_a_number_too_large_for_a_float_is_above_any_limit(folder: Path) -> None:
    (folder / "train.py").write_text("epochs = 1" + "0" * 400)
    assert len(numbers_above(folder, "train.py", "epoch", 10)) == 1


ABOVE_LIMIT = {
    "constant": "EPOCHS = 20",
    "annotated": "epochs: int = 20",
    "tuple": "lr, n_epochs = 0.1, 20",
    "attribute": "config.epochs = 20",
    "keyword argument": "fit(model, epochs=20)",
    "product": "EPOCHS = 4 * 5",
    "loop": "for epoch in range(20): pass",
    "loop with a start": "for epoch in range(1, 21): pass",
    "assignment expression": "if (epochs := 20): pass",
    "dict call": "config = dict(max_epochs=20)",
    "dict literal": "config = {'lr': 0.1, 'epochs': 20}",
    "subscript": "config['epochs'] = 20",
    "parameter default": "def train(lr, epochs=20, *, other=1): pass",
    "keyword-only default": "def train(*, lr=0.1, epochs=20): pass",
    "list": "[lr, epochs] = [0.1, 20]",
    "command-line option": "parser.add_argument('-e', '--num-epochs', type=int, default=20)",
    "loop with a progress bar": "for epoch in tqdm.tqdm(range(20), desc='training'): pass",
    "loop backwards": "for epoch in range(20, 0, -1): pass",
    "loop with a step": "for epoch in range(0, 39, 2): pass",
    "comprehension": "losses = [fit() for epoch in range(20)]",
    "power": "epochs = 2 ** 4 + 40 // 10",
}


@pytest.mark.parametrize("source", ABOVE_LIMIT.values(), ids=ABOVE_LIMIT.keys())
def test_a_number_above_the_limit_is_found_however_it_is_named(folder: Path, source: str) -> None:
    (folder / "train.py").write_text(f"import other\n{source}\n")
    (found,) = numbers_above(folder, "train.py", "epoch", 10)
    assert found.startswith("train.py line 2 sets ") and found.endswith("to 20; at most 10 is allowed")


@pytest.mark.parametrize(
    "source",
    [
        *(
            "EPOCHS = 10",
            "for epoch in range(1, 11): pass",
            "BATCH = 64",
            "epochs = count()",
            "epochs = True",
        ),
        *(
            "f(*epochs)",
            "for epoch in range(5, 95, 10): pass",
            "for epoch in zip(100, x): pass",
            "epochs = {**x}",
        ),
        *(
            "epochs = 1 / 0",
            "epochs = (-8) ** 0.5 // 1",
            "for epoch in range(0, 1e999, 1e999): pass",
            "epochs = -20",
        ),
        *("{0x" + "f" * 5000 + ": 20}", "f(0x" + "f" * 5000 + ", default=20)", "for epoch in range(): pass"),
    ],
)
def test_a_number_within_the_limit_or_with_another_name_is_not_found(folder: Path, source: str) -> None:
    (folder / "train.py").write_text(source)
    assert numbers_above(folder, "train.py", "epoch", 10) == []


def test_numbers_in_imported_local_modules_are_found_too(folder: Path) -> None:
    (folder / "train.py").write_text("from settings import *\n")
    (folder / "settings.py").write_text("EPOCHS = 50\n")
    assert numbers_above(folder, "train.py", "epoch", 10) == [
        "settings.py line 1 sets EPOCHS to 50; at most 10 is allowed"
    ]


def test_scripts_beyond_the_size_limit_are_reported(folder: Path) -> None:
    (folder / "train.py").write_text("import a, b, c\n")
    for name in "abc":
        (folder / f"{name}.py").write_text("EPOCHS = 50\n#" + "x" * 900_000)
    assert numbers_above(folder, "train.py", "epoch", 10) == [
        "c.py line 1 sets EPOCHS to 50; at most 10 is allowed",
        "b.py line 1 sets EPOCHS to 50; at most 10 is allowed",
        "a.py cannot be checked: it and the files checked before it exceed 2,097,152 bytes",
    ]


def test_a_script_that_runs_but_is_not_text_is_reported(folder: Path) -> None:
    with zipfile.ZipFile(folder / "packed.py", "w") as archive:
        archive.writestr("__main__.py", "import torch\n")
    (folder / "made.py").write_bytes(
        MAGIC_NUMBER + bytes(12) + marshal.dumps(compile("import torch", "x", "exec"))
    )
    for name in ("packed", "made"):
        expected = [f"{name}.py cannot be checked: it is compiled"]
        assert forbidden_imports(folder, f"{name}.py", ("torch",)) == expected


COMPILED = {
    "bytecode": "helper.pyc",
    "extension module": "helper.cpython-311-x86_64-linux-gnu.so",
    "extension module of a package": "helper/__init__.so",
    "bytecode in a package": "helper/inner.pyc",
}


@pytest.mark.parametrize("name", COMPILED.values(), ids=COMPILED.keys())
def test_a_module_that_exists_only_compiled_is_reported(folder: Path, name: str) -> None:
    (folder / "train.py").write_text("from helper import inner\n")
    (folder / "helper").mkdir()
    (folder / name).touch()
    assert numbers_above(folder, "train.py", "epoch", 10) == [f"{name} cannot be checked: it is compiled"]


def test_cached_bytecode_that_python_would_run_instead_of_a_module_is_reported(folder: Path) -> None:
    (folder / "train.py").write_text("import helper\n")
    (folder / "helper.py").touch()
    (folder / "helper.pyc").touch()  # Python ignores it
    assert forbidden_imports(folder, "train.py", ("torch",)) == []
    (folder / "__pycache__").mkdir()
    (folder / "__pycache__" / "helper.cpython-311.pyc").touch()
    found = ["__pycache__/helper.cpython-311.pyc cannot be checked: it is compiled"]
    assert forbidden_imports(folder, "train.py", ("torch",)) == found


def test_a_linked_folder_is_reported_and_not_followed(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "x.py").write_text("import torch\n")
    (folder / "pack").symlink_to(tmp_path / "secret")
    (folder / "train.py").write_text("import pack.x\n")
    found = ["pack cannot be checked: it is reached through a link"]
    assert forbidden_imports(folder, "train.py", ("torch",)) == found


def test_a_path_that_is_too_long_for_the_host_is_reported(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "train.py").write_text("import " + ".".join(["d" * 250] * 20))
    monkeypatch.chdir(folder)
    for _ in range(20):
        Path("d" * 250).mkdir()
        monkeypatch.chdir("d" * 250)
    (found,) = forbidden_imports(folder, "train.py", ("torch",))
    assert found == f"{'d' * 200} cannot be checked: File name too long"


SLOW = {
    "many names for one sum": "epoch=" * 10_000 + "+".join(["(" + "+".join("1" * 400) + ")"] * 60),
    "many names from a deep module": "from torch." + ".".join("a" * 9000) + " import " + ",".join("b" * 9000),
    "many imports of a deep package": "import " + ",".join([".".join("a" * 90)] * 2000),
    "many names from a deep package": "from " + ".".join("a" * 90) + " import " + ",".join("b" * 90_000),
}


@pytest.mark.parametrize("source", SLOW.values(), ids=SLOW.keys())
def test_what_is_named_many_times_is_checked_once(folder: Path, source: str) -> None:
    (folder / "train.py").write_text(source)
    (folder / "/".join("a" * 90)).mkdir(parents=True)
    started = time.process_time()
    forbidden_imports(folder, "train.py", ("torch",))
    numbers_above(folder, "train.py", "epoch", 10)
    assert time.process_time() - started < 5
