"""Fork servers: shared by submissions, replaced when something changed, and gone with the harness."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mlagentbench.errors import Stopped, TaskFault
from mlagentbench.grading.fork_server import DONE, FAILED
from mlagentbench.grading.grade import grade_path
from mlagentbench.grading.grader_command import grader_command, grader_environment
from mlagentbench.grading.grader_pool import MAX_IDLE_SERVERS, ServerKey, ServerPool, shared_pool
from mlagentbench.runner.setup import Setup, prepare_setup
from mlagentbench.sandbox.processes import list_process_tree
from mlagentbench.system.stop_token import StopToken

# The score is the number in the submission. Every call is logged, with the process that made it.
LOGGING_GRADER = """
import os
from pathlib import Path

LOADED_BY = os.getpid()
seen = []

def grade(submission, private):
    text = submission.read_text()
    seen.append(text)
    with open({log!r}, "a") as file:
        file.write(f"{{LOADED_BY}} {{os.getpid()}} {{len(seen)}}\\n")
    if "hang" in text:
        while True:
            pass
    return float(text)
"""


@pytest.fixture
def make_setup(variant: Callable[..., Path]) -> Callable[..., Setup]:
    def make(source: str, name: str = "variant", toml: str = "") -> Setup:
        folder = variant({"grade.py": source}, name)
        (folder / "task.toml").write_text(toml + (folder / "task.toml").read_text())
        return prepare_setup(str(folder), "open", "bwrap", lambda line: None)

    return make


@pytest.fixture
def logging_setup(make_setup: Callable[..., Setup], tmp_path: Path) -> Setup:
    return make_setup(LOGGING_GRADER.format(log=str(tmp_path / "log")))


@pytest.fixture
def score(tmp_path: Path) -> Callable[..., float | None]:
    (tmp_path / "submissions").mkdir()

    def grade_text(setup: Setup, text: str) -> float | None:
        path = tmp_path / "submissions" / f"{text}.csv"
        path.write_text(text)
        return grade_path(setup.task, setup.data, path, setup.sandbox).score

    return grade_text


def read_log(tmp_path: Path) -> list[tuple[int, int, int]]:
    """The process that loaded the grader, the one that called it, and how many submissions it has seen."""
    lines = (tmp_path / "log").read_text().splitlines()
    return [(int(loaded_by), int(pid), int(seen)) for loaded_by, pid, seen in map(str.split, lines)]


def key_of(setup: Setup) -> ServerKey:
    environment = tuple(grader_environment(setup.task, setup.sandbox))
    return ServerKey(setup.task.folder, setup.data.private, environment)


def test_one_process_loads_the_grader_and_each_submission_gets_a_fork_of_it(
    logging_setup: Setup, score: Callable[..., float | None], tmp_path: Path
) -> None:
    assert [score(logging_setup, text) for text in ("1", "2", "3")] == [1, 2, 3]
    log = read_log(tmp_path)
    assert len({loaded_by for loaded_by, _, _ in log}) == 1
    assert len({pid for _, pid, _ in log} | {log[0][0]}) == 4
    assert {seen for _, _, seen in log} == {1}


@pytest.mark.parametrize("changed", ["grade.py", "helper.py", "elsewhere.py", "limits.json", "answers.csv"])
def test_a_change_of_what_the_grader_has_loaded_counts_for_the_next_submission(
    make_setup: Callable[..., Setup], tmp_path: Path, changed: str
) -> None:
    source = f"""
import json, sys
from functools import cache
from pathlib import Path
sys.path += [str(Path(__file__).parent), {str(tmp_path / "shared")!r}]
import elsewhere, helper
LIMIT = json.loads((Path(__file__).parent / "limits.json").read_text())

@cache
def read_answer(private):
    return float((private / "answers.csv").read_text())

def grade(submission, private):
    return read_answer(private) + helper.VALUE + elsewhere.VALUE + LIMIT + 0
