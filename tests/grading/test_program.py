"""Programs under grading, in real sandboxes: honest ones are answered, and attacks gain nothing."""

import json
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import mlagentbench
from mlagentbench.errors import InvalidSubmission, SandboxFault
from mlagentbench.grading.program import Program
from mlagentbench.sandbox.processes import read_proc_stat
from mlagentbench.sandbox.programs import submission_runner

ONE = np.arange(6.0).reshape(2, 3)
Load = Callable[..., Program]


@pytest.fixture(autouse=True)
def grading(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLAGENTBENCH_GRADING", json.dumps({"runtime": "tabular", "sandbox": "bwrap"}))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "submission"
    path.mkdir(mode=0o755)
    return path


@pytest.fixture
def load(folder: Path):
    """Loads the function `answer` of the given source, and closes the program after the test."""
    programs: list[Program] = []

    def start(source: str, **options: object) -> Program:
        (folder / "code.py").write_text("import os, sys\nimport numpy as np\n" + source)
        programs.append(Program(folder, "code", "answer", **{"start_timeout_s": 20, **options}))
        return programs[-1]

    yield start
    for program in programs:
        program.close()


def ask(program: Program, *arrays: np.ndarray, timeout_s: float = 20, max_bytes: int = 1000):
    return program.ask(*(arrays or (ONE,)), timeout_s=timeout_s, max_bytes=max_bytes)


def error_message(program: Program, **options: float) -> str:
    with pytest.raises(InvalidSubmission) as caught:
        ask(program, **options)
    return str(caught.value)


# The fd of the pipe on which the driver answers, found as a submission would find it.
PIPE = """
def pipe():
    for fd in range(3, 64):
        try:
            if os.readlink(f"/proc/self/fd/{fd}").startswith("pipe") and os.get_blocking(fd):
                os.write(fd, b"")
                return fd
        except OSError:
            pass
"""


def test_an_answer_is_returned_with_its_time(load: Load) -> None:
    program = load("def answer(x):\n    import time; time.sleep(0.2); return x * 2")
    (doubled,), seconds = ask(program)
    assert (doubled == ONE * 2).all() and 0.2 <= seconds < 5


def test_a_program_is_asked_many_times_and_keeps_its_state(load: Load) -> None:
    program = load("n = 0\ndef answer(x):\n    global n; n += 1; return n")
    assert [int(ask(program)[0][0]) for _ in range(3)] == [1, 2, 3]


def test_zero_dimensional_arrays_arrive_as_numbers_and_arrays_are_writable(load: Load) -> None:
    program = load("def answer(x, n):\n    assert type(n) is int; x[0] = 7; return x, np.array(n)")
    (array, number), _ = ask(program, ONE.copy(), np.array(3))
    assert (array[0] == 7).all() and number.shape == () and number == 3


@pytest.mark.parametrize("dtype", submission_runner.DTYPES)
def test_every_dtype_and_layout_of_array_is_transferred_unchanged(dtype: str) -> None:
    arrays = [
        np.zeros((0, 4), dtype),
        np.array(1, dtype),
        np.ones((2, 3, 4), dtype).T,
        np.ones((4, 4), dtype)[::2, ::-1],
    ]
    received = submission_runner.unpack_arrays(bytearray(submission_runner.pack_arrays(arrays)))
    assert [(a.shape, a.dtype) for a in received] == [(a.shape, a.dtype) for a in arrays]
    assert all((a == b).all() for a, b in zip(received, arrays, strict=True))


@pytest.mark.parametrize(
    "message",
    [
        b"\x0b",
        b"\xff\x00",
        b"\x0b\xff" + b"\xff" * 100,
        b"\x0b\x01" + struct.pack("<Q", 1 << 60),
        b"\x0b\x02" + struct.pack("<2Q", 0, (1 << 64) - 1),
        b"\x0b\x02" + struct.pack("<2Q", 1 << 32, 1 << 32) + b"12345678",
        b"\x0b\x01" + struct.pack("<Q", 2) + b"12345678",
    ],
)
def test_a_malformed_message_is_rejected(message: bytes) -> None:
    with pytest.raises(ValueError, match="array"):
        submission_runner.unpack_arrays(bytearray(message))


def test_output_of_a_submission_does_not_disturb_the_protocol(load: Load) -> None:
    noise = "print('x' * 100000); print('y' * 100000, file=sys.stderr); os.system('echo z; echo z >&2')\n"
    program = load(noise + "def answer(x):\n    " + noise + "    return x")
    assert (ask(program)[0][0] == ONE).all()


def test_a_module_with_the_name_of_one_of_the_drivers_is_not_imported(load: Load, folder: Path) -> None:
    for name in ("numpy", "struct", "os", "sitecustomize", "usercustomize"):
        (folder / f"{name}.py").write_text("raise SystemExit('taken over')")
    assert (ask(load("def answer(x):\n    return x"))[0][0] == ONE).all()


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("def answer(x:", "code.answer failed: SyntaxError"),
        ("raise RuntimeError('no\\nway')", "code.answer failed: RuntimeError: no way"),
        ("import sys; sys.exit(3)", "code.answer failed: SystemExit: 3"),
        ("os._exit(0)", "code.answer exited before it answered"),
        ("os.kill(os.getpid(), 9)", "code.answer exited before it answered"),
        ("", "code.answer failed: AttributeError"),
        ("import scipy.signal\ndef answer(x): return x", "No module named 'scipy.signal'"),
    ],
)
def test_a_submission_that_cannot_be_loaded_is_invalid_with_a_message(
    load: Load, source: str, message: str
) -> None:
    with pytest.raises(InvalidSubmission) as caught:
        load(source, packages=("numpy",))
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_a_submission_that_never_finishes_loading_is_invalid(load: Load) -> None:
    with pytest.raises(InvalidSubmission, match="took too long"):
        load("while True: pass", start_timeout_s=1.5)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("raise ValueError('odd')", "failed: ValueError: odd"),
        ("os._exit(0)", "exited before it answered"),
        ("return None", "not an array of numbers"),
        ("return np.array([{}], dtype=object)", "not an array of numbers"),
        ("return np.array(['1'])", "not an array of numbers"),
        ("return np.zeros(3, 'M8[s]')", "not an array of numbers"),
        ("return np.zeros(3, complex)", "not an array of numbers"),
        ("return np.zeros(3, [('a', 'f8')])", "not an array of numbers"),
        ("return np.zeros((1,) * 20)", "not an array"),
        ("return np.zeros(10 ** 6)", "at most 2,000 are allowed"),
        ("while True: os.write(pipe(), b'junk' * 10000)", "bytes; at most 2,000 are allowed"),
        ("os.write(pipe(), b'\\xff' * 8 + b'?' * 5000); return x", "failed: ????"),
        (
            "os.write(pipe(), (1 << 62).to_bytes(8, 'little')); return x",
            "returned 4,611,686,018,427,387,904 bytes",
        ),
        ("os.write(pipe(), (9).to_bytes(8, 'little') + b'not array'); return x", "not an array"),
        ("os.close(pipe()); os.abort()", "exited before it answered"),
    ],
)
def test_a_wrong_answer_format_is_invalid_with_a_message(load: Load, body: str, message: str) -> None:
    assert message in error_message(load(f"{PIPE}\ndef answer(x):\n    {body}"))


