"""Measures generate() of llama.py on prompts like those of the grader, and checks its tokens."""

import json
import os
import time
from pathlib import Path

import numpy as np
import torch

from llama import generate
from model import device, load


def draw(prompts, lengths):
    """A prompt of each length, with zeros after it, and the prompts that are left."""
    given = np.where(np.arange(max(lengths)) < np.array(lengths)[:, None], prompts[: len(lengths), : max(lengths)], 0)
    return given, prompts[len(lengths) :]


def readable(tokens, texts):
    """Tokens as text."""
    return "".join(texts[token] for token in tokens).encode("latin-1").decode(errors="replace")


@torch.no_grad()
def agreed(model, prompt, added):
    """How many of the added tokens come before the first whose score is too far below the highest."""
    tokens = torch.from_numpy(np.concatenate([prompt, added])).to(device)
    scores = model(tokens[:-1])[len(prompt) - 1 :]
    gaps = scores.amax(1) - scores[torch.arange(len(added)), tokens[len(prompt) :]]
    wrong = (gaps > 0.5).nonzero()
    return int(wrong[0]) if len(wrong) else len(added)


def main():
    rng = np.random.default_rng(int(os.environ.get("SEED", "0")))
    texts = json.loads(Path("weights/tokens.json").read_text())
    questions = json.loads(Path("questions.json").read_text())
    prompts = rng.permutation(np.load("prompts.npy"))
    rounds, asked = [], []
    for number in range(2):
        seconds = 0.0
        for question in questions:
            lengths, new_tokens = question["lengths"], question["new_tokens"]
            given, prompts = draw(prompts, lengths)
            started = time.perf_counter()
            answers = generate(given, np.array(lengths), new_tokens)
            seconds += time.perf_counter() - started
            if answers.shape != (len(lengths), new_tokens) or answers.dtype.kind not in "iu":
                raise SystemExit(f"generate returned {answers.dtype} {answers.shape}")
            asked += [(given[row, :length], answers[row]) for row, length in enumerate(lengths)]
        print(f"round {number + 1}: {seconds:.3f} seconds", flush=True)
        rounds.append(seconds)
    for prompt, added in asked[: len(questions[0]["lengths"])]:
        print(f"{readable(prompt, texts)!r} -> {readable(added, texts)!r}")
    model = load()
    right = sum(agreed(model, prompt, added.astype(np.int64)) for prompt, added in asked)
    print(f"tokens that agree with the model: {right / sum(len(added) for _, added in asked):.1%}")
    print(f"validation seconds: {min(rounds):.4f}")


main()
