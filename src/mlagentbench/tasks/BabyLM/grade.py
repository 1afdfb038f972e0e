"""Grades a language model: it gets each byte only after predicting it, and the bits are counted here."""

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mlagentbench.grading.checks import InvalidSubmission, Program, forbidden_imports

MAX_TOKENS = 4096  # of a submission's own vocabulary
MAX_TOKEN_BYTES = 32
MAX_FILE_BYTES = MAX_TOKENS * (2 * MAX_TOKEN_BYTES + 10)  # of tokens.json
MIN_PROBABILITY = 1e-9  # smaller probabilities count as this: 30 bits
TOLERANCE = 1e-4  # of the sum of the probabilities
START_SECONDS = 60
FORBIDDEN_PACKAGES = (
    *("transformers", "tokenizers", "sentence_transformers", "huggingface_hub", "datasets", "safetensors"),
    *("torchtext", "spacy", "nltk", "gensim"),
)

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


def violations(sources: Path) -> list[str]:
    """Report imports of packages with pretrained models or text in train.py and model.py."""
    by_script = [forbidden_imports(sources, name, FORBIDDEN_PACKAGES) for name in ("train.py", "model.py")]
    return sorted({message for messages in by_script for message in messages})


def grade(submission: Path, private: Path) -> float:
    """Return the bits per byte of the hidden streams."""
    texts = np.load(private / "test.npy", allow_pickle=False)
    seconds = json.loads((private / "plan.json").read_text())["seconds"]
    if not _is_regular_file(submission / "model.py"):
        raise InvalidSubmission("model.py is missing, or is not a regular file")
    vocabulary = read_vocabulary(submission / "tokens.json")
    encoded = [encode(text.tobytes(), vocabulary) for text in texts]
    with Program(submission, "model", "predict", start_timeout_s=START_SECONDS) as program:
        return count_bits(program, encoded, len(vocabulary), seconds) / float(texts.size)


def word_perplexity(bits_per_byte: float, text: bytes) -> float:
    """Convert bits per byte to the perplexity per word, where words are separated by white space."""
    return float(2.0 ** (bits_per_byte * len(text) / len(text.split())))


def count_bits(program: Program, encoded: list[list[int]], size: int, seconds: float) -> float:
    """Ask for the next token of all streams at once, and reveal it only with the next question."""
    lengths = np.array([len(tokens) for tokens in encoded])
    tokens = np.full((len(encoded), lengths.max()), -1, np.int64)
    for row, stream_tokens in zip(tokens, encoded, strict=True):
        row[: len(stream_tokens)] = stream_tokens
    previous, bits = np.full(len(encoded), -1, np.int64), 0.0
    deadline = time.monotonic() + seconds
    for position in range(tokens.shape[1]):
        seconds_left = deadline - time.monotonic()
        if seconds_left <= 0:
            raise InvalidSubmission(f"predict took more than {seconds:g} seconds in total")
        answers, _ = program.ask(previous, timeout_s=seconds_left, max_bytes=len(encoded) * size * 8)
        active = np.flatnonzero(lengths > position)
        probabilities = check_probabilities(answers, len(encoded), size)[active]
        previous = tokens[:, position].copy()
        bits -= float(
            np.log2(
                np.maximum(probabilities[np.arange(len(active)), previous[active]], MIN_PROBABILITY)
            ).sum()
        )
    return bits


def check_probabilities(answers: list[Any], streams: int, size: int) -> Floats:
    """Return the probabilities in an answer, which must be a distribution for each stream."""
    if len(answers) != 1:
        raise InvalidSubmission(f"predict returned {len(answers)} arrays; it must return one")
    (answer,) = answers
    if answer.dtype.kind != "f" or answer.shape != (streams, size):
        raise InvalidSubmission(
            f"predict returned {answer.dtype} {answer.shape}; expected floating-point {(streams, size)}"
        )
    probabilities: Floats = answer.astype(np.float64)
    if not np.isfinite(probabilities).all():
        raise InvalidSubmission("predict returned probabilities that are not finite")
    if probabilities.min() < 0:
        raise InvalidSubmission(f"predict returned a negative probability: {probabilities.min():.3g}")
    with np.errstate(over="ignore"):
        sums = probabilities.sum(axis=1, keepdims=True)
    if (worst := float(np.abs(sums - 1).max())) > TOLERANCE:
        raise InvalidSubmission(
            f"predict returned probabilities whose sum differs from 1 by {worst:.3g};"
            f" at most {TOLERANCE:g} is allowed"
        )
    return np.asarray(probabilities / sums)


def read_vocabulary(path: Path) -> dict[bytes, int]:
    """Return the ids of all tokens: those of tokens.json, or the 256 bytes if there is no such file."""
    single_bytes = {bytes([value]): value for value in range(256)}
    if not path.exists() and not path.is_symlink():
        return single_bytes
    if not _is_regular_file(path) or path.stat().st_size > MAX_FILE_BYTES:
        raise InvalidSubmission(f"tokens.json is not a regular file of at most {MAX_FILE_BYTES:,} bytes")
    try:
        entries = json.loads(path.read_bytes())
        vocabulary = {bytes.fromhex(entry): number for number, entry in enumerate(entries)}
    except (ValueError, TypeError, RecursionError) as error:
        raise InvalidSubmission("tokens.json is not a list of strings of hexadecimal digits") from error
    if not isinstance(entries, list) or len(vocabulary) != len(entries):
        raise InvalidSubmission("tokens.json is not a list of distinct tokens")
    if len(entries) > MAX_TOKENS or not all(0 < len(token) <= MAX_TOKEN_BYTES for token in vocabulary):
        raise InvalidSubmission(
            f"tokens.json may have at most {MAX_TOKENS:,} tokens of 1 to {MAX_TOKEN_BYTES} bytes"
        )
    if missing := single_bytes.keys() - vocabulary.keys():
        raise InvalidSubmission(
            f"tokens.json lacks {len(missing)} of the 256 single bytes, for example {min(missing).hex()}"
        )
    return vocabulary


def encode(text: bytes, vocabulary: dict[bytes, int]) -> list[int]:
    """Encode the text greedily: at each position the longest token that matches."""
    longest = max(map(len, vocabulary))
    position, tokens = 0, []
    while position < len(text):
        token = next(
            text[position : position + length]
            for length in range(longest, 0, -1)
            if text[position : position + length] in vocabulary
        )
        tokens.append(vocabulary[token])
        position += len(token)
    return tokens


def _is_regular_file(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()
