"""Grades a language model: text goes in only after its prediction came out, and the bits are counted here."""

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mlagentbench.grading.checks import InvalidSubmission, Program, forbidden_imports

TOKENS = 4096  # at most, in a vocabulary of the submission's own
LONGEST = 32  # bytes of one token
FILE = TOKENS * (2 * LONGEST + 10)  # bytes of the vocabulary's file
FLOOR = 1e-9  # a smaller chance counts as this: 30 bits
TOLERANCE = 1e-4  # of the sum of the chances
START_SECONDS = 60
FORBIDDEN = (
    *("transformers", "tokenizers", "sentence_transformers", "huggingface_hub", "datasets", "safetensors"),
    *("torchtext", "spacy", "nltk", "gensim"),
)

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


def violations(sources: Path) -> list[str]:
    """Where train.py or model.py, or what they import, uses models or text from elsewhere."""
    found = [forbidden_imports(sources, name, FORBIDDEN) for name in ("train.py", "model.py")]
    return sorted({sentence for sentences in found for sentence in sentences})


def grade(submission: Path, private: Path) -> float:
    """Bits per byte of the hidden streams."""
    texts = np.load(private / "test.npy", allow_pickle=False)
    seconds = json.loads((private / "plan.json").read_text())["seconds"]
    if not _is_plain(submission / "model.py"):
        raise InvalidSubmission("model.py is missing, or is not a plain file")
    vocabulary = read_vocabulary(submission / "tokens.json")
    spelt = [spell(text.tobytes(), vocabulary) for text in texts]
    with Program(submission, "model", "predict", start_seconds=START_SECONDS) as program:
        return count_bits(program, spelt, len(vocabulary), seconds) / float(texts.size)


def word_perplexity(bits_per_byte: float, text: bytes) -> float:
    """The same score as the perplexity of a word, which is what stands between white space."""
    return float(2.0 ** (bits_per_byte * len(text) / len(text.split())))


def count_bits(program: Program, spelt: list[list[int]], size: int, seconds: float) -> float:
    """Ask for the next token of all streams at once, and only then tell which it is."""
    lengths = np.array([len(tokens) for tokens in spelt])
    tokens = np.full((len(spelt), lengths.max()), -1, np.int64)
    for row, each in zip(tokens, spelt, strict=True):
        row[: len(each)] = each
    previous, bits = np.full(len(spelt), -1, np.int64), 0.0
    deadline = time.monotonic() + seconds
    for at in range(tokens.shape[1]):
        left = deadline - time.monotonic()
        if left <= 0:
            raise InvalidSubmission(f"predict took more than {seconds:g} seconds for all of the text")
        answers, _ = program.ask(previous, seconds=left, most=len(spelt) * size * 8)
        live = np.flatnonzero(lengths > at)
        chances = check(answers, len(spelt), size)[live]
        previous = tokens[:, at].copy()
        bits -= float(np.log2(np.maximum(chances[np.arange(len(live)), previous[live]], FLOOR)).sum())
    return bits


def check(answers: list[Any], streams: int, size: int) -> Floats:
    """The chances in an answer, which must be a distribution for each stream."""
    if len(answers) != 1:
        raise InvalidSubmission(f"predict returned {len(answers)} arrays; one is right")
    (answer,) = answers
    if answer.dtype.kind != "f" or answer.shape != (streams, size):
        raise InvalidSubmission(
            f"predict returned {answer.dtype} {answer.shape}; floating-point numbers {(streams, size)} are right"
        )
    chances: Floats = answer.astype(np.float64)
    if not np.isfinite(chances).all():
        raise InvalidSubmission("predict returned chances that are not finite")
    if chances.min() < 0:
        raise InvalidSubmission(f"predict returned a negative chance: {chances.min():.3g}")
    with np.errstate(over="ignore"):
        sums = chances.sum(axis=1, keepdims=True)
    if (worst := float(np.abs(sums - 1).max())) > TOLERANCE:
        raise InvalidSubmission(
            f"predict returned chances whose sum is off 1 by {worst:.3g}; {TOLERANCE:g} is allowed"
        )
    return np.asarray(chances / sums)


def read_vocabulary(path: Path) -> dict[bytes, int]:
    """The numbers of all tokens: those of tokens.json, or the 256 bytes if there is no such file."""
    single = {bytes([value]): value for value in range(256)}
    if not path.exists() and not path.is_symlink():
        return single
    if not _is_plain(path) or path.stat().st_size > FILE:
        raise InvalidSubmission(f"tokens.json is not a plain file of at most {FILE:,} bytes")
    try:
        words = json.loads(path.read_bytes())
        vocabulary = {bytes.fromhex(word): number for number, word in enumerate(words)}
    except (ValueError, TypeError, RecursionError) as error:
        raise InvalidSubmission("tokens.json is not a list of bytes in hexadecimal digits") from error
    if not isinstance(words, list) or len(vocabulary) != len(words):
        raise InvalidSubmission("tokens.json is not a list of different tokens")
    if len(words) > TOKENS or not all(0 < len(token) <= LONGEST for token in vocabulary):
        raise InvalidSubmission(f"tokens.json may have {TOKENS:,} tokens of 1 to {LONGEST} bytes")
    if missing := single.keys() - vocabulary.keys():
        raise InvalidSubmission(
            f"tokens.json lacks {len(missing)} of the 256 single bytes: {min(missing).hex()}, ..."
        )
    return vocabulary


def spell(text: bytes, vocabulary: dict[bytes, int]) -> list[int]:
    """The text in tokens, at each place the longest that fits."""
    longest = max(map(len, vocabulary))
    at, tokens = 0, []
    while at < len(text):
        token = next(
            text[at : at + length] for length in range(longest, 0, -1) if text[at : at + length] in vocabulary
        )
        tokens.append(vocabulary[token])
        at += len(token)
    return tokens


def _is_plain(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()
