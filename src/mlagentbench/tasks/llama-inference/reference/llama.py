"""Greedy generation with a language model: all prompts in one batch, with a key-value cache."""

import json

import numpy as np
import torch
from torch.nn import functional

from model import WEIGHTS_FOLDER, device

torch.set_num_threads(1)  # more threads are much slower on busy cores
config = json.loads((WEIGHTS_FOLDER / "config.json").read_text())
HEADS, GROUPS = config["num_attention_heads"], config["num_key_value_heads"]
SIZE, EPSILON = config["hidden_size"], config["rms_norm_eps"]
WIDTH = SIZE // HEADS


class Layer:
    """The weights of a layer; matrices with the same input are joined."""

    def __init__(self, read_weights, number):
        names = f"model.layers.{number}."
        self.input_norm = read_weights(names + "input_layernorm.weight")
        self.qkv = torch.cat([read_weights(f"{names}self_attn.{part}_proj.weight") for part in "qkv"])
        self.out = read_weights(names + "self_attn.o_proj.weight")
        self.post_attention_norm = read_weights(names + "post_attention_layernorm.weight")
        self.gate_up = torch.cat([read_weights(f"{names}mlp.{part}_proj.weight") for part in ("gate", "up")])
        self.down = read_weights(names + "mlp.down_proj.weight")


with np.load(WEIGHTS_FOLDER / "weights.npz") as file:

    def read_weights(name):
        """Read one of the weights, in single precision."""
        return torch.from_numpy(file[name]).to(device).float()

    embedding, norm = read_weights("model.embed_tokens.weight"), read_weights("model.norm.weight")
    head = embedding if config["tie_word_embeddings"] else read_weights("lm_head.weight")
    layers = [Layer(read_weights, number) for number in range(config["num_hidden_layers"])]

exponents = torch.arange(0, WIDTH, 2, device=device) / WIDTH
frequencies = config["rope_theta"] ** -exponents


def rotate(x, cos, sin):
    """Apply rotary positions to x (tokens, heads, width)."""
    first, second = x.chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


def run_layers(tokens, positions, attend):
    """Return the states of new tokens after all layers; `attend` computes attention with earlier tokens."""
    angles = torch.outer(positions.float(), frequencies)[:, None]
    cos, sin = angles.cos(), angles.sin()
    x = embedding[tokens]
    for number, layer in enumerate(layers):
        normalized = functional.rms_norm(x, (SIZE,), layer.input_norm, EPSILON)
        qkv_states = functional.linear(normalized, layer.qkv).view(len(x), HEADS + 2 * GROUPS, WIDTH)
        rotated = rotate(qkv_states[:, : HEADS + GROUPS], cos, sin)
        queries, keys, values = rotated[:, :HEADS], rotated[:, HEADS:], qkv_states[:, HEADS + GROUPS :]
        x = x + functional.linear(attend(number, queries, keys, values).reshape(len(x), SIZE), layer.out)
        normalized = functional.rms_norm(x, (SIZE,), layer.post_attention_norm, EPSILON)
        gate, up = functional.linear(normalized, layer.gate_up).chunk(2, dim=-1)
        x = x + functional.linear(functional.silu(gate, inplace=True).mul_(up), layer.down)
    return x


@torch.inference_mode()
def generate(prompts, lengths, new_tokens):
    """Continue each prompt with the most likely tokens.

    prompts: int64 (count, longest), where row i holds lengths[i] tokens and then zeros;
    lengths: int64 (count,);
    new_tokens: how many tokens to generate for each prompt; no token ends a text early.
    Returns int64 (count, new_tokens): the generated tokens.
    """
    prompts, lengths = torch.from_numpy(prompts).to(device), torch.from_numpy(lengths).to(device)
    count, longest = prompts.shape
    # All prompts are concatenated without gaps; a token attends to the earlier ones of its own row.
    rows, positions = (torch.arange(longest, device=device) < lengths[:, None]).nonzero(as_tuple=True)
    visible = (rows[:, None] == rows) & (positions[:, None] >= positions)
    shape = (len(layers), count, GROUPS, longest + new_tokens, WIDTH)
    all_keys, all_values = torch.zeros(shape, device=device), torch.zeros(shape, device=device)

    def attend_all(number, queries, keys, values):
        all_keys[number][rows, :, positions], all_values[number][rows, :, positions] = keys, values
        grouped = queries.view(-1, GROUPS, HEADS // GROUPS, WIDTH).permute(1, 2, 0, 3)
        keys, values = keys.transpose(0, 1)[:, None], values.transpose(0, 1)[:, None]
        keys, values = keys.expand(-1, HEADS // GROUPS, -1, -1), values.expand(-1, HEADS // GROUPS, -1, -1)
        return functional.scaled_dot_product_attention(grouped, keys, values, visible).permute(2, 0, 1, 3)

    def attend_last(number, queries, keys, values):
        (
            all_keys[number][rows_of_batch, :, next_positions],
            all_values[number][rows_of_batch, :, next_positions],
        ) = keys, values
        grouped = queries.view(count, GROUPS, HEADS // GROUPS, WIDTH)
        return functional.scaled_dot_product_attention(
            grouped, all_keys[number], all_values[number], is_visible
        )

    rows_of_batch, answers = torch.arange(count, device=device), []
    states = run_layers(prompts[rows, positions], positions, attend_all)[lengths.cumsum(0) - 1]
    for number in range(new_tokens):
        logits = functional.linear(functional.rms_norm(states, (SIZE,), norm, EPSILON), head)
        answers.append(logits.argmax(dim=-1))
        if number + 1 < new_tokens:
            next_positions = lengths + number
            is_visible = (torch.arange(shape[3], device=device) <= next_positions[:, None])[:, None, None]
            states = run_layers(answers[-1], next_positions, attend_last)
    return torch.stack(answers, dim=1).cpu().numpy()
