"""Greedy generation with a language model: one prompt after another, without a key-value cache."""

import numpy as np
import torch

from model import device, load

torch.set_num_threads(1)  # more threads are much slower on busy cores
model = load()


@torch.no_grad()
def generate(prompts, lengths, new_tokens):
    """Continue each prompt with the most likely tokens.

    prompts: int64 (count, longest), where row i holds lengths[i] tokens and then zeros;
    lengths: int64 (count,);
    new_tokens: how many tokens to generate for each prompt; no token ends a text early.
    Returns int64 (count, new_tokens): the generated tokens.
    """
    answers = np.zeros((len(prompts), new_tokens), np.int64)
    for row, (prompt, length) in enumerate(zip(prompts, lengths, strict=True)):
        tokens = torch.from_numpy(prompt[:length]).to(device)
        for position in range(new_tokens):
            logits = model(tokens)
            best = logits[-1].argmax()
            tokens = torch.cat([tokens, best[None]])
            answers[row, position] = best.item()
    return answers
