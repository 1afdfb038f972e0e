"""Time generate() of llama.py on prompts like those of the grader, and check its tokens."""

import json
import os
import time
from pathlib import Path

import numpy as np
import torch

from llama import generate
from model import device, load

CHECKED_TOKENS = 160  # at least; the grader checks as many, if you are four times as fast as the original


def take_prompts(prompts, lengths):
    """Return one prompt of each length, padded with zeros, and the remaining prompts."""
    padded_prompts = np.where(
        np.arange(max(lengths)) < np.array(lengths)[:, None], prompts[: len(lengths), : max(lengths)], 0
    )
    return padded_prompts, prompts[len(lengths) :]


def decode(tokens, texts):
    """Convert tokens to text."""
    return "".join(texts[token] for token in tokens).encode("latin-1").decode(errors="replace")


@torch.no_grad()
def count_correct(model, prompt, generated):
    """Count the generated tokens before the first one whose logit is too far below the highest."""
    tokens = torch.from_numpy(np.concatenate([prompt, generated])).to(device)
    logits = model(tokens[:-1])[len(prompt) - 1 :]
    gaps = logits.amax(1) - logits[torch.arange(len(generated)), tokens[len(prompt) :]]
    incorrect = (gaps > 0.5).nonzero()
    return int(incorrect[0]) if len(incorrect) else len(generated)


def main():
    rng = np.random.default_rng(int(os.environ.get("SEED", "0")))
    texts = json.loads(Path("weights/tokens.json").read_text())
    questions = json.loads(Path("questions.json").read_text())
    prompts = rng.permutation(np.load("prompts.npy"))
    rounds, results, checked = [], [], 0
    while len(rounds) < 2 or checked < CHECKED_TOKENS:
        seconds = 0.0
        for question in questions:
            lengths, new_tokens = question["lengths"], question["new_tokens"]
            padded_prompts, prompts = take_prompts(prompts, lengths)
            start = time.perf_counter()
            answers = generate(padded_prompts, np.array(lengths), new_tokens)
            seconds += time.perf_counter() - start
            if answers.shape != (len(lengths), new_tokens) or answers.dtype.kind not in "iu":
                raise SystemExit(f"generate returned {answers.dtype} {answers.shape}")
            results += [(padded_prompts[row, :length], answers[row]) for row, length in enumerate(lengths)]
            checked += answers.size
        rounds.append(seconds)
        print(f"round {len(rounds)}: {seconds:.4f} seconds", flush=True)
    for prompt, generated in results[: len(questions[0]["lengths"])]:
        print(f"{decode(prompt, texts)!r} -> {decode(generated, texts)!r}")
    model = load()
    correct = sum(count_correct(model, prompt, generated.astype(np.int64)) for prompt, generated in results)
    print(f"correct tokens: {correct} of {checked} ({correct / checked:.1%}); the grader requires 97%")
    print(f"validation seconds: {np.median(rounds):.4f}")


main()
