"""A sandbox that lives as long as an Inspect sample: its commands share their files, and may leave others running."""

import itertools
import json
import math
import os
import subprocess
import threading
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from socket import MSG_DONTWAIT, socket
from typing import Any

from mlagentbench.actions.execute_script import outcome
from mlagentbench.adapters.inspect import resident_driver
from mlagentbench.adapters.inspect.resident_driver import HEAD, Answer, frame
from mlagentbench.errors import SandboxFault, Stopped
from mlagentbench.records import Limit
from mlagentbench.sandbox.base import Box, Process, Sandbox
from mlagentbench.sandbox.output import Output
from mlagentbench.stopping import Stopping

INSIDE = "/opt/resident.py"
ROOM = 1 << 20  # bytes of an answer besides what was asked for
HEARD = 1 << 20  # bytes taken at once


class Gone(Exception):
    """The sandbox ended before it answered."""

    def __init__(self, why: str, limit: Limit | None) -> None:
        super().__init__(why)
        self.limit = limit


@dataclass
class Question:
    """What the sandbox was asked, and how long its answer may be."""

    number: int
    most: int
    answer: "Future[Answer]" = field(default_factory=Future)


class Resident:
    """One sandbox at work; questions may come from many threads."""

    def __init__(self, sandbox: Sandbox, box: Box) -> None:
        driver = (Path(resident_driver.__file__), INSIDE)
        self._sandbox = sandbox
        self._box = replace(box, mounts=(*box.mounts, driver), stopping=Stopping(), resident=True)
        self._output = Output()
        self._process: Process = sandbox.start(["python", "-u", "-P", INSIDE], self._box, stdin=subprocess.PIPE)
        assert self._process.child.stdin is not None
        self._channel = socket(fileno=os.dup(self._process.child.stdin.fileno()))
        self._heard = bytearray()
        self._numbers = itertools.count(1)
        self._open: dict[int, Question] = {}
        self._turn = threading.Lock()  # of those who speak
        self.gone: Gone | None = None
        self._attendant = threading.Thread(target=self._attend, name="sandbox-attendant", daemon=True)
        self._attendant.start()

    def question(self, most: int = 0) -> Question:
        """A question to be asked, whose answer may have this many bytes."""
        return Question(next(self._numbers), most + ROOM)

    def ask(self, question: Question, asked: dict[str, Any], given: bytes = b"") -> None:
        """Send it something to do; the answer comes into the question's future, or Gone does."""
        with self._turn:
            if self.gone:
                raise self.gone
            self._open[question.number] = question
            with suppress(OSError):  # it has just ended: whoever attends to it says why
                self._channel.sendall(frame({**asked, "id": question.number}, given))

    def take_back(self, question: Question) -> None:
        """End a command whose outcome nobody waits for."""
        with self._turn:
            if not self.gone:
                with suppress(OSError):
                    self._channel.sendall(frame({"do": "end", "id": question.number}))

    def close(self) -> None:
        """End everything inside."""
        self._box.stopping.ask()
        self._attendant.join()

    def _attend(self) -> None:
        """Hear answers and look at the limits, until it ends."""
        gone = Gone("the sandbox was closed", None)
        try:
            news: int | None = self._channel.fileno()
            while self._process.pump(self._output, math.inf, news) == "news":
                news = news if self._hear() else None  # it hung up, and can only end
            done = self._process.finish(self._output)
            gone = Gone(f"{outcome(done, self._box.limits, 0)} {self._output.text}".strip(), done.limit)
        except Stopped:
            pass
        except Exception as error:  # noqa: BLE001 - whoever waits for an answer must hear of it
            gone = Gone(f"{type(error).__name__}: {error}", None)
        finally:
            self._bury(gone)

    def _bury(self, gone: Gone) -> None:
        try:
            self._process.close()
            self._sandbox.release(self._box)
        finally:
            with self._turn:
                self.gone = gone
                self._channel.close()
            for question in self._open.values():
                question.answer.set_exception(gone)

    def _hear(self) -> bool:
        """Take what it says; what inside runs is anybody's code, and so it may not say more than was asked."""
        try:
            said = self._channel.recv(HEARD, MSG_DONTWAIT)
        except ConnectionError:
            return False
        self._heard += said
        while len(self._heard) >= HEAD.size:
            length, size = HEAD.unpack_from(self._heard)
            if length > ROOM:
                raise SandboxFault("the sandbox answers with something else")
            start = HEAD.size + length
            if len(self._heard) < start:
                break
            head = json.loads(self._heard[HEAD.size : start])
            if size > self._open[head["id"]].most:
                raise SandboxFault("the sandbox answers more than it was asked for")
            if len(self._heard) < start + size:
                break
            body = bytes(self._heard[start : start + size])
            del self._heard[: start + size]
            self._open.pop(head["id"]).answer.set_result((head, body))
        return bool(said)
