"""A short fuzzing run with the same cases every time; the long one is `make fuzz`."""

import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from types import ModuleType

import pytest
from fuzzing import Defect, fuzz, load_target, target_names


@pytest.mark.parametrize("name", target_names())
def test_no_case_crashes_hangs_or_uses_too_much_memory(name: str, tmp_path: Path) -> None:
    target = load_target(name)
    stats = fuzz(target, tmp_path, seed=0, first=0, count=target.SHORT_CASES)
    assert stats.cases >= target.SHORT_CASES and stats.peak_mb < 500


def test_the_shares_of_all_targets_add_up_to_the_long_run() -> None:
    assert sum(load_target(name).CASES_PER_1000 for name in target_names()) == 1000


def make_target(run_case: Callable[[int, Path], None]) -> ModuleType:
    target = ModuleType("example")
    vars(target).update(
        EXPECTED_ERRORS=(KeyError,), make_case=lambda random: random.randrange(100), run_case=run_case
    )
    return target


def spin(case: int, folder: Path) -> None:
    while True:
        pass


def grow(case: int, folder: Path) -> None:
    bytearray(8 << 30)


def swallow(case: int, folder: Path) -> None:
    with suppress(Exception):
        spin(case, folder)


def crash(case: int, folder: Path) -> None:
    raise ValueError("unexpected")


@pytest.mark.parametrize(
    ("run_case", "message"),
    [
        (crash, "ValueError: unexpected"),
        (spin, "CaseTimeout: more than"),
        (swallow, "CaseTimeout: more than"),
        (grow, "MemoryError"),
    ],
)
def test_a_failing_case_is_reported_with_the_command_that_repeats_it(
    run_case: Callable[[int, Path], None], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fuzzing.CPU_LIMIT_S", 0.2)
    with pytest.raises(Defect, match=message) as caught:
        fuzz(make_target(run_case), tmp_path, seed=7, first=40, count=9)
    assert f"Case: {Random('7/40').randrange(100)}\n" in str(caught.value)
    assert "--only example --seed 7 --first 40 --cases 1" in str(caught.value)


def test_an_expected_error_is_no_defect_and_every_case_is_counted(tmp_path: Path) -> None:
    def refuse(case: int, folder: Path) -> None:
        raise KeyError(case)

    assert fuzz(make_target(refuse), tmp_path, seed=7, first=0, count=9).cases == 9


def test_the_long_run_continues_after_a_crashed_target_and_reports_its_case(tmp_path: Path) -> None:
    here = Path(__file__).parent
    for path in ("__main__.py", "fuzzing.py"):
        (tmp_path / path).write_text((here / path).read_text())
    (tmp_path / "targets").mkdir()
    header = "EXPECTED_ERRORS, CASES_PER_1000, SHORT_CASES = (), 500, 1\ndef make_case(random): return 0\n"
    abort = "if (folder / 'at').read_text().strip() == '5': os.abort()"
    (tmp_path / "targets" / "crashes.py").write_text(
        f"import os\n{header}def run_case(case, folder):\n    {abort}\n"
    )
    (tmp_path / "targets" / "works.py").write_text(f"{header}def run_case(case, folder): pass\n")
    done = subprocess.run(
        [sys.executable, tmp_path, "--total", "20", "--seed", "3"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (
        done.returncode == 1 and f"crashes      FAILED at case 5 (exit code {-signal.SIGABRT})" in done.stdout
    )
    assert [line.split()[:2] for line in done.stdout.splitlines()[-2:]] == [["works", "10"], ["all", "10"]]
