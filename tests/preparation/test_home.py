import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from mlagentbench.errors import UsageError
from mlagentbench.system.cache import build_once, cache_dir, temporary_dir
from mlagentbench.system.lock import exclusive_lock

SLOW_BUILDER = """
import sys
from pathlib import Path
from mlagentbench.system.cache import build_once

target, count = Path(sys.argv[1]), Path(sys.argv[2])

def make(folder):
    with count.open("a") as file:
        file.write("x")
    (folder / "first").write_text("1")
    print("making", flush=True)
    sys.stdin.readline()
    (folder / "second").write_text("2")

print("asking", flush=True)
build_once(target, make)
print("there" if (target / "second").exists() else "half", flush=True)
"""


def slow_builder(target: Path, count: Path) -> "subprocess.Popen[str]":
    source = str(Path(sys.modules["mlagentbench"].__path__[0]).parent)
    return subprocess.Popen(
        [sys.executable, "-c", SLOW_BUILDER, str(target), str(count)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": source},
    )


def whole(folder: Path) -> None:
    (folder / "second").write_text("2")


def test_the_home_is_the_owners_only(cache: Path) -> None:
    assert cache_dir() == cache
    assert cache.stat().st_mode & 0o777 == 0o700


def test_the_home_is_in_the_users_cache_folder_unless_chosen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MLAGENTBENCH_HOME")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_dir() == tmp_path / "xdg" / "mlagentbench"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_dir() == tmp_path / "user" / ".cache" / "mlagentbench"


def test_a_home_that_cannot_be_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("MLAGENTBENCH_HOME", str(tmp_path / "file" / "home"))
    with pytest.raises(UsageError, match="set MLAGENTBENCH_HOME"):
        cache_dir()


def test_who_waits_for_a_lock_is_told_once(tmp_path: Path) -> None:
    waiting, order = threading.Event(), []

    def second() -> None:
        with exclusive_lock(tmp_path / "a.lock", waiting.set):
            order.append("second")

    thread = threading.Thread(target=second)
    with exclusive_lock(tmp_path / "a.lock", lambda: order.append("never")):
        thread.start()
        assert waiting.wait(5)
        order.append("first")
    thread.join(5)
    assert order == ["first", "second"]


def test_a_folder_is_built_once(tmp_path: Path) -> None:
    target, builds = tmp_path / "rooms" / "target", []

    def make(folder: Path) -> None:
        builds.append(folder)
        assert not target.exists()

    build_once(target, make)
    build_once(target, make)
    assert target.is_dir() and len(builds) == 1


def test_a_failed_build_leaves_nothing(tmp_path: Path) -> None:
    def make(folder: Path) -> None:
        (folder / "half").write_text("")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build_once(tmp_path / "target", make)
    assert [path.name for path in tmp_path.iterdir()] == ["target.lock"]


def test_a_killed_build_leaves_nothing_half_made_and_the_next_succeeds(tmp_path: Path) -> None:
    target = tmp_path / "target"
    with slow_builder(target, tmp_path / "count") as builder:
        assert builder.stdout and builder.stdout.readline() == "asking\n"
        assert builder.stdout.readline() == "making\n"
        builder.send_signal(signal.SIGKILL)
    assert not target.exists()
    assert list(tmp_path.glob("target.building-*"))
    build_once(target, whole)
    assert [path.name for path in target.iterdir()] == ["second"]
    assert not list(tmp_path.glob("target.building-*"))


def test_two_processes_that_build_at_once_build_once(tmp_path: Path) -> None:
    target, count = tmp_path / "target", tmp_path / "count"
    with slow_builder(target, count) as one:
        assert one.stdout and [one.stdout.readline(), one.stdout.readline()] == ["asking\n", "making\n"]
        with slow_builder(target, count) as two:
            assert two.stdout and two.stdout.readline() == "asking\n"
            assert not target.exists()
            assert one.communicate("\n")[0] == "there\n"
            assert two.communicate("\n")[0] == "there\n"
    assert count.read_text() == "x"


def test_a_scratch_folder_is_gone_after_use(tmp_path, monkeypatch):
    monkeypatch.setenv("MLAGENTBENCH_HOME", str(tmp_path))
    with temporary_dir() as folder:
        (folder / "deep").mkdir()
        assert folder.stat().st_mode & 0o777 == 0o700
    assert not list((tmp_path / "temporary").iterdir())


def test_what_a_killed_process_left_in_scratch_is_removed_by_the_next(tmp_path, monkeypatch):
    monkeypatch.setenv("MLAGENTBENCH_HOME", str(tmp_path))
    code = "import os; from mlagentbench.system.cache import temporary_dir\nwith temporary_dir() as folder: os.kill(os.getpid(), 9)"
    subprocess.run([sys.executable, "-c", code], check=False)
    (left,) = (path for path in (tmp_path / "temporary").iterdir() if path.is_dir())
    with temporary_dir() as folder, temporary_dir() as other:
        assert not left.exists() and folder.exists() and other.exists()


def test_a_process_that_sees_other_numbers_and_times_leaves_scratch_in_use_alone(tmp_path, monkeypatch):
    monkeypatch.setenv("MLAGENTBENCH_HOME", str(tmp_path))
    code = "from mlagentbench.system.cache import temporary_dir\nwith temporary_dir() as folder: print(folder.is_dir())"
    elsewhere = ["unshare", "--user", "--map-root-user", "--fork", "--pid", "--mount-proc", "--time"]
    with temporary_dir() as folder:
        done = subprocess.run(
            [*elsewhere, "--boottime", "9999", sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=False,
        )
        if "unshare failed" in done.stderr:
            pytest.skip("this kernel has no numbers and clocks of their own for processes")
        assert done.stdout == "True\n", done.stderr
        assert folder.is_dir()
