"""Times greedy generation against the starter's, side by side, and checks the tokens with the model."""

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from hashlib import file_digest
from pathlib import Path
from typing import Any

import numpy as np

from mlagentbench.grading.checks import InvalidSubmission, Program, Question, SpeedComparison

STARTER = Path(__file__).parent / "starter"
LOGIT_TOLERANCE = 0.5  # a token is correct if its logit is at most this far below the highest
MIN_CORRECT_SHARE = (
    0.97  # of tokens before the first wrong one of their prompt; leaving out one per round is 0.9
)
TARGET_STANDARD_ERROR = 0.03  # as a share of the score; success needs 10 %
TEXTS_PER_BATCH = 64  # checked at a time

Ints = np.ndarray[Any, np.dtype[np.int64]]
Floats = np.ndarray[Any, np.dtype[np.float32]]


def grade(submission: Path, private: Path) -> float:
    """Return the generation time relative to the starter's, each kind of question at its median."""
    plan = json.loads((private / "plan.json").read_text())
    if (submission / "llama.py").is_symlink() or not (submission / "llama.py").is_file():
        raise InvalidSubmission("llama.py is missing, or is not a regular file")
    for name, known in plan["files"].items():
        if _hash(submission, name) != known:
            raise InvalidSubmission(f"{name} is missing or was changed")
    _check_size(submission, plan["extra_gb"])
    answers = GeneratedTokens()
    prompts = PromptPool(np.load(private / "prompts.npy"))
    calls = [Call(**question, most_sets=plan["sets"]) for question in plan["questions"]]
    with _starter_folder(submission, plan["files"]) as starter:
        comparison = SpeedComparison(
            starter,
            submission,
            partial(_start_program, plan),
            lambda: [_make_question(prompts, answers, call) for call in calls],
            reuse_programs=True,
            max_relative_error=TARGET_STANDARD_ERROR,
        )
        score = comparison.run(plan["rounds"], plan["most"])
        _check_answers(answers, starter / "weights")
    return score


class PromptPool:
    """Draws hidden prompts in random order; none is repeated while unused ones are left."""

    def __init__(self, tokens: Ints) -> None:
        self._prompts, self._unused = tokens, np.empty(0, np.int64)

    def draw(self, lengths: list[int]) -> Ints:
        """Draw one prompt for each length, padded with zeros."""
        if len(self._unused) < len(lengths):
            self._unused = np.random.default_rng().permutation(len(self._prompts))  # system entropy
        rows, self._unused = self._unused[: len(lengths)], self._unused[len(lengths) :]
        prompts = self._prompts[rows, : max(lengths)]
        return np.where(np.arange(max(lengths)) < np.array(lengths)[:, None], prompts, 0)


@dataclass
class GeneratedTokens:
    """The tokens generated for each prompt, by the starter and by the submission."""

    starter: dict[tuple[int, ...], Ints] = field(default_factory=dict)
    submission: dict[tuple[int, ...], Ints] = field(default_factory=dict)


@dataclass
class Call:
    """One call of a round. The submission answers it for as many sets of prompts as fit into the starter's
    time, up to a limit: more tokens are checked, and its time is measured more precisely.
    """

    lengths: list[int]
    new_tokens: int
    most_sets: int
    starter_seconds: float = 0.0


def _make_question(prompts: PromptPool, answers: GeneratedTokens, call: Call) -> Question:
    sets = [prompts.draw(call.lengths) for _ in range(call.most_sets)]

    def ask(program: Program, original: bool, limit: float) -> float:
        if original:
            call.starter_seconds = _ask(program, call, sets[0], answers.starter, limit)
            return call.starter_seconds
        seconds: list[float] = []
        for padded_prompts in sets:
            if not seconds or sum(seconds) < call.starter_seconds:
                seconds.append(_ask(program, call, padded_prompts, answers.submission, limit))
        return float(np.median(seconds))

    return ask


