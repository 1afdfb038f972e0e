"""The short form of fuzzing: the same cases every time. The long form is `make fuzz`."""

import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from types import ModuleType

import pytest
from fuzzing import Defect, fuzz, load, names


@pytest.mark.parametrize("name", names())
def test_no_case_is_a_crash_a_hang_or_a_flood_of_memory(name: str, tmp_path: Path) -> None:
    target = load(name)
    found = fuzz(target, tmp_path, seed=0, first=0, count=target.SHORT)
    assert found.cases >= target.SHORT and found.megabytes < 500


def test_all_targets_together_take_all_cases_of_the_long_form() -> None:
    assert sum(load(name).WEIGHT for name in names()) == 1000


def target_of(attempt: Callable[[int, Path], None]) -> ModuleType:
    target = ModuleType("made")
    target.RAISES, target.make, target.attempt = (KeyError,), lambda random: random.randrange(100), attempt  # type: ignore[attr-defined]
    return target


def spin(case: int, room: Path) -> None:
    while True:
        pass


def grow(case: int, room: Path) -> None:
    bytearray(8 << 30)


def swallow(case: int, room: Path) -> None:
    with suppress(Exception):
        spin(case, room)


def crash(case: int, room: Path) -> None:
    raise ValueError("odd")


@pytest.mark.parametrize(
    ("attempt", "told"),
    [
        (crash, "ValueError: odd"),
        (spin, "Slow: more than"),
        (swallow, "Slow: more than"),
        (grow, "MemoryError"),
    ],
)
def test_a_target_that_misbehaves_is_told_with_the_case_and_how_to_repeat_it(
    attempt: Callable[[int, Path], None], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fuzzing.COMPUTING", 0.2)
    with pytest.raises(Defect, match=told) as caught:
        fuzz(target_of(attempt), tmp_path, seed=7, first=40, count=9)
    assert f"the case: {Random('7/40').randrange(100)}\n" in str(caught.value)
    assert "--only made --seed 7 --first 40 --cases 1" in str(caught.value)


def test_a_declared_error_is_no_defect_and_every_case_is_counted(tmp_path: Path) -> None:
    def refuse(case: int, room: Path) -> None:
        raise KeyError(case)

    assert fuzz(target_of(refuse), tmp_path, seed=7, first=0, count=9).cases == 9


def test_the_long_form_goes_on_after_a_target_that_died_and_says_at_which_case(tmp_path: Path) -> None:
    here = Path(__file__).parent
    for path in ("__main__.py", "fuzzing.py"):
        (tmp_path / path).write_text((here / path).read_text())
    (tmp_path / "targets").mkdir()
    about = "RAISES, WEIGHT, SHORT = (), 500, 1\ndef make(random): return 0\n"
    (tmp_path / "targets" / "dies.py").write_text(
        f"import os\n{about}def attempt(case, room):\n    if (room / 'at').read_text().strip() == '5': os.abort()\n"
    )
    (tmp_path / "targets" / "lives.py").write_text(f"{about}def attempt(case, room): pass\n")
    done = subprocess.run(
        [sys.executable, tmp_path, "--total", "20", "--seed", "3"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (
        done.returncode == 1 and f"dies         FAILED at case 5 (exit code {-signal.SIGABRT})" in done.stdout
    )
    assert [line.split()[:2] for line in done.stdout.splitlines()[-2:]] == [["lives", "10"], ["all", "10"]]