"""
    setup = make_setup(source)
    folders = {"elsewhere.py": tmp_path / "shared", "answers.csv": tmp_path / "private"}
    for name, text in {
        "helper.py": "VALUE = 0",
        "elsewhere.py": "VALUE = 0",
        "limits.json": "0",
        "answers.csv": "0",
    }.items():
        folder = folders.get(name, setup.task.folder)
        folder.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    pool, answer = shared_pool(), tmp_path / "answer"
    (tmp_path / "submission").touch()
    key = key_of(setup)._replace(private=tmp_path / "private")
    paths = {"submission": tmp_path / "submission", "answer": answer}
    assert pool.grade(key, paths, 60, StopToken()) and answer.read_text() == '{"score": 0.0}'
    path = folders.get(changed, setup.task.folder) / changed
    path.write_text(path.read_text().rstrip()[:-1] + "7\n")
    assert pool.grade(key, paths, 60, StopToken()) and answer.read_text() == '{"score": 7.0}'


def test_files_that_only_look_new_do_not_restart_the_server(
    make_setup: Callable[..., Setup], score: Callable[..., float | None], tmp_path: Path
) -> None:
    source = f"""
from pathlib import Path
from tempfile import NamedTemporaryFile
Path("/proc/self/status").read_text()
with NamedTemporaryFile() as file:
    Path(file.name).read_text()
with open({str(tmp_path / "log")!r}, "a") as log:
    print("loaded", file=log)

def grade(submission, private):
    with open({str(tmp_path / "log")!r}, "a") as log:
        print("graded", file=log)
    return 1.0
