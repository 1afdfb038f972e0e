"""Calls a task's grader outside this process."""

import os
import select
import signal
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from pydantic import ValidationError

from mlagentbench.errors import TaskFault
from mlagentbench.formatting import last_lines, strip_control_chars
from mlagentbench.grading.grader_command import grader_command, grader_environment
from mlagentbench.grading.grader_pool import ServerKey, shared_pool
from mlagentbench.records import Record
from mlagentbench.sandbox.base import Sandbox
from mlagentbench.system.stop_token import POLL_INTERVAL_S, StopToken
from mlagentbench.task import Task

MAX_STDERR_BYTES = 4000  # read from the end of a failed grader's output
MAX_ERROR_CHARS = 500


class Grade(Record):
    """The grader's result for one submission: a score, or why the submission is invalid."""

    score: float | None = None
    invalid: str = ""
    violations: tuple[str, ...] = ()
    seconds: float = 0.0


class GraderReport(Grade):
    """What the grader process writes: the grade, and the violations of each script that ran earlier."""

    earlier: tuple[tuple[str, ...], ...] = ()


def run_grader(
    task: Task,
    private: Path,
    sandbox: Sandbox,
    paths: Mapping[str, Path],
    folder: Path,
    stop_token: StopToken,
) -> GraderReport:
    """Call a task's grader, in a fork of a process that has loaded it if the submission is a file.

    Where a fork fails, the grader is called in a process of its own, so a fault never comes from a fork. A
    submission that is a folder has code, which the grader runs and measures from a process of its own.

    Args:
        task: The task whose grade.py is called.
        private: The folder with the hidden answers.
        sandbox: Where the grader runs a submission's code.
        paths: The `submission`; `sources` and `earlier` too if the task's rules are to be checked.
        folder: Where the answer goes, and what the grader leaves in its working directory.
        stop_token: Interrupts grading when a stop is requested.

    Raises:
        TaskFault: If the grader crashes, hangs or returns no number.
    """
    environment = dict(grader_environment(task, sandbox))
    if paths["submission"].is_file():
        (in_fork := folder / "fork").mkdir()
        answer, timeout_s = in_fork / "answer.json", task.config.grading_minutes * 60
        key = ServerKey(task.folder, private, tuple(environment.items()))
        with suppress(OSError, subprocess.TimeoutExpired, ValidationError):
            if shared_pool().grade(key, {**paths, "answer": answer}, timeout_s, stop_token):
                return GraderReport.model_validate_json(answer.read_bytes())
    (in_process := folder / "process").mkdir()
    return _run_grader_process(task, private, environment, paths, in_process, stop_token)


def _run_grader_process(
    task: Task,
    private: Path,
    environment: dict[str, str],
    paths: Mapping[str, Path],
    folder: Path,
    stop_token: StopToken,
) -> GraderReport:
    answer, errors, no_scripts = folder / "answer.json", folder / "errors.txt", folder.with_name("no scripts")
    no_scripts.mkdir()
    submission = paths["submission"]
    sources, earlier = (paths.get(name, no_scripts) for name in ("sources", "earlier"))
    command = grader_command("grader_process", task.folder, submission, sources, private, answer, earlier)
    try:
        with errors.open("wb") as stderr:  # to a file: the output is untrusted and may be large
            child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                env=environment,
                cwd=folder,
                start_new_session=True,  # a grader killed by Ctrl-C would look like a fault
            )
        _wait_or_kill(child, task.config.grading_minutes * 60, stop_token)
    except subprocess.TimeoutExpired as error:
        limit = f"{task.config.grading_minutes:g} minutes"
        raise TaskFault(f"{task.name}/grade.py took longer than {limit}") from error
    if child.returncode != 0 or not answer.is_file():
        reason, details = _describe_failure(errors, child.returncode)
        raise TaskFault(f"{task.name}/grade.py failed: {reason}", details)
    try:
        return GraderReport.model_validate_json(answer.read_bytes())
    except ValidationError as error:
        raise TaskFault(f"{task.name}/grade.py wrote an invalid answer: {error}") from error


def _wait_or_kill(child: "subprocess.Popen[bytes]", seconds: float, stop_token: StopToken) -> None:
    """Wait for the process; kill it on timeout, on a stop request and on any other exception."""
    deadline = time.monotonic() + seconds
    pidfd = os.pidfd_open(child.pid)
    try:
        exit_poll = select.poll()  # returns at the exit; Popen.wait(timeout) may notice it 50 ms later
        exit_poll.register(pidfd, select.POLLIN)
        while not exit_poll.poll(POLL_INTERVAL_S * 1000):
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(child.args, seconds)
            stop_token.raise_if_requested()
        child.wait()
    except BaseException:
        child.kill()
        child.wait()
        raise
    finally:
        os.close(pidfd)


def _describe_failure(errors: Path, code: int) -> tuple[str, str]:
    """Why the grader failed in one line, and the lines that it printed before."""
    with errors.open("rb") as file:
        file.seek(max(0, errors.stat().st_size - MAX_STDERR_BYTES))
        before, _, last = file.read().decode("utf-8", "replace").strip().rpartition("\n")
    status = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
    if not last:
        return status, ""
    # An exception of grade.py is reported with its line; the exit code 1 adds nothing.
    suffix = f" ({status})" if code != 1 else ""
    return f"{strip_control_chars(last)[:MAX_ERROR_CHARS]}{suffix}", last_lines(before)
