import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from loopback import Serve, sha256, small_task

from mlagentbench.errors import TaskFault, UsageError
from mlagentbench.preparation.prepare import DEFAULT_SEED, find_prepared_data, prepare_data
from mlagentbench.system.hashing import hash_file
from mlagentbench.task import Source, Task

SPLIT = """
import random

def prepare(edition, raw, public, private, seed):
    (public / "train").mkdir()
    (public / "train" / "a.csv").write_text(f"{edition} {random.Random(seed).random()}")
    (private / "answers.csv").write_text(str(seed))
"""
PREPARE_DEF = "def prepare(edition, raw, public, private, seed):\n    "


def test_data_is_prepared_once_with_the_default_seed(tmp_path: Path, cache: Path, progress) -> None:
    task = small_task(tmp_path / "small", SPLIT)
    data = prepare_data(task, "open", progress.append)
    assert prepare_data(task, "open", progress.append) == data
    assert progress == ["Preparing data of small (open)"]
    assert data.folder.parent == cache / "data" / "small" and data.instance.startswith("open-")
    assert (data.private / "answers.csv").read_text() == str(DEFAULT_SEED)
    a = data.public / "train" / "a.csv"
    stamp = json.loads((data.folder / "data.json").read_text())
    assert stamp == {"hash": data.hash, "files": {"train/a.csv": [hash_file(a), a.stat().st_size]}}
    assert sorted(path.name for path in data.folder.iterdir()) == ["data.json", "private", "public"]


def test_only_the_owner_can_read_the_answers(tmp_path: Path, progress) -> None:
    data = prepare_data(small_task(tmp_path / "small", SPLIT), "open", progress.append)
    assert data.private.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in data.private.iterdir()} == {0o600}
    assert (data.public / "train" / "a.csv").stat().st_mode & 0o777 == 0o644


def test_changed_code_or_a_changed_helper_module_makes_new_data(tmp_path: Path, progress) -> None:
    task = small_task(
        tmp_path / "small", "from generator import VALUE\n" + PREPARE_DEF + "(public / 'a').write_text(VALUE)"
    )
    instances = set()
    for value in ("one", "two"):
        (task.folder / "generator.py").write_text(f"VALUE = {value!r}")
        data = prepare_data(task, "open", progress.append)
        assert (data.public / "a").read_text() == value
        instances.add(data.instance)
    (task.folder / "grade.py").write_text("# another grader")
    assert len(instances | {prepare_data(task, "open", progress.append).instance}) == 2
    assert not (task.folder / "__pycache__").exists()


def test_archives_are_downloaded_and_linked_in_raw_by_name(serve: Serve, tmp_path: Path, progress) -> None:
    server = serve(lambda request: request.reply(200, b"rows"))
    source = Source(kind="url", name=server.url, file="a/b.csv", sha256=sha256(b"rows"))
    body = PREPARE_DEF + "(public / 'copy').write_bytes((raw / 'a' / 'b.csv').read_bytes())"
    task = small_task(tmp_path / "small", body, source)
    assert (prepare_data(task, "open", progress.append).public / "copy").read_bytes() == b"rows"


def test_prepare_sees_no_credentials(tmp_path: Path, progress, monkeypatch) -> None:
    monkeypatch.setenv("KAGGLE_KEY", "secret")
    monkeypatch.setenv("SOME_API_KEY", "secret")
    body = "import json, os\n" + PREPARE_DEF + "(public / 'env').write_text(json.dumps(dict(os.environ)))"
    data = prepare_data(small_task(tmp_path / "small", body), "open", progress.append)
    seen = set(json.loads((data.public / "env").read_text()))
    assert seen <= {"PATH", "HOME", "LANG", "LC_CTYPE", "PYTHONPATH", "PYTHONHASHSEED"}