@pytest.mark.parametrize(
    "body", ["while True: pass", "import time; time.sleep(1000)", "os.kill(os.getpid(), 19)"]
)
def test_a_program_that_hangs_is_invalid_after_the_time_limit(load: Load, body: str) -> None:
    assert "took too long" in error_message(load(f"def answer(x):\n    {body}"), timeout_s=0.5)


def test_a_program_that_answers_byte_by_byte_is_invalid_after_the_time_limit(load: Load) -> None:
    header = "fd = pipe(); os.write(fd, (900).to_bytes(8, 'little'))"
    drip = f"import time\n    {header}\n    while True: os.write(fd, b'x'); time.sleep(0.01)"
    assert "took too long" in error_message(load(f"{PIPE}\ndef answer(x):\n    {drip}"), timeout_s=0.5)


def test_a_program_that_does_not_read_its_question_is_invalid_after_the_time_limit(load: Load) -> None:
    program = load("import threading\ndef answer(x):\n    while True: pass")
    with pytest.raises(InvalidSubmission, match="took too long"):
        ask(program, np.zeros(1_000_000), timeout_s=0.5)


def test_ten_gigabytes_exceed_the_memory_limit(load: Load) -> None:
    greedy = load(
        "def answer(x):\n    return np.ones(10 * 2**27)", memory_gb=0.25
    )  # allocating pages may be slow
    assert "memory limit" in error_message(greedy)


def test_a_fork_bomb_is_terminated_with_its_program(load: Load) -> None:
    bomb = "def answer(x):\n    while True:\n        try: os.fork()\n        except OSError: pass"
    program = load(bomb)
    error_message(program, timeout_s=1)
    program.close()
    assert not program._process.tree.pids()