"""
    setup = make_setup(source)
    assert [score(setup, text) for text in ("1", "2")] == [1, 1]
    assert (tmp_path / "log").read_text().split() == ["loaded", "graded", "graded", "graded"]


def test_a_killed_server_is_replaced(
    logging_setup: Setup, score: Callable[..., float | None], tmp_path: Path
) -> None:
    assert score(logging_setup, "1") == 1
    os.kill(read_log(tmp_path)[0][0], signal.SIGKILL)
    assert [score(logging_setup, "2"), score(logging_setup, "3")] == [2, 3]
    log = read_log(tmp_path)
    assert log[0][0] != log[1][0] == log[2][0]


def test_a_server_without_requests_exits(logging_setup: Setup) -> None:
    key = key_of(logging_setup)
    patch = "import sys; from mlagentbench.grading import fork_server; fork_server.IDLE_TIMEOUT_S = 0.01"
    call = "from pathlib import Path; fork_server.main(*map(Path, sys.argv[1:]))"
    done = subprocess.run(
        [sys.executable, "-c", f"{patch}; {call}", str(key.folder), str(key.private)],
        stdin=subprocess.PIPE,
        env=dict(key.environment),
        timeout=60,
        check=False,
    )
    assert done.returncode == 0


def test_a_grader_that_fails_only_in_a_fork_is_called_in_a_process_of_its_own(
    make_setup: Callable[..., Setup], score: Callable[..., float | None]
) -> None:
    for name, failure in {"crash": "os.abort()", "exit": "os._exit(0)", "hang": "while True: pass"}.items():
        source = "import os\nPID = os.getpid()\ndef grade(submission, private):\n    if os.getpid() != PID:\n"
        setup = make_setup(f"{source}        {failure}\n    return 1.0\n", name, "grading_minutes = 0.05\n")
        assert score(setup, "1") == 1.0


def test_a_hanging_submission_is_a_fault_and_leaves_no_process(
    make_setup: Callable[..., Setup],
    score: Callable[..., float | None],
    tmp_path: Path,
    until: Callable[..., None],
) -> None:
    source = LOGGING_GRADER.format(log=str(tmp_path / "log"))
    setup = make_setup(source, toml="grading_minutes = 0.02\n")
    with pytest.raises(TaskFault, match=r"took longer than 0\.02 minutes"):
        score(setup, "hang")
    processes = {pid for loaded_by, pid, _ in read_log(tmp_path) for pid in (loaded_by, pid)}
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in processes))
    assert score(setup, "2") == 2


def test_a_stop_request_ends_a_grader_in_a_fork(
    logging_setup: Setup, tmp_path: Path, until: Callable[..., None]
) -> None:
    (submission := tmp_path / "submission").write_text("hang")
    paths = {"submission": submission, "answer": tmp_path / "answer"}
    token, pool = StopToken(), shared_pool()
    with ThreadPoolExecutor() as threads:
        grading = threads.submit(pool.grade, key_of(logging_setup), paths, 600, token)
        until(lambda: (tmp_path / "log").exists() and read_log(tmp_path))
        token.request()
        with pytest.raises(Stopped):
            grading.result(timeout=30)
    ((server, fork, _),) = read_log(tmp_path)
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in (server, fork)))


@pytest.fixture
def pool() -> Iterator[ServerPool]:
    pool = ServerPool()
    yield pool
    pool.close()


def test_no_more_than_one_server_per_core_works_and_few_idle_ones_are_kept(
    make_setup: Callable[..., Setup], pool: ServerPool, tmp_path: Path
) -> None:
    source = LOGGING_GRADER.format(log=str(tmp_path / "log"))
    (submission := tmp_path / "submission").write_text("1")
    key = key_of(make_setup(source))
    with ThreadPoolExecutor(12) as threads:
        done = [
            threads.submit(
                pool.grade, key, {"submission": submission, "answer": tmp_path / f"{n}"}, 60, StopToken()
            )
            for n in range(12)
        ]
        assert all(grading.result() for grading in done)
    assert len({loaded_by for loaded_by, _, _ in read_log(tmp_path)}) <= len(os.sched_getaffinity(0))
    for number in range(MAX_IDLE_SERVERS + 2):
        other = key._replace(environment=(*key.environment, ("NUMBER", str(number))))
        assert pool.grade(other, {"submission": submission, "answer": tmp_path / "x"}, 60, StopToken())
    servers = [loaded_by for loaded_by, _, _ in read_log(tmp_path)]
    children = set(list_process_tree(os.getpid()))
    assert len(set(servers) & children) <= MAX_IDLE_SERVERS
    pool.close()
    assert not set(servers) & set(list_process_tree(os.getpid()))


HARNESS = """
import sys, threading, time
from pathlib import Path
from mlagentbench.grading.grade import grade_path
from mlagentbench.runner.setup import prepare_setup
setup = prepare_setup(sys.argv[1], "open", "bwrap", lambda line: None)
grade = lambda: grade_path(setup.task, setup.data, Path(sys.argv[2]), setup.sandbox)
thread = threading.Thread(target=grade)
thread.start()
thread.join()
grade()
print("graded", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("end", ["exit", "SIGKILL"])
def test_servers_outlive_the_thread_that_needed_them_but_not_the_harness(
    logging_setup: Setup, tmp_path: Path, until: Callable[..., None], end: str
) -> None:
    (submission := tmp_path / "submission").write_text("1")
    command = [sys.executable, "-c", HARNESS, str(logging_setup.task.folder), str(submission)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as harness:
        assert harness.stdout and harness.stdout.readline() == b"graded\n"
        (first, _, _), (second, _, _) = read_log(tmp_path)
        assert first == second and Path(f"/proc/{first}").exists()
        if end == "SIGKILL":
            harness.kill()
        harness.communicate(timeout=60)
    assert harness.returncode == (-signal.SIGKILL if end == "SIGKILL" else 0)
    until(lambda: not Path(f"/proc/{first}").exists())


def test_what_a_grader_prints_is_no_reply(make_setup: Callable[..., Setup], tmp_path: Path) -> None:
    printing = "import os\nos.write(1, b'+' * 100)\nprint('+' * 100, flush=True)\n"
    source = f"{printing}def grade(submission, private):\n    os.write(1, b'+' * 100); 1 / 0\n"
    key = key_of(make_setup(source))
    (submission := tmp_path / "submission").touch()
    request = b'{"submission": "%s", "answer": "%s"}\n' % (bytes(submission), bytes(tmp_path / "answer"))
    done = subprocess.run(
        grader_command("fork_server", key.folder, key.private),
        input=request * 2,
        stdout=subprocess.PIPE,
        env=dict(key.environment),
        timeout=60,
        check=True,
    )
    assert done.stdout == FAILED * 2 and FAILED != DONE