def _ask(
    program: Program, call: Call, prompts: Ints, recorded: dict[tuple[int, ...], Ints], limit: float
) -> float:
    """Ask for the tokens after one set of prompts, record them, and return the seconds."""
    shape = (len(call.lengths), call.new_tokens)
    arguments = (prompts, np.array(call.lengths, np.int64), np.array(call.new_tokens))
    arrays, seconds = program.ask(*arguments, timeout_s=limit, max_bytes=8 * shape[0] * shape[1])
    tokens = _check_tokens(arrays, shape)
    for prompt, length, generated in zip(prompts, call.lengths, tokens, strict=True):
        recorded[tuple(prompt[:length].tolist())] = generated
    return seconds


def _check_tokens(arrays: list[Any], shape: tuple[int, int]) -> Ints:
    """Return the tokens of an answer, which must be one array of integers."""
    if len(arrays) != 1:
        raise InvalidSubmission(f"generate returned {len(arrays)} arrays; it must return one")
    (tokens,) = arrays
    if tokens.shape != shape or tokens.dtype.kind not in "iu":
        raise InvalidSubmission(f"generate returned {tokens.dtype} {tokens.shape}; expected int64 {shape}")
    as_int64: Ints = tokens.astype(np.int64)
    return as_int64


def _start_program(plan: dict[str, Any], folder: Path) -> Program:
    limits = {"start_timeout_s": plan["start_seconds"], "memory_gb": plan["memory_gb"]}
    return Program(folder, "llama", "generate", **limits)


@contextmanager
def _starter_folder(submission: Path, files: dict[str, str]) -> Iterator[Path]:
    """Yield a folder with the starter and the submission's copy of the model, which is unchanged."""
    with tempfile.TemporaryDirectory(dir=submission.parent) as folder_name:
        folder = Path(folder_name)
        folder.chmod(0o755)
        for name in ("llama.py", "model.py"):
            shutil.copy(STARTER / name, folder)
        for name in files:
            (folder / name).parent.mkdir(mode=0o755, exist_ok=True)
            os.link(submission / name, folder / name)
        yield folder


def _check_size(submission: Path, most_gb: float) -> None:
    """Reject a submission whose own files, all but those in `weights/`, are too large."""
    paths = (path for path in submission.rglob("*") if path.relative_to(submission).parts[0] != "weights")
    size = sum(path.lstat().st_size for path in paths if not path.is_dir())
    if size > most_gb * 1e9:
        raise InvalidSubmission(
            f"the files of the workspace, without weights/, have {size / 1e9:.2f} GB; at most {most_gb:g} GB"
            " are allowed"
        )


def _hash(folder: Path, name: str) -> str:
    """Return the hash of a regular file, or "" if it is missing or a symbolic link."""
    path = folder / name
    if path.parent.is_symlink() or path.is_symlink() or not path.is_file():
        return ""
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


def _check_answers(answers: GeneratedTokens, folder: Path) -> None:
    """Reject a submission with too many wrong tokens; tokens that equal the starter's are correct."""
    differing = [
        prompt
        for prompt, generated in answers.submission.items()
        if prompt not in answers.starter or not _is_equal(generated, answers.starter[prompt])
    ]
    total = sum(len(generated) for generated in answers.submission.values())
    correct = total - sum(len(answers.submission[prompt]) for prompt in differing)
    if differing:
        model = NumpyModel(folder)
        for start in range(0, len(differing), TEXTS_PER_BATCH):
            batch = differing[start : start + TEXTS_PER_BATCH]
            correct += model.count_correct(batch, [answers.submission[prompt] for prompt in batch])
    if correct < MIN_CORRECT_SHARE * total:
        raise InvalidSubmission(
            f"only {correct / total:.1%} of the tokens are correct; at least {MIN_CORRECT_SHARE:.0%} must be"
        )


def _is_equal(first: Ints, second: Ints) -> bool:
    return bool(np.array_equal(first, second))


