import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from mlagentbench.errors import UsageError
from mlagentbench.system.cache import build_once, cache_dir, temporary_dir

SLOW_BUILDER = """
import sys
from pathlib import Path
from mlagentbench.system.cache import build_once

target, count = Path(sys.argv[1]), Path(sys.argv[2])

def build(folder):
    with count.open("a") as file:
        file.write("x")
    (folder / "first").write_text("1")
    print("building", flush=True)
    sys.stdin.readline()
    (folder / "second").write_text("2")

print("started", flush=True)
build_once(target, build)
print("complete" if (target / "second").exists() else "incomplete", flush=True)
"""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache folder of this test; it does not exist yet."""
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    monkeypatch.setenv("MLAGENTBENCH_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def slow_builder(target: Path, count: Path) -> "subprocess.Popen[str]":
    source = str(Path(sys.modules["mlagentbench"].__path__[0]).parent)
    return subprocess.Popen(
        [sys.executable, "-c", SLOW_BUILDER, str(target), str(count)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": source},
    )


def write_second_file(folder: Path) -> None:
    (folder / "second").write_text("2")


def test_only_the_owner_can_access_the_cache_folder(cache: Path) -> None:
    assert cache_dir() == cache
    assert cache.stat().st_mode & 0o777 == 0o700


def test_the_cache_folder_is_in_the_users_cache_by_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MLAGENTBENCH_HOME")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_dir() == tmp_path / "xdg" / "mlagentbench"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_dir() == tmp_path / "user" / ".cache" / "mlagentbench"


def test_an_impossible_cache_folder_gives_a_one_line_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("MLAGENTBENCH_HOME", str(tmp_path / "file" / "home"))
    with pytest.raises(UsageError, match="Set MLAGENTBENCH_HOME"):
        cache_dir()


def test_a_folder_is_built_once(tmp_path: Path) -> None:
    target, builds = tmp_path / "folder" / "target", []

    def build(folder: Path) -> None:
        builds.append(folder)
        assert not target.exists()

    build_once(target, build)
    build_once(target, build)
    assert target.is_dir() and len(builds) == 1


def test_a_failed_build_leaves_nothing(tmp_path: Path) -> None:
    def build(folder: Path) -> None:
        (folder / "half").write_text("")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build_once(tmp_path / "target", build)
    assert [path.name for path in tmp_path.iterdir()] == ["target.lock"]


def test_a_killed_build_leaves_no_partial_result_and_the_next_one_succeeds(tmp_path: Path) -> None:
    target = tmp_path / "target"
    with slow_builder(target, tmp_path / "count") as builder:
        assert builder.stdout and builder.stdout.readline() == "started\n"
        assert builder.stdout.readline() == "building\n"
        builder.send_signal(signal.SIGKILL)
    assert not target.exists()
    assert list(tmp_path.glob("target.building-*"))
    build_once(target, write_second_file)
    assert [path.name for path in target.iterdir()] == ["second"]
    assert not list(tmp_path.glob("target.building-*"))


def test_two_concurrent_processes_build_once(tmp_path: Path) -> None:
    target, count = tmp_path / "target", tmp_path / "count"
    with slow_builder(target, count) as one:
        assert one.stdout and [one.stdout.readline(), one.stdout.readline()] == ["started\n", "building\n"]
        with slow_builder(target, count) as two:
            assert two.stdout and two.stdout.readline() == "started\n"
            assert not target.exists()
            assert one.communicate("\n")[0] == "complete\n"
            assert two.communicate("\n")[0] == "complete\n"
    assert count.read_text() == "x"


def test_a_temporary_folder_is_removed_after_use(cache: Path) -> None:
    with temporary_dir() as folder:
        (folder / "deep").mkdir()
        assert folder.stat().st_mode & 0o777 == 0o700
    assert not list((cache / "temporary").iterdir())


def test_temporary_folders_of_a_killed_process_are_removed_by_the_next(cache: Path) -> None:
    code = "import os; from mlagentbench.system.cache import temporary_dir\n"
    code += "with temporary_dir(): os.kill(os.getpid(), 9)"
    subprocess.run([sys.executable, "-c", code], check=False)
    (leftover,) = (path for path in (cache / "temporary").iterdir() if path.is_dir())
    with temporary_dir() as folder, temporary_dir() as other:
        assert not leftover.exists() and folder.exists() and other.exists()


def test_a_process_in_other_pid_and_time_namespaces_keeps_temporary_folders_in_use() -> None:
    code = "from mlagentbench.system.cache import temporary_dir\n"
    code += "with temporary_dir() as folder: print(folder.is_dir())"
    namespaces = ["unshare", "--user", "--map-root-user", "--fork", "--pid", "--mount-proc", "--time"]
    with temporary_dir() as folder:
        completed = subprocess.run(
            [*namespaces, "--boottime", "9999", sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=False,
        )
        if "unshare failed" in completed.stderr:
            pytest.skip("this kernel has no pid and time namespaces")
        assert completed.stdout == "True\n", completed.stderr
        assert folder.is_dir()
