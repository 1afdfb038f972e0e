"""Greedy generation with a language model: all prompts at once, and for every token only what is new."""

import json

import numpy as np
import torch
from torch.nn import functional

from model import FOLDER, device

torch.set_num_threads(1)  # more lose much when the cores are busy
config = json.loads((FOLDER / "config.json").read_text())
HEADS, GROUPS = config["num_attention_heads"], config["num_key_value_heads"]
SIZE, EPSILON = config["hidden_size"], config["rms_norm_eps"]
WIDTH = SIZE // HEADS


class Layer:
    """The weights of a layer; those that meet the same input are one matrix."""

    def __init__(self, take, number):
        names = f"model.layers.{number}."
        self.before = take(names + "input_layernorm.weight")
        self.qkv = torch.cat([take(f"{names}self_attn.{part}_proj.weight") for part in "qkv"])
        self.out = take(names + "self_attn.o_proj.weight")
        self.between = take(names + "post_attention_layernorm.weight")
        self.gate_up = torch.cat([take(f"{names}mlp.{part}_proj.weight") for part in ("gate", "up")])
        self.down = take(names + "mlp.down_proj.weight")


with np.load(FOLDER / "weights.npz") as file:

    def take(name):
        """One of the weights, in single precision."""
        return torch.from_numpy(file[name]).to(device).float()

    embedding, norm = take("model.embed_tokens.weight"), take("model.norm.weight")
    head = embedding if config["tie_word_embeddings"] else take("lm_head.weight")
    layers = [Layer(take, number) for number in range(config["num_hidden_layers"])]

exponents = torch.arange(0, WIDTH, 2, device=device) / WIDTH
frequencies = config["rope_theta"] ** -exponents


def turn(x, cos, sin):
    """Rotary positions: x is (tokens, heads, width)."""
    first, second = x.chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


def passed(tokens, places, attend):
    """The states of new tokens after all layers; `attend` mixes their values with those of earlier tokens."""
    angles = torch.outer(places.float(), frequencies)[:, None]
    cos, sin = angles.cos(), angles.sin()
    x = embedding[tokens]
    for number, layer in enumerate(layers):
        normed = functional.rms_norm(x, (SIZE,), layer.before, EPSILON)
        mixed = functional.linear(normed, layer.qkv).view(len(x), HEADS + 2 * GROUPS, WIDTH)
        turned = turn(mixed[:, : HEADS + GROUPS], cos, sin)
        queries, keys, values = turned[:, :HEADS], turned[:, HEADS:], mixed[:, HEADS + GROUPS :]
        x = x + functional.linear(attend(number, queries, keys, values).reshape(len(x), SIZE), layer.out)
        normed = functional.rms_norm(x, (SIZE,), layer.between, EPSILON)
        gate, up = functional.linear(normed, layer.gate_up).chunk(2, dim=-1)
        x = x + functional.linear(functional.silu(gate, inplace=True).mul_(up), layer.down)
    return x


@torch.inference_mode()
def generate(prompts, lengths, new_tokens):
    """Go on with each prompt, always with the token that the model finds most likely.

    prompts: int64 (count, longest), where row i holds lengths[i] tokens and then zeros; lengths: int64 (count,);
    new_tokens: how many tokens to add to each prompt, whatever they are.
    Returns int64 (count, new_tokens): the added tokens.
    """
    prompts, lengths = torch.from_numpy(prompts).to(device), torch.from_numpy(lengths).to(device)
    count, longest = prompts.shape
    # All prompts lie behind one another, without gaps; a token sees the earlier ones of its own row.
    rows, places = (torch.arange(longest, device=device) < lengths[:, None]).nonzero(as_tuple=True)
    visible = (rows[:, None] == rows) & (places[:, None] >= places)
    shape = (len(layers), count, GROUPS, longest + new_tokens, WIDTH)
    all_keys, all_values = torch.zeros(shape, device=device), torch.zeros(shape, device=device)

    def attend_all(number, queries, keys, values):
        all_keys[number][rows, :, places], all_values[number][rows, :, places] = keys, values
        grouped = queries.view(-1, GROUPS, HEADS // GROUPS, WIDTH).permute(1, 2, 0, 3)
        keys, values = keys.transpose(0, 1)[:, None], values.transpose(0, 1)[:, None]
        keys, values = keys.expand(-1, HEADS // GROUPS, -1, -1), values.expand(-1, HEADS // GROUPS, -1, -1)
        return functional.scaled_dot_product_attention(grouped, keys, values, visible).permute(2, 0, 1, 3)

    def attend_last(number, queries, keys, values):
        all_keys[number][each, :, at], all_values[number][each, :, at] = keys, values
        grouped = queries.view(count, GROUPS, HEADS // GROUPS, WIDTH)
        return functional.scaled_dot_product_attention(grouped, all_keys[number], all_values[number], seen)

    each, answers = torch.arange(count, device=device), []
    states = passed(prompts[rows, places], places, attend_all)[lengths.cumsum(0) - 1]
    for number in range(new_tokens):
        scores = functional.linear(functional.rms_norm(states, (SIZE,), norm, EPSILON), head)
        answers.append(scores.argmax(dim=-1))
        if number + 1 < new_tokens:
            at = lengths + number
            seen = (torch.arange(shape[3], device=device) <= at[:, None])[:, None, None]
            states = passed(answers[-1], at, attend_last)
    return torch.stack(answers, dim=1).cpu().numpy()