@pytest.mark.parametrize(
    ("prepare", "message"),
    [
        (
            PREPARE_DEF + "(public / 'half').touch(); raise ValueError('no such column')",
            r"ValueError: no such column \(prepare.py, line 2\)$",
        ),
        (PREPARE_DEF + "import os; os._exit(3)", r"exit code 3\): no output$"),
        (PREPARE_DEF + "import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "exit code -9"),
        ("import nothing_of_that_name", "nothing_of_that_name"),
        (
            PREPARE_DEF + "(public / 'link').symlink_to('/etc/hostname')",
            "left link, which is not a regular file",
        ),
    ],
)
def test_a_crash_of_prepare_is_a_fault_and_leaves_no_data(
    tmp_path: Path, cache: Path, progress, prepare: str, message: str
) -> None:
    task = small_task(tmp_path / "small", prepare)
    with pytest.raises(TaskFault, match=message) as failure:
        prepare_data(task, "open", progress.append)
    assert "\n" not in str(failure.value)
    assert {path.suffix for path in (cache / "data" / "small").iterdir()} == {".lock"}


def test_a_crash_of_prepare_shows_its_own_last_lines_and_frames_only(tmp_path: Path, progress) -> None:
    body = "import json\n" + PREPARE_DEF + "print('reading rows')\n    json.loads('{')\n"
    with pytest.raises(TaskFault, match=r"\(prepare\.py, line 4\)$") as failure:
        prepare_data(small_task(tmp_path / "small", body), "open", progress.append)
    assert failure.value.details.startswith("reading rows\nTraceback")
    assert re.findall(r'File ".*?([\w.]+)", line (\d+)', failure.value.details) == [("prepare.py", "4")]


def test_a_syntax_error_in_prepare_is_shown_with_its_line(tmp_path: Path, progress) -> None:
    with pytest.raises(TaskFault, match=r"SyntaxError: .*\(prepare\.py, line 1\)$") as failure:
        prepare_data(small_task(tmp_path / "small", "def prepare(:\n"), "open", progress.append)
    assert "def prepare(:" in failure.value.details and "discovery.py" not in failure.value.details


def test_a_fresh_instance_has_another_seed_that_only_its_private_folder_contains(
    tmp_path: Path, progress
) -> None:
    task = small_task(tmp_path / "small", SPLIT)
    default, fresh = (
        prepare_data(task, "open", progress.append),
        prepare_data(task, "open", progress.append, fresh=True),
    )
    assert fresh.instance != default.instance and fresh.hash != default.hash
    seed = (fresh.private / "seed.json").read_text()
    assert seed != str(DEFAULT_SEED)
    assert seed not in (fresh.folder / "data.json").read_text() + fresh.instance
    assert prepare_data(task, "open", progress.append) == default
    assert prepare_data(task, "open", progress.append, instance=fresh.instance) == fresh


def test_an_instance_is_found_by_name_or_hash(tmp_path: Path, progress) -> None:
    task = small_task(tmp_path / "small", SPLIT)
    with pytest.raises(UsageError, match="is not prepared"):
        find_prepared_data(task, "open")
    default, fresh = (
        prepare_data(task, "open", progress.append),
        prepare_data(task, "open", progress.append, fresh=True),
    )
    assert find_prepared_data(task, "open") == default
    assert (
        find_prepared_data(task, "open", fresh.instance)
        == find_prepared_data(task, "open", fresh.hash)
        == fresh
    )
    with pytest.raises(UsageError, match="open-unknown of task small"):
        find_prepared_data(task, "open", "open-unknown")


@pytest.mark.parametrize(
    "where", ["public/train/a.csv", "public/README.md", "private/answers.csv", "private/new"]
)
def test_changed_data_is_detected(tmp_path: Path, progress, where: str) -> None:
    data = prepare_data(small_task(tmp_path / "small", SPLIT), "open", progress.append)
    data.verify_unchanged()
    (data.folder / where).write_text("better answers")
    with pytest.raises(UsageError, match="changed after it was prepared"):
        data.verify_unchanged()


def test_a_damaged_stamp_gives_a_one_line_error(tmp_path: Path, progress) -> None:
    task = small_task(tmp_path / "small", SPLIT)
    (prepare_data(task, "open", progress.append).folder / "data.json").write_text("{")
    with pytest.raises(UsageError, match=r"is damaged\. Delete it and run again\."):
        prepare_data(task, "open", progress.append)


def test_killing_a_preparation_kills_its_child_and_the_next_one_succeeds(
    tmp_path: Path, cache: Path, progress
) -> None:
    flag, body = tmp_path / "flag", PREPARE_DEF
    flag.touch()
    body += f"import os, pathlib, time; (public / 'half').touch(); flag = pathlib.Path({str(flag)!r})\n    "
    body += "if flag.exists():\n        flag.write_text(str(os.getpid()))\n        time.sleep(60)"
    task = small_task(tmp_path / "small", body)
    script = (
        "import sys; from pathlib import Path; from mlagentbench.task import Task\n"
        "from mlagentbench.preparation.prepare import prepare_data\n"
        "prepare_data(Task(Path(sys.argv[1])), 'open', print)"
    )
    source = str(Path(sys.modules["mlagentbench"].__path__[0]).parent)
    command = [sys.executable, "-c", script, str(task.folder)]
    with subprocess.Popen(
        command, env={**os.environ, "PYTHONPATH": source}, stdout=subprocess.DEVNULL
    ) as harness:
        wait_until(lambda: flag.read_text() != "")
        child = int(flag.read_text())
        harness.send_signal(signal.SIGKILL)
    wait_until(lambda: not is_alive(child))
    assert not list((cache / "data" / "small").glob("*/data.json"))
    flag.unlink()
    prepare_data(Task(task.folder), "open", progress.append).verify_unchanged()
    assert not list((cache / "data" / "small").glob("*.building-*"))


def wait_until(condition) -> None:
    for _ in range(1000):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError("timed out")


def is_alive(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    try:
        return stat.read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