class NumpyModel:
    """The model in plain numpy and single precision; weights are read when needed, and not kept in memory."""

    def __init__(self, folder: Path) -> None:
        self.config = json.loads((folder / "config.json").read_text())
        self._file = np.load(folder / "weights.npz")

    def count_correct(self, prompts: list[tuple[int, ...]], answers: list[Ints]) -> int:
        """Count the generated tokens before the first wrong one of each prompt."""
        vocab_size = self.config["vocab_size"]
        known = [np.where((generated < 0) | (generated >= vocab_size), 0, generated) for generated in answers]
        texts = [np.array([*prompt, *generated]) for prompt, generated in zip(prompts, known, strict=True)]
        tokens = np.zeros((len(texts), max(map(len, texts))), np.int64)
        for row, text in enumerate(texts):
            tokens[row, : len(text)] = text
        states = self.compute_states(tokens)
        head = self._weights("model.embed_tokens" if self.config["tie_word_embeddings"] else "lm_head").T
        count = 0
        for state, prompt, generated, answer in zip(states, prompts, known, answers, strict=True):
            logits = state[len(prompt) - 1 : len(prompt) - 1 + len(generated)] @ head
            is_wrong = logits.max(axis=1) - logits[np.arange(len(generated)), generated] > LOGIT_TOLERANCE
            is_wrong |= generated != answer
            count += int(is_wrong.argmax()) if is_wrong.any() else len(generated)
        return count

    def compute_states(self, tokens: Ints) -> Floats:
        """Return the final hidden state at each token of each text; the output layer maps it to logits."""
        x = self._weights("model.embed_tokens")[tokens]
        for number in range(self.config["num_hidden_layers"]):
            layer = f"model.layers.{number}"
            x = x + self._attention(f"{layer}.self_attn", self._rms_norm(x, f"{layer}.input_layernorm"))
            y = self._rms_norm(x, f"{layer}.post_attention_layernorm")
            gate, up = (y @ self._weights(f"{layer}.mlp.{name}_proj").T for name in ("gate", "up"))
            x = x + (gate / (1 + np.exp(-gate)) * up) @ self._weights(f"{layer}.mlp.down_proj").T
        return self._rms_norm(x, "model.norm")

    def _weights(self, name: str) -> Floats:
        weights: Floats = self._file[f"{name}.weight"].astype(np.float32)
        return weights

    def _rms_norm(self, x: Floats, name: str) -> Floats:
        size = np.sqrt((x * x).mean(axis=-1, keepdims=True) + np.float32(self.config["rms_norm_eps"]))
        scaled: Floats = x / size * self._weights(name)
        return scaled

    def _attention(self, name: str, x: Floats) -> Floats:
        count, length, _ = x.shape
        heads, groups = self.config["num_attention_heads"], self.config["num_key_value_heads"]
        parts = []  # by text, group, head of the group, position
        for part, heads_per_group in (("q", heads // groups), ("k", 1), ("v", 1)):
            mixed = (x @ self._weights(f"{name}.{part}_proj").T).reshape(
                count, length, groups, heads_per_group, -1
            )
            parts.append(mixed.transpose(0, 2, 3, 1, 4))
        queries, keys, values = self._rotate(parts[0]), self._rotate(parts[1]), parts[2]
        scores = queries @ keys.swapaxes(3, 4) / np.float32(np.sqrt(keys.shape[-1]))
        scores = np.where(np.tri(length, dtype=bool), scores, np.float32(-np.inf))
        shares = np.exp(scores - scores.max(axis=-1, keepdims=True))
        mixed = shares / shares.sum(axis=-1, keepdims=True) @ values
        joined = mixed.transpose(0, 3, 1, 2, 4).reshape(count, length, -1)
        out: Floats = joined @ self._weights(f"{name}.o_proj").T
        return out

    def _rotate(self, x: Floats) -> Floats:
        """Apply rotary positions: rotate pairs (i, i + half a head) by an angle that grows with position."""
        half = x.shape[-1] // 2
        angles = np.outer(np.arange(x.shape[-2]), self.config["rope_theta"] ** (-np.arange(half) / half))
        cos, sin = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
        first, second = x[..., :half], x[..., half:]
        return np.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)
