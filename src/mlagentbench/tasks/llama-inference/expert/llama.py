"""Greedy generation with a language model: weights of four bits where that is exact, and few operations.

A prompt is read with bfloat16 weights, where arithmetic limits the speed; each later token with four-bit
weights (or eight bits, for matrices that four do not represent), where reading the weights does. The first
import, by train.py, stores the packed weights, so that later ones are fast.
"""

import json
import os
import time
from pathlib import Path

import numpy as np
import torch
from model import WEIGHTS_FOLDER
from torch.nn import functional

PACKED_FILE = Path(__file__).with_name("packed.pt")
config = json.loads((WEIGHTS_FOLDER / "config.json").read_text())
HEADS, GROUPS = config["num_attention_heads"], config["num_key_value_heads"]
SIZE, EPSILON = config["hidden_size"], config["rms_norm_eps"]
WIDTH = SIZE // HEADS
BLOCK = 32  # weights of a row that share a scale and an offset
MAX_ERROR = 0.01  # of the four-bit form, relative to the mean absolute weight
SAMPLE_STEP = 16  # every so many rows are compared
CANDIDATES = 32  # tokens whose logits are computed again, in single precision
MAX_FEW = 4  # rows up to which reading the weights limits the speed
HAS_BFLOAT16 = torch.ops.mkldnn._is_mkldnn_bf16_supported()  # else oneDNN refuses such matrices


def pack_matrix(weights):
    """Return forms of a matrix for many rows of input (bfloat16) and for few (four or eight bits)."""
    few, scales, error = round_to_int4(weights)
    if error > MAX_ERROR:
        scales = (weights.abs().amax(1) / 127).clamp_(min=1e-12)
        few = (weights / scales[:, None]).round_().to(torch.int8)
    return {"many": weights.bfloat16(), "few": few, "scales": scales.bfloat16()}


def round_to_int4(weights):
    """Return a matrix in four bits, scales and offsets of its blocks, and the largest error of a sample."""
    blocks = weights.unflatten(1, (-1, BLOCK))
    low = blocks.amin(2, keepdim=True)
    scale = ((blocks.amax(2, keepdim=True) - low) / 15).clamp_(min=1e-12)
    levels = (blocks - low).div_(scale).round_()
    some = slice(None, None, SAMPLE_STEP)
    errors = torch.addcmul(low[some], levels[some], scale[some]).sub_(blocks[some])
    few = torch.ops.aten._convert_weight_to_int4pack_for_cpu(levels.flatten(1).int(), 1)
    scales_and_zeros = torch.cat([scale, low + 8 * scale], dim=2).transpose(0, 1).contiguous()
    return few, scales_and_zeros.bfloat16(), errors.abs_().max() / weights[some].abs().mean()


