"""Drives a submission's code inside the sandbox: questions go in, answers come out, the clock is on this side."""

import ast
import json
import os
import select
import struct
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from mlagentbench.errors import InvalidSubmission
from mlagentbench.grading import driver
from mlagentbench.records import Limits
from mlagentbench.runtimes.base import Runtime, runtime
from mlagentbench.sandbox.base import Box, Process
from mlagentbench.sandbox.choose import sandbox, unprivileged_user

Array = np.ndarray[Any, Any]
FAILED = 1 << 63  # the bit of an answer's length which says that the answer is an error


class Program:
    """One function of a submission in a fresh sandbox of its own; the folder is read-only to it."""

    def __init__(
        self,
        folder: Path,
        module: str,
        function: str,
        packages: Sequence[str] = (),
        start_seconds: float = 60,
    ) -> None:
        settings = json.loads(os.environ["MLAGENTBENCH_GRADING"])
        self.name = f"{module}.{function}"
        environment = runtime(settings["runtime"])
        box = Box(
            workspace=folder,
            runtime=environment,
            limits=Limits(memory_gb=4, processes=64),
            read_only=(".",),
            mounts=((Path(driver.__file__), "/opt/driver.py"),),
            masked=_all_but(environment, packages) if packages else (),
            owner=unprivileged_user("grading"),
        )
        argv = ["python", "-P", "/opt/driver.py", module, function]
        self._sandbox = sandbox(settings["sandbox"])
        self._process: Process = self._sandbox.start(argv, box, stdin=subprocess.PIPE)
        stdin = self._process.child.stdin
        assert stdin is not None
        self._in, self._out = stdin.fileno(), self._process.stdout.fileno()
        os.set_blocking(self._in, False)
        os.set_blocking(self._out, False)
        try:
            self._receive(time.monotonic() + start_seconds, most=0)
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

    def ask(self, *arrays: Array, seconds: float, most: int) -> tuple[list[Array], float]:
        """The answer to one question, of at most `most` bytes, and how long it took."""
        question = driver.pack(list(arrays))
        started = time.monotonic()
        deadline = started + seconds
        self._send(struct.pack("<Q", len(question)) + question, deadline)
        answer = self._receive(deadline, most + 1000)
        took = time.monotonic() - started
        try:
            return driver.unpack(answer), took
        except (ValueError, EOFError, SyntaxError, MemoryError) as error:
            raise InvalidSubmission(f"{self.name} answered something that is not an array") from error

    def _send(self, data: bytes, deadline: float) -> None:
        view = memoryview(data)
        while view:
            self._wait(self._in, select.POLLOUT, deadline)
            try:
                view = view[os.write(self._in, view[: 1 << 20]) :]
            except BlockingIOError:
                continue
            except BrokenPipeError as error:
                raise InvalidSubmission(f"{self.name} ended before it was asked") from error

    def _receive(self, deadline: float, most: int) -> bytes:
        (size,) = struct.unpack("<Q", self._read(8, deadline))
        if size & FAILED:
            text = self._read(min(size & ~FAILED, 1000), deadline).decode("utf-8", "replace")
            raise InvalidSubmission(f"{self.name} failed: {text}")
        if size > most:
            raise InvalidSubmission(f"{self.name} answered {size:,} bytes; at most {most:,} were expected")
        return self._read(size, deadline)

    def _read(self, size: int, deadline: float) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            self._wait(self._out, select.POLLIN, deadline)
            try:
                part = os.read(self._out, min(size - len(parts), 1 << 20))
            except BlockingIOError:
                continue
            if not part:
                raise InvalidSubmission(f"{self.name} ended before it answered")
            parts += part
        return bytes(parts)

    def _wait(self, fd: int, event: int, deadline: float) -> None:
        poll = select.poll()
        poll.register(fd, event)
        while not poll.poll(100):
            if time.monotonic() > deadline:
                raise InvalidSubmission(f"{self.name} took too long to answer")
            if limit := self._process.watch.limit():
                raise InvalidSubmission(f"{self.name} went over its {limit} limit")
        if time.monotonic() > deadline:
            raise InvalidSubmission(f"{self.name} took too long to answer")


def _all_but(environment: Runtime, packages: Sequence[str]) -> tuple[str, ...]:
    """The folders of packages that the submission may not use."""
    wanted = {name.lower() for name in packages} | {f"{name.lower()}.libs" for name in packages}
    inside = f"{environment.INSIDE}/{environment.packages.relative_to(environment.folder)}"
    folders = [path.name for path in environment.packages.iterdir() if path.is_dir()]
    return tuple(f"{inside}/{name}" for name in folders if name.lower().split("-")[0] not in wanted)


def forbidden_imports(folder: Path, start: str, forbidden: Sequence[str]) -> list[str]:
    """Sentences on what `start`, and the modules beside it that it imports, import against the rules."""
    found, todo, seen = [], [start], {start}
    while todo:
        name = todo.pop()
        try:
            tree = ast.parse((folder / name).read_bytes())
        except (SyntaxError, ValueError, OSError, RecursionError):
            continue
        for node in ast.walk(tree):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module:
                modules = [node.module]
            for module in modules:
                top = module.split(".")[0]
                if top in forbidden:
                    found.append(f"{name} line {getattr(node, 'lineno', 0)} imports {module}")
                elif (folder / f"{top}.py").is_file() and f"{top}.py" not in seen:
                    seen.add(f"{top}.py")
                    todo.append(f"{top}.py")
    return found
