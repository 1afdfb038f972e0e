"""Drives a submission's code inside the sandbox: questions go in, answers come out, the clock is on this side."""

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
from mlagentbench.grading import driver
from mlagentbench.records import Limits
from mlagentbench.runtimes.base import Runtime, find_runtime
from mlagentbench.sandbox.base import SandboxProcess, SandboxSpec
from mlagentbench.sandbox.selection import choose_unprivileged_uid, create_sandbox

Array = np.ndarray[Any, Any]
MAX_CPU_S_WHILE_PAUSED = 0.005  # seconds in which who was stopped deep in the kernel comes to rest
ERROR_BIT = 1 << 63  # the bit of an answer's length which says that the answer is an error


class Program:
    """One function of a submission in a fresh sandbox of its own; the folder is read-only to it.

    With `packages`, the program may use those and Python's own, and neither start other programs nor load machine
    code that it brought along.
    """

    def __init__(
        self,
        folder: Path,
        module: str,
        function: str,
        packages: Sequence[str] = (),
        start_seconds: float = 60,
        memory_gb: float = 4,
    ) -> None:
        settings = json.loads(os.environ["MLAGENTBENCH_GRADING"])
        self.name = f"{module}.{function}"
        self._paused = False
        environment = find_runtime(settings["runtime"])
        self._sandbox = create_sandbox(settings["sandbox"], settings.get("gpu", ""))
        code = Path(driver.__file__)
        inside = str(code) if self._sandbox.name == "none" else "/opt/driver.py"
        box = SandboxSpec(
            workspace=folder,
            runtime=environment,
            limits=Limits(
                memory_gb=memory_gb, processes=256
            ),  # threads count, and libraries start one for each core
            read_only_paths=(".",),
            mounts=((code, inside),),
            masked_paths=_folders_of_other_packages(environment, packages) if packages else (),
            uid=choose_unprivileged_uid("grading"),
        )
        argv = ["python", "-P", inside, module, function, *(["guarded"] if packages else [])]
        self._process: SandboxProcess = self._sandbox.start(argv, box, stdin=subprocess.PIPE)
        stdin = self._process.child.stdin
        assert stdin is not None
        self._in, self._out = stdin.fileno(), self._process.stdout.fileno()
        try:
            os.set_blocking(self._in, False)
            os.set_blocking(self._out, False)
            self._wait_until_loaded(time.monotonic() + start_seconds)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End the program with everything that it started."""
        self._process.close()

    def pause(self) -> None:
        """Stop it where it is, with everything that it started, until it is asked again."""
        self._process.tree.pause()
        self._paused = True

    def reject_if_ran_while_paused(self) -> None:
        """Refuse a program that ran while it was stopped, which nobody timed and which slows others down."""
        if self._paused and self._process.tree.cpu_seconds_while_paused > MAX_CPU_S_WHILE_PAUSED:
            raise InvalidSubmission(f"{self.name} had itself woken while another program was timed")

    def ask(self, *arrays: Array, seconds: float, most: int) -> tuple[list[Array], float]:
        """The answer to one question, of at most `most` bytes, and how long it took."""
        question = driver.pack_arrays(list(arrays))
        if self._paused:
            self._process.tree.resume()
            self._paused = False
        started = time.monotonic()
        deadline = started + seconds
        self._send(struct.pack("<Q", len(question)) + question, deadline)
        answer = self._receive(deadline, most + 1000)
        took = time.monotonic() - started
        try:
            return driver.unpack_arrays(answer), took
        except ValueError as error:
            raise InvalidSubmission(f"{self.name} answered something that is not an array") from error

    def _wait_until_loaded(self, deadline: float) -> None:
        """Wait until the submission is loaded. What goes wrong before its first line runs is not its fault."""
        said = bytearray()
        try:
            while len(said) < len(driver.READY):
                said += self._read(1, deadline)
        except InvalidSubmission as error:
            raise SandboxFault(
                f"no program can be started for grading: {error}; {_format_output(said)}"
            ) from error
        if said != driver.READY:
            with suppress(InvalidSubmission):
                while len(said) < 2000:
                    said += self._read(1, deadline)
            raise SandboxFault(f"no program can be started for grading: {_format_output(said)}")
        self._receive(deadline, most=0)

    def _send(self, data: bytes, deadline: float) -> None:
        view = memoryview(data)
        while view:
            self._wait_ready(self._in, select.POLLOUT, deadline)
            try:
                view = view[os.write(self._in, view[: 1 << 20]) :]
            except BlockingIOError:
                continue
            except BrokenPipeError as error:
                raise self._exit_error("before it was asked") from error

    def _receive(self, deadline: float, most: int) -> bytearray:
        (size,) = struct.unpack("<Q", self._read(8, deadline))
        if size & ERROR_BIT:
            text = self._read(min(size & ~ERROR_BIT, 1000), deadline)
            raise InvalidSubmission(f"{self.name} failed: {_format_output(text)}")
        if size > most:
            raise InvalidSubmission(f"{self.name} answered {size:,} bytes; at most {most:,} were expected")
        return self._read(size, deadline)

    def _read(self, size: int, deadline: float) -> bytearray:
        data = bytearray(size)
        view = memoryview(data)
        while view:
            self._wait_ready(self._out, select.POLLIN, deadline)
            try:
                count = os.readv(self._out, [view[: 1 << 20]])
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
            # Looked at even when there is news, which a program could send byte by byte to go unwatched.
            if limit := self._process.monitor.check_limits():
                raise InvalidSubmission(f"{self.name} went over its {limit} limit")

    def _exit_error(self, when: str) -> InvalidSubmission:
        limit = self._process.monitor.check_limits_at_exit(failed=False)
        return InvalidSubmission(
            f"{self.name} ended {when}" + (f": it went over its {limit} limit" if limit else "")
        )


def _format_output(text: bytes | bytearray) -> str:
    """What a program said, on one line."""
    return " ".join(text.decode("utf-8", "replace").split()) or "it said nothing"


def _folders_of_other_packages(environment: Runtime, packages: Sequence[str]) -> tuple[str, ...]:
    """The folders of packages that the submission may not use."""
    wanted = {name.lower() for name in packages} | {f"{name.lower()}.libs" for name in packages}
    inside = f"{environment.FOLDER_INSIDE}/{environment.packages.relative_to(environment.folder)}"
    folders = [path.name for path in environment.packages.iterdir() if path.is_dir()]
    return tuple(f"{inside}/{name}" for name in folders if name.lower().split("-")[0] not in wanted)
