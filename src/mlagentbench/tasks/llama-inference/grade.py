"""Times greedy generation against the starter's, side by side, and holds the tokens against the model itself."""

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

from mlagentbench.grading.checks import InvalidSubmission, Program, Question, Race

STARTER = Path(__file__).parent / "starter"
SLACK = 0.5  # a token is right if its score is at most so much below the highest
AGREEMENT = (
    0.97  # of all tokens, those before the first wrong one of their prompt; to leave out one a round is 0.9
)
EXACT = 0.03  # a round takes seconds, and the step that counts is 10 %
TOGETHER = 16  # texts that are checked at a time

Ints = np.ndarray[Any, np.dtype[np.int64]]
Floats = np.ndarray[Any, np.dtype[np.float32]]


def grade(submission: Path, private: Path) -> float:
    """The submission's time for generating tokens relative to the starter's, each kind of question at its median."""
    plan = json.loads((private / "plan.json").read_text())
    if (submission / "llama.py").is_symlink() or not (submission / "llama.py").is_file():
        raise InvalidSubmission("llama.py is missing, or is not a plain file")
    for name, known in plan["files"].items():
        if _hash(submission, name) != known:
            raise InvalidSubmission(f"{name} is missing, or is not what it was")
    answers = Answers()
    prompts = Prompts(np.load(private / "prompts.npy"))
    with _original(submission, plan["files"]) as starter:
        race = Race(
            starter,
            submission,
            partial(_program, plan),
            lambda: [_question(prompts, answers, **question) for question in plan["questions"]],
            kept=True,
            exact=EXACT,
        )
        score = race.run(plan["rounds"], plan["most"])
        _compare(answers, starter / "weights")
    return score


class Prompts:
    """The hidden prompts in a random order, none of them twice as long as there are others."""

    def __init__(self, tokens: Ints) -> None:
        self._tokens, self._left = tokens, np.empty(0, np.int64)

    def draw(self, lengths: list[int]) -> Ints:
        """One prompt for each length, with zeros after it."""
        if len(self._left) < len(lengths):
            self._left = np.random.default_rng().permutation(len(self._tokens))  # from the system's entropy
        rows, self._left = self._left[: len(lengths)], self._left[len(lengths) :]
        prompts = self._tokens[rows, : max(lengths)]
        return np.where(np.arange(max(lengths)) < np.array(lengths)[:, None], prompts, 0)


@dataclass
class Answers:
    """What was generated for each prompt: by the starter, and by the submission."""

    starter: dict[tuple[int, ...], Ints] = field(default_factory=dict)
    submission: dict[tuple[int, ...], Ints] = field(default_factory=dict)


def _question(prompts: Prompts, answers: Answers, lengths: list[int], new_tokens: int) -> Question:
    given = prompts.draw(lengths)

    def ask(program: Program, original: bool, limit: float) -> float:
        arrays = (given, np.array(lengths, np.int64), np.array(new_tokens))
        found, seconds = program.ask(*arrays, seconds=limit, most=8 * len(lengths) * new_tokens)
        tokens = _tokens(found, (len(lengths), new_tokens))
        kept = answers.starter if original else answers.submission
        for prompt, length, added in zip(given, lengths, tokens, strict=True):
            kept[tuple(prompt[:length].tolist())] = added
        return seconds

    return ask


def _tokens(found: list[Any], shape: tuple[int, int]) -> Ints:
    """The one array of whole numbers that an answer must be."""
    if len(found) != 1:
        raise InvalidSubmission(f"generate returned {len(found)} arrays; it must return one")
    (tokens,) = found
    if tokens.shape != shape or tokens.dtype.kind not in "iu":
        raise InvalidSubmission(
            f"generate returned {tokens.dtype} {tokens.shape} where int64 {shape} is right"
        )
    whole: Ints = tokens.astype(np.int64)
    return whole


def _program(plan: dict[str, Any], folder: Path) -> Program:
    limits = {"start_seconds": plan["start_seconds"], "memory_gb": plan["memory_gb"]}
    return Program(folder, "llama", "generate", **limits)


@contextmanager
def _original(submission: Path, files: dict[str, str]) -> Iterator[Path]:
    """The starter beside the model, which is the submission's own copy: it was found unchanged."""
    with tempfile.TemporaryDirectory(dir=submission.parent) as place:
        folder = Path(place)
        folder.chmod(0o755)
        for name in ("llama.py", "model.py"):
            shutil.copy(STARTER / name, folder)
        for name in files:
            (folder / name).parent.mkdir(mode=0o755, exist_ok=True)
            os.link(submission / name, folder / name)
        yield folder


def _hash(folder: Path, name: str) -> str:
    """The hash of a plain file that is reached through no link."""
    path = folder / name
    if path.parent.is_symlink() or path.is_symlink() or not path.is_file():
        return ""
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


