import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mlagentbench.system.lock import exclusive_lock, is_locked, try_lock

HOLD_LOCK = """
import sys
from pathlib import Path
from mlagentbench.system.lock import try_lock

file = Path(sys.argv[1]).open("a")
print(try_lock(file, shared=sys.argv[2] == "shared"), flush=True)
sys.stdin.readline()
"""


@contextmanager
def another_process_holding(path: Path, kind: str = "exclusive") -> Iterator["subprocess.Popen[str]"]:
    """Another process that holds a lock until the end of the block."""
    command = [sys.executable, "-c", HOLD_LOCK, str(path), kind]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout and holder.stdout.readline() == "True\n"
        yield holder
        holder.kill()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "file.lock").touch()
    return tmp_path / "file.lock"


def test_a_lock_is_held_until_its_file_is_closed(path: Path) -> None:
    with path.open() as first, path.open() as second:
        assert not is_locked(path)
        assert try_lock(first) and is_locked(path)
        assert not try_lock(second, timeout_s=0.05)
        first.close()
        assert not is_locked(path) and try_lock(second)


def test_another_process_cannot_take_a_lock_until_its_holder_is_killed(path: Path) -> None:
    with another_process_holding(path) as holder, path.open() as file:
        assert is_locked(path) and not try_lock(file, timeout_s=0)
        holder.kill()
        holder.wait()
        assert not is_locked(path) and try_lock(file)


def test_shared_locks_allow_each_other_but_no_exclusive_one(path: Path) -> None:
    with another_process_holding(path, "shared"), path.open() as file, path.open() as other:
        assert try_lock(file, shared=True, timeout_s=0)
        assert not try_lock(other, timeout_s=0)
        assert not is_locked(path)  # which is about exclusive holders


def test_a_missing_file_is_not_locked(tmp_path: Path) -> None:
    assert not is_locked(tmp_path / "missing")


def test_an_exclusive_lock_creates_its_file_and_calls_on_wait_only_if_it_waits(tmp_path: Path) -> None:
    path = tmp_path / "new" / "a.lock"
    waiting, order = threading.Event(), []

    def second() -> None:
        with exclusive_lock(path, waiting.set):
            order.append("second")

    thread = threading.Thread(target=second)
    with exclusive_lock(path, lambda: order.append("never")):
        thread.start()
        assert waiting.wait(5)
        order.append("first")
    thread.join(5)
    assert order == ["first", "second"] and path.exists() and not is_locked(path)


def test_an_exclusive_lock_is_released_by_an_exception(path: Path) -> None:
    with pytest.raises(KeyError), exclusive_lock(path):
        raise KeyError
    assert not is_locked(path)
