"""Greedy generation with a language model: one prompt after another, and all of it anew for every token."""

import numpy as np
import torch

from model import device, load

torch.set_num_threads(1)  # more lose much when the cores are busy
model = load()


@torch.no_grad()
def generate(prompts, lengths, new_tokens):
    """Go on with each prompt, always with the token that the model finds most likely.

    prompts: int64 (count, longest), where row i holds lengths[i] tokens and then zeros; lengths: int64 (count,);
    new_tokens: how many tokens to add to each prompt, whatever they are.
    Returns int64 (count, new_tokens): the added tokens.
    """
    answers = np.zeros((len(prompts), new_tokens), np.int64)
    for row, (prompt, length) in enumerate(zip(prompts, lengths, strict=True)):
        tokens = torch.from_numpy(prompt[:length]).to(device)
        for place in range(new_tokens):
            scores = model(tokens)
            best = scores[-1].argmax()
            tokens = torch.cat([tokens, best[None]])
            answers[row, place] = best.item()
    return answers