def _compare(answers: Answers, folder: Path) -> None:
    """Refuse a submission whose tokens are too often not the model's; what the starter says too is right."""
    doubted = [
        prompt for prompt, added in answers.submission.items() if not _same(added, answers.starter[prompt])
    ]
    total = sum(len(added) for added in answers.submission.values())
    right = total - sum(len(answers.submission[prompt]) for prompt in doubted)
    if doubted:
        model = Model(folder)
        for begin in range(0, len(doubted), TOGETHER):
            some = doubted[begin : begin + TOGETHER]
            right += model.agreed(some, [answers.submission[prompt] for prompt in some])
    if right < AGREEMENT * total:
        raise InvalidSubmission(
            f"only {right / total:.1%} of the tokens came before a wrong one; {AGREEMENT:.0%} must be right"
        )


def _same(one: Ints, other: Ints) -> bool:
    return bool(np.array_equal(one, other))


class Model:
    """The model in plain numpy and single precision; weights are read when they are needed, and not kept."""

    def __init__(self, folder: Path) -> None:
        self.config = json.loads((folder / "config.json").read_text())
        self._file = np.load(folder / "weights.npz")

    def agreed(self, prompts: list[tuple[int, ...]], answers: list[Ints]) -> int:
        """How many of the added tokens come before the first that the model would not add there."""
        known = [np.where((added < 0) | (added >= self.config["vocab_size"]), 0, added) for added in answers]
        texts = [np.array([*prompt, *added]) for prompt, added in zip(prompts, known, strict=True)]
        tokens = np.zeros((len(texts), max(map(len, texts))), np.int64)
        for row, text in enumerate(texts):
            tokens[row, : len(text)] = text
        states = self.states(tokens)
        head = self._weights("model.embed_tokens" if self.config["tie_word_embeddings"] else "lm_head").T
        count = 0
        for state, prompt, added, given in zip(states, prompts, known, answers, strict=True):
            scores = state[len(prompt) - 1 : len(prompt) - 1 + len(added)] @ head
            wrong = scores.max(axis=1) - scores[np.arange(len(added)), added] > SLACK
            wrong |= added != given
            count += int(wrong.argmax()) if wrong.any() else len(added)
        return count

    def states(self, tokens: Ints) -> Floats:
        """What the model knows after each token of each text; multiplied by its head, a score for each next token."""
        x = self._weights("model.embed_tokens")[tokens]
        for number in range(self.config["num_hidden_layers"]):
            layer = f"model.layers.{number}"
            x = x + self._attention(f"{layer}.self_attn", self._scaled(x, f"{layer}.input_layernorm"))
            y = self._scaled(x, f"{layer}.post_attention_layernorm")
            gate, up = (y @ self._weights(f"{layer}.mlp.{name}_proj").T for name in ("gate", "up"))
            x = x + (gate / (1 + np.exp(-gate)) * up) @ self._weights(f"{layer}.mlp.down_proj").T
        return self._scaled(x, "model.norm")

    def _weights(self, name: str) -> Floats:
        weights: Floats = self._file[f"{name}.weight"].astype(np.float32)
        return weights

    def _scaled(self, x: Floats, name: str) -> Floats:
        size = np.sqrt((x * x).mean(axis=-1, keepdims=True) + np.float32(self.config["rms_norm_eps"]))
        scaled: Floats = x / size * self._weights(name)
        return scaled

    def _attention(self, name: str, x: Floats) -> Floats:
        count, length, _ = x.shape
        heads, groups = self.config["num_attention_heads"], self.config["num_key_value_heads"]
        parts = []  # by text, group, head of the group, place
        for part, each in (("q", heads // groups), ("k", 1), ("v", 1)):
            mixed = (x @ self._weights(f"{name}.{part}_proj").T).reshape(count, length, groups, each, -1)
            parts.append(mixed.transpose(0, 2, 3, 1, 4))
        queries, keys, values = self._turned(parts[0]), self._turned(parts[1]), parts[2]
        scores = queries @ keys.swapaxes(3, 4) / np.float32(np.sqrt(keys.shape[-1]))
        scores = np.where(np.tri(length, dtype=bool), scores, np.float32(-np.inf))
        shares = np.exp(scores - scores.max(axis=-1, keepdims=True))
        mixed = shares / shares.sum(axis=-1, keepdims=True) @ values
        joined = mixed.transpose(0, 3, 1, 2, 4).reshape(count, length, -1)
        out: Floats = joined @ self._weights(f"{name}.o_proj").T
        return out

    def _turned(self, x: Floats) -> Floats:
        """Pairs of numbers (i, i + half a head) turned by an angle that grows with the position."""
        half = x.shape[-1] // 2
        angles = np.outer(np.arange(x.shape[-2]), self.config["rope_theta"] ** (-np.arange(half) / half))
        cos, sin = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
        first, second = x[..., :half], x[..., half:]
        return np.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)