def interleave(weights, heads):
    """Put the two halves of each head next to each other, so that a rotary pair is a complex number."""
    return weights.view(heads, 2, WIDTH // 2, -1).transpose(1, 2).reshape(weights.shape)


def pack_layer(read_weights, number):
    """Read the matrices of a layer; those with the same input are joined."""
    names = f"model.layers.{number}."
    queries, keys, values = (read_weights(f"{names}self_attn.{part}_proj.weight") for part in "qkv")
    gate_up = [read_weights(f"{names}mlp.{part}_proj.weight") for part in ("gate", "up")]
    return {
        "qkv": pack_matrix(torch.cat([interleave(queries, HEADS), interleave(keys, GROUPS), values])),
        "out": pack_matrix(read_weights(names + "self_attn.o_proj.weight")),
        "gate_up": pack_matrix(torch.cat(gate_up)),
        "down": pack_matrix(read_weights(names + "mlp.down_proj.weight")),
    }


def load_packed_layers(read_weights):
    """Read the packed matrices of all layers; pack them, and store them if possible, at the first import."""
    if PACKED_FILE.exists():
        return torch.load(PACKED_FILE, weights_only=True)
    packed = [pack_layer(read_weights, number) for number in range(config["num_hidden_layers"])]
    if os.access(PACKED_FILE.parent, os.W_OK):  # it is read-only during grading
        torch.save(packed, PACKED_FILE)
    return packed


class Matrix:
    """The weights of a linear layer, in a form for few rows of input and one for many."""

    def __init__(self, many, few, scales):
        self.many = torch.ops.mkldnn._reorder_linear_weight(many, 8) if HAS_BFLOAT16 else many.float()
        self.few, self.scales = few, scales

    def multiply_few(self, x):
        """Multiply a few rows of bfloat16."""
        if self.scales.ndim == 1:
            return torch._weight_int8pack_mm(x, self.few, self.scales)
        return torch.ops.aten._weight_int4pack_mm_for_cpu(x, self.few, BLOCK, self.scales)

    def multiply_many(self, x):
        """Multiply many rows of bfloat16; in single precision on a processor without bfloat16."""
        if not HAS_BFLOAT16:
            return functional.linear(x.float(), self.many)
        return torch.ops.mkldnn._linear_pointwise(x, self.many, None, "none", [], "")


class Layer:
    """The weights of a layer."""

    def __init__(self, read_weights, number, packed):
        names = f"model.layers.{number}."
        self.input_norm = read_weights(names + "input_layernorm.weight")
        self.post_attention_norm = read_weights(names + "post_attention_layernorm.weight")
        self.qkv, self.out = Matrix(**packed["qkv"]), Matrix(**packed["out"])
        self.gate_up, self.down = Matrix(**packed["gate_up"]), Matrix(**packed["down"])


with torch.inference_mode(), np.load(WEIGHTS_FOLDER / "weights.npz") as file:

    def read_weights(name):
        """Read one of the weights, in single precision."""
        return torch.from_numpy(file[name]).float()

    embedding, norm = read_weights("model.embed_tokens.weight"), read_weights("model.norm.weight")
    head = embedding if config["tie_word_embeddings"] else read_weights("lm_head.weight")
    head_int4, head_scales, _ = round_to_int4(head)
    layers = [
        Layer(read_weights, number, packed) for number, packed in enumerate(load_packed_layers(read_weights))
    ]

frequencies = config["rope_theta"] ** -(torch.arange(0, WIDTH, 2) / WIDTH)


def compute_rotations(positions):
    """Return complex factors (tokens, heads, pairs) for queries, which are scaled too, and keys."""
    angles = torch.outer(positions.float(), frequencies)[:, None].expand(-1, HEADS + GROUPS, -1)
    sizes = torch.ones(HEADS + GROUPS, 1)
    sizes[:HEADS] = WIDTH**-0.5
    return torch.polar(sizes.expand_as(angles).contiguous(), angles.contiguous())


def run_layers(tokens, positions, attend):
    """Return the states of new tokens after all layers; `attend` computes attention with earlier tokens."""
    count = len(tokens)
    multiply = Matrix.multiply_few if count <= MAX_FEW else Matrix.multiply_many
    rotations = compute_rotations(positions)
    rotated_size = (HEADS + GROUPS) * WIDTH
    x = embedding[tokens]
    for number, layer in enumerate(layers):
        normalized = functional.rms_norm(x, (SIZE,), layer.input_norm, EPSILON)
        qkv = multiply(layer.qkv, normalized.bfloat16()).float()
        pairs = torch.view_as_complex(qkv[:, :rotated_size].view(count, HEADS + GROUPS, WIDTH // 2, 2))
        rotated = torch.view_as_real(pairs * rotations).view(count, HEADS + GROUPS, WIDTH)
        values = qkv[:, rotated_size:].view(count, GROUPS, WIDTH)
        attended = attend(number, rotated[:, :HEADS], rotated[:, HEADS:], values)
        x += multiply(layer.out, attended.bfloat16())
        normalized = functional.rms_norm(x, (SIZE,), layer.post_attention_norm, EPSILON)
        gate, up = multiply(layer.gate_up, normalized.bfloat16()).chunk(2, dim=-1)
        x += multiply(layer.down, functional.silu(gate).mul_(up))
    return x


def choose_tokens(states):
    """Return the most likely token after each state."""
    states = functional.rms_norm(states, (SIZE,), norm, EPSILON)
    logits = torch.ops.aten._weight_int4pack_mm_for_cpu(states.bfloat16(), head_int4, BLOCK, head_scales)
    best = logits.topk(min(CANDIDATES, logits.shape[1]), sorted=False).indices
    exact = torch.bmm(head[best], states[:, :, None])[:, :, 0]
    return best.gather(1, exact.argmax(1, keepdim=True))[:, 0]


@torch.inference_mode()
def generate(prompts, lengths, new_tokens):
    """Continue each prompt with the most likely tokens.

    prompts: int64 (count, longest), where row i holds lengths[i] tokens and then zeros;
    lengths: int64 (count,);
    new_tokens: how many tokens to generate for each prompt; no token ends a text early.
    Returns int64 (count, new_tokens): the generated tokens.
    """
    prompts, lengths = torch.from_numpy(prompts), torch.from_numpy(lengths)
    count, longest = prompts.shape
    # All prompts are concatenated without gaps; a token attends to the earlier ones of its own row.
    rows, positions = (torch.arange(longest) < lengths[:, None]).nonzero(as_tuple=True)
    hidden = (rows[:, None] != rows) | (positions[:, None] < positions)
    prompt_mask = torch.zeros(hidden.shape).masked_fill_(hidden, float("-inf")).repeat(HEADS // GROUPS, 1)
    # In the cache prompts end at the same place, so a step writes one slice. Unused places are masked.
    places = positions + (longest - lengths)[rows]
    shape = (len(layers), count, GROUPS, longest + new_tokens, WIDTH)
    all_keys, all_values = torch.zeros(shape), torch.zeros(shape)
    is_unused = torch.arange(longest + new_tokens) < (longest - lengths)[:, None]
    cache_mask = torch.zeros(is_unused.shape).masked_fill_(is_unused, float("-inf"))
    cache_mask = cache_mask.repeat_interleave(GROUPS, 0)[:, None] if is_unused.any() else None
    end = longest

    def attend_prompts(number, queries, keys, values):
        all_keys[number][rows, :, places], all_values[number][rows, :, places] = keys, values
        total = len(queries)
        grouped = queries.view(total, GROUPS, HEADS // GROUPS, WIDTH).permute(1, 2, 0, 3)
        scores = torch.bmm(grouped.reshape(GROUPS, -1, WIDTH), keys.permute(1, 2, 0))
        shares = scores.add_(prompt_mask).softmax(-1)
        mixed = torch.bmm(shares, values.transpose(0, 1)).view(GROUPS, HEADS // GROUPS, total, WIDTH)
        return mixed.permute(2, 0, 1, 3).reshape(total, SIZE)

    def attend_last(number, queries, keys, values):
        all_keys[number][:, :, end], all_values[number][:, :, end] = keys, values
        cached_keys = all_keys[number][:, :, : end + 1].reshape(count * GROUPS, -1, WIDTH)
        cached_values = all_values[number][:, :, : end + 1].reshape(count * GROUPS, -1, WIDTH)
        grouped = queries.reshape(count * GROUPS, HEADS // GROUPS, WIDTH)
        scores = torch.bmm(grouped, cached_keys.transpose(1, 2))
        if cache_mask is not None:
            scores += cache_mask[:, :, : end + 1]
        return torch.bmm(scores.softmax(-1), cached_values).view(count, SIZE)

    answers = []
    states = run_layers(prompts[rows, positions], positions, attend_prompts)[lengths.cumsum(0) - 1]
    for number in range(new_tokens):
        answers.append(choose_tokens(states))
        if number + 1 < new_tokens:
            states = run_layers(answers[-1], lengths + number, attend_last)
            end += 1
    return torch.stack(answers, dim=1).numpy()


def choose_threads():
    """Use as many threads as are fastest now: on busy cores, more than one are much slower."""
    prompts = np.ones((2, 8), np.int64)
    lengths = np.array([5, 8])
    seconds = {}
    for threads in (1, 2):
        torch.set_num_threads(threads)
        times = []
        for _ in range(4):
            start = time.perf_counter()
            generate(prompts, lengths, 3)
            times.append(time.perf_counter() - start)
        seconds[threads] = min(times)
    torch.set_num_threads(min(seconds, key=seconds.__getitem__))


choose_threads()
