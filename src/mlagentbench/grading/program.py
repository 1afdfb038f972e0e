"""Runs a submission's code in a sandbox: sends questions, receives answers and measures the time."""

import json
import os
import select
import struct
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from mlagentbench.errors import InvalidSubmission, SandboxFault
from mlagentbench.records import Limits
from mlagentbench.runtimes.base import Runtime, find_runtime
from mlagentbench.sandbox.base import SandboxProcess, SandboxSpec
from mlagentbench.sandbox.programs import submission_runner
from mlagentbench.sandbox.selection import choose_unprivileged_uid, create_sandbox

Array = np.ndarray[Any, Any]
MAX_CPU_S_WHILE_PAUSED = 0.005  # a process that is stopped inside a system call runs on for a moment
MAX_HEADER_BYTES = 1000  # of an answer, for types and shapes
MAX_OUTPUT_BYTES = 2000  # read from a driver that cannot start
PIPE_CHUNK_BYTES = 1 << 20


class Program:
    """One function of a submission, loaded in a fresh sandbox of its own; a context manager.

    The submission's folder is read-only inside the sandbox.

    Args:
        folder: The submission's folder, which is the working directory inside the sandbox.
        module: The module to import from that folder.
        function: The function of the module that answers questions.
        packages: If given, only these packages and the standard library can be imported; the program then
            cannot start other programs or load machine code of its own. If empty, the whole runtime is
            available.
        start_timeout_s: How long importing the module may take.
        memory_gb: Memory limit of the sandbox.

    Raises:
        InvalidSubmission: If the module cannot be imported, lacks the function, or takes too long to load.
        SandboxFault: If the sandbox itself cannot start.
    """

    def __init__(
        self,
        folder: Path,
        module: str,
        function: str,
        packages: Sequence[str] = (),
        start_timeout_s: float = 60,
        memory_gb: float = 4,
    ) -> None:
        settings = json.loads(os.environ["MLAGENTBENCH_GRADING"])
        self.name = f"{module}.{function}"
        self._paused = False
        runtime = find_runtime(settings["runtime"])
        self._sandbox = create_sandbox(settings["sandbox"], settings.get("gpu", ""))
        driver_file = Path(submission_runner.__file__)
        driver_inside = self._sandbox.path_inside(driver_file, "/opt/driver.py")
        # Threads count as processes, and libraries start one for each core.
        limits = Limits(memory_gb=memory_gb, processes=256)
        spec = SandboxSpec(
            workspace=folder,
            runtime=runtime,
            limits=limits,
            read_only_paths=(".",),
            mounts=((driver_file, driver_inside),),
            masked_paths=_folders_of_other_packages(runtime, packages) if packages else (),
            uid=choose_unprivileged_uid("grading") if self._sandbox.uses_separate_user else None,
        )
        argv = ["python", "-P", driver_inside, module, function, *(["guarded"] if packages else [])]
        self._process: SandboxProcess = self._sandbox.start(argv, spec, stdin=subprocess.PIPE)
        stdin = self._process.child.stdin
        assert stdin is not None
        self._in, self._out = stdin.fileno(), self._process.stdout.fileno()
        try:
            os.set_blocking(self._in, False)
            os.set_blocking(self._out, False)
            self._wait_until_loaded(time.monotonic() + start_timeout_s)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Terminate the program and everything that it started."""
        self._process.close()

    def pause(self) -> None:
        """Suspend the program and everything that it started until the next `ask`."""
        self._process.pause()
        self._paused = True

    def reject_if_ran_while_paused(self) -> None:
        """Reject a program that ran while it was paused: that time is not measured, and it slows others down.

        Raises:
            InvalidSubmission: If the paused program used CPU time.
        """
        if self._paused and self._process.tree.cpu_seconds_while_paused > MAX_CPU_S_WHILE_PAUSED:
            raise InvalidSubmission(f"{self.name} resumed itself while another program was timed")

    def ask(self, *arrays: Array, timeout_s: float, max_bytes: int) -> tuple[list[Array], float]:
        """Call the function with arrays and return its answer and how long it took.

        Args:
            *arrays: The arguments, arrays of numbers; an array without dimensions arrives as a Python number.
            timeout_s: Time limit.
            max_bytes: The largest answer that is accepted.

        Returns:
            The arrays that the function returned, and the seconds from sending the question to receiving the
            whole answer.

        Raises:
            InvalidSubmission: If the function raises, exits, takes too long, exceeds a resource limit, or
                returns something else than arrays of numbers within `max_bytes`.
        """
        question = submission_runner.pack_arrays(list(arrays))
        if self._paused:
            self._process.resume()
            self._paused = False
        started = time.monotonic()
        deadline = started + timeout_s
        self._send(struct.pack("<Q", len(question)) + question, deadline)
        answer = self._receive(deadline, max_bytes + MAX_HEADER_BYTES)
        elapsed = time.monotonic() - started
        try:
            return submission_runner.unpack_arrays(answer), elapsed
        except ValueError as error:
            raise InvalidSubmission(f"{self.name} returned something that is not an array") from error

    def _wait_until_loaded(self, deadline: float) -> None:
        """Wait until the submission is loaded; a failure before its first line runs is a sandbox fault."""
        output = bytearray()
        try:
            while len(output) < len(submission_runner.READY):
                output += self._read(1, deadline)
        except InvalidSubmission as error:
            reason = f"{error}; {_format_output(output)}"
            raise SandboxFault(f"cannot start a program for grading: {reason}") from error
        if output != submission_runner.READY:
            with suppress(InvalidSubmission):
                while len(output) < MAX_OUTPUT_BYTES:
                    output += self._read(1, deadline)
            raise SandboxFault(f"cannot start a program for grading: {_format_output(output)}")
        self._receive(deadline, max_bytes=0)

    def _send(self, data: bytes, deadline: float) -> None:
        view = memoryview(data)
        while view:
            self._wait_ready(self._in, select.POLLOUT, deadline)
            try:
                view = view[os.write(self._in, view[:PIPE_CHUNK_BYTES]) :]
            except BlockingIOError:
                continue
            except BrokenPipeError as error:
                raise self._exit_error("before it read the question") from error

    def _receive(self, deadline: float, max_bytes: int) -> bytearray:
        (size,) = struct.unpack("<Q", self._read(8, deadline))
        if size & submission_runner.ERROR_BIT:
            length = min(size & ~submission_runner.ERROR_BIT, submission_runner.MAX_ERROR_BYTES)
            text = self._read(length, deadline)
            raise InvalidSubmission(f"{self.name} failed: {_format_output(text)}")
        if size > max_bytes:
            raise InvalidSubmission(f"{self.name} returned {size:,} bytes; at most {max_bytes:,} are allowed")
        return self._read(size, deadline)

    def _read(self, size: int, deadline: float) -> bytearray:
        data = bytearray(size)
        view = memoryview(data)
        while view:
            self._wait_ready(self._out, select.POLLIN, deadline)
            try:
                count = os.readv(self._out, [view[:PIPE_CHUNK_BYTES]])
            except BlockingIOError:
                continue
            if not count:
                raise self._exit_error("before it answered")
            view = view[count:]
        return data

    def _wait_ready(self, fd: int, event: int, deadline: float) -> None:
        poll = select.poll()
        poll.register(fd, event)
        ready = False
        while not ready:
            ready = bool(poll.poll(100))
            if time.monotonic() > deadline:
                raise InvalidSubmission(f"{self.name} took too long to answer")
            # Checked even when data has arrived: a program could answer byte by byte to avoid the check.
            if limit := self._process.monitor.check_limits():
                raise InvalidSubmission(f"{self.name} exceeded its {limit} limit")

    def _exit_error(self, when: str) -> InvalidSubmission:
        limit = self._process.monitor.check_limits_at_exit(failed=False)
        reason = f": it exceeded its {limit} limit" if limit else ""
        return InvalidSubmission(f"{self.name} exited {when}{reason}")


def _format_output(text: bytes | bytearray) -> str:
    """Put a program's output on one line."""
    return " ".join(text.decode("utf-8", "replace").split()) or "no output"


def _folders_of_other_packages(runtime: Runtime, packages: Sequence[str]) -> tuple[str, ...]:
    """Return the folders of the packages that the submission may not use."""
    allowed = {name.lower() for name in packages} | {f"{name.lower()}.libs" for name in packages}
    inside = f"{runtime.FOLDER_INSIDE}/{runtime.packages.relative_to(runtime.folder)}"
    folders = [path.name for path in runtime.packages.iterdir() if path.is_dir()]
    return tuple(f"{inside}/{name}" for name in folders if name.lower().split("-")[0] not in allowed)