def test_child_processes_do_not_outlive_their_program(load: Load) -> None:
    program = load(
        "def answer(x):\n    if not os.fork():\n        os.setsid()\n        while True: pass\n    return x"
    )
    ask(program)
    members = program._process.tree.pids()
    program.close()
    assert len(members) > 1 and not [pid for pid in members if read_proc_stat(pid)[:1] not in ([], ["Z"])]


def test_a_paused_program_does_nothing_until_it_is_asked(load: Load) -> None:
    count = "import threading\nn = 0\ndef run():\n    global n\n    while True: n += 1\n"
    program = load(count + "threading.Thread(target=run, daemon=True).start()\ndef answer(x): return n")
    program.pause()
    states = [
        Path(task, "stat").read_text().rpartition(")")[2].split()[0]
        for pid in program._process.tree.pids()
        for task in Path(f"/proc/{pid}/task").iterdir()
    ]
    assert set(states) == {"T"} and int(ask(program)[0][0]) > 0


def test_a_program_leaves_no_files_for_the_next(load: Load) -> None:
    leave = """
def answer(x):
    found = 0
    for place in ("/tmp", "/dev/shm", "/home/agent", "/workspace", "/var/tmp"):
        found += os.path.exists(f"{place}/left")
        try: open(f"{place}/left", "w").close()
        except OSError: pass
    return found
"""
    assert [int(ask(load(leave))[0][0]) for _ in range(2)] == [0, 0]


def test_a_program_sees_neither_the_grader_nor_the_answers(load: Load, folder: Path) -> None:
    (folder.parent / "private").mkdir()
    (folder.parent / "private" / "answers").write_text("1")
    places = [str(folder.parent), str(Path(mlagentbench.__file__).parent)]
    peek = f"def answer(x):\n    return [np.array(os.path.exists(place)) for place in {places}]"
    assert [bool(seen) for seen in ask(load(peek))[0]] == [False, False]


def test_only_the_named_packages_can_be_imported(load: Load) -> None:
    probe = """
import importlib

def importable(name):
    try:
        return np.array(hasattr(importlib.import_module(name), "__version__"))
    except ImportError:
        return np.array(False)

def answer(x):
    return [importable(name) for name in ("numpy", "scipy", "pandas", "sklearn", "lightgbm", "joblib")]
"""
    assert [bool(found) for found in ask(load(probe, packages=("numpy",)))[0]] == [True, *[False] * 5]
    assert all(bool(found) for found in ask(load(probe))[0])


@pytest.mark.parametrize(
    "statement",
    [
        "os.fork()",
        "os.system('true')",
        "os.execv('/bin/true', ['true'])",
        "os.posix_spawn('/bin/true', ['true'], {})",
        "import subprocess; subprocess.run(['true'])",
        "import _posixsubprocess",
        "import multiprocessing; multiprocessing.Pool(2)",
        "import ctypes; ctypes.CDLL('libc.so.6')",
        "import ctypes; ctypes.pythonapi.Py_GetVersion",
        "import native",
    ],
)
def test_with_named_packages_subprocesses_and_machine_code_are_refused(
    load: Load, folder: Path, statement: str
) -> None:
    (folder / "native.abi3.so").write_bytes(b"\x7fELF")
    assert "is not allowed here" in error_message(
        load(f"def answer(x):\n    {statement}\n    return x", packages=("numpy",))
    )


def test_threads_and_linear_algebra_are_allowed_with_named_packages(load: Load) -> None:
    pool = (
        "from concurrent.futures import ThreadPoolExecutor\nimport numpy.fft, numpy.random, decimal, lzma\n"
    )
    program = load(
        pool + "def answer(x):\n    return sum(ThreadPoolExecutor(2).map(np.linalg.det, [x @ x.T] * 2))",
        packages=("numpy",),
    )
    assert np.isclose(ask(program)[0][0], 2 * np.linalg.det(ONE @ ONE.T))


def test_a_sandbox_that_cannot_start_is_a_fault_and_not_an_invalid_submission(
    load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(submission_runner, "__file__", "/dev/null")
    with pytest.raises(SandboxFault, match="cannot start a program"):
        load("def answer(x): return x")


def test_a_program_also_runs_without_a_sandbox(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLAGENTBENCH_GRADING", json.dumps({"runtime": "tabular", "sandbox": "none"}))
    assert (ask(load("def answer(x): return x"))[0][0] == ONE).all()
