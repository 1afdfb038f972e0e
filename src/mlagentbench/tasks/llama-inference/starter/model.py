"""A language model of the Llama family, in plain torch."""

import json
from pathlib import Path

import numpy as np
import torch
from torch import nn

WEIGHTS_FOLDER = Path(__file__).parent / "weights"
device = "cuda" if torch.cuda.is_available() else "cpu"


class Norm(nn.Module):
    """RMS normalization with a learned scale."""

    def __init__(self, size, epsilon):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(size))
        self.epsilon = epsilon

    def forward(self, x):
        return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.epsilon)


class Attention(nn.Module):
    """Causal self-attention with rotary positions and grouped key and value heads."""

    def __init__(self, config):
        super().__init__()
        size = config["hidden_size"]
        self.heads, self.groups = config["num_attention_heads"], config["num_key_value_heads"]
        self.width = size // self.heads
        self.theta = config["rope_theta"]
        self.q_proj = nn.Linear(size, self.heads * self.width, bias=False)
        self.k_proj = nn.Linear(size, self.groups * self.width, bias=False)
        self.v_proj = nn.Linear(size, self.groups * self.width, bias=False)
        self.o_proj = nn.Linear(self.heads * self.width, size, bias=False)

    def rotate(self, x):
        """Apply rotary positions: rotate pairs (i, i + half a head) by an angle that grows with position."""
        frequencies = self.theta ** (-torch.arange(0, self.width, 2, device=x.device) / self.width)
        angles = torch.outer(torch.arange(x.shape[1], device=x.device), frequencies)
        cos, sin = torch.cos(angles), torch.sin(angles)
        first, second = x.chunk(2, dim=-1)
        return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)

    def forward(self, x):
        length = len(x)
        queries = self.rotate(self.q_proj(x).view(length, self.heads, self.width).transpose(0, 1))
        keys = self.rotate(self.k_proj(x).view(length, self.groups, self.width).transpose(0, 1))
        values = self.v_proj(x).view(length, self.groups, self.width).transpose(0, 1)
        keys = keys.repeat_interleave(self.heads // self.groups, dim=0)
        values = values.repeat_interleave(self.heads // self.groups, dim=0)
        scores = queries @ keys.transpose(1, 2) / self.width**0.5
        is_future = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
        weights = scores.masked_fill(is_future, float("-inf")).softmax(dim=-1)
        return self.o_proj((weights @ values).transpose(0, 1).reshape(length, -1))


class FeedForward(nn.Module):
    """A gated feed-forward layer."""

    def __init__(self, config):
        super().__init__()
        size, intermediate_size = config["hidden_size"], config["intermediate_size"]
        self.gate_proj = nn.Linear(size, intermediate_size, bias=False)
        self.up_proj = nn.Linear(size, intermediate_size, bias=False)
        self.down_proj = nn.Linear(intermediate_size, size, bias=False)

    def forward(self, x):
        return self.down_proj(nn.functional.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    """Attention, then the feed-forward layer."""

    def __init__(self, config):
        super().__init__()
        self.input_layernorm = Norm(config["hidden_size"], config["rms_norm_eps"])
        self.self_attn = Attention(config)
        self.post_attention_layernorm = Norm(config["hidden_size"], config["rms_norm_eps"])
        self.mlp = FeedForward(config)

    def forward(self, x):
        x = x + self.self_attn(self.input_layernorm(x))
        return x + self.mlp(self.post_attention_layernorm(x))


class Llama(nn.Module):
    """Maps tokens to logits of the next token at every position."""

    def __init__(self, config):
        super().__init__()
        self.embed_tokens = nn.Embedding(config["vocab_size"], config["hidden_size"])
        self.layers = nn.ModuleList(Layer(config) for _ in range(config["num_hidden_layers"]))
        self.norm = Norm(config["hidden_size"], config["rms_norm_eps"])
        self.lm_head = nn.Linear(config["hidden_size"], config["vocab_size"], bias=False)
        if config["tie_word_embeddings"]:
            self.lm_head.weight = self.embed_tokens.weight

    def forward(self, tokens):
        x = self.embed_tokens(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.lm_head(self.norm(x))


def load():
    """Return the model with its weights, in single precision."""
    config = json.loads((WEIGHTS_FOLDER / "config.json").read_text())
    with torch.device("meta"):
        model = Llama(config)
    with np.load(WEIGHTS_FOLDER / "weights.npz") as file:
        weights = {name.removeprefix("model."): torch.from_numpy(file[name]).float() for name in file}
    if config["tie_word_embeddings"]:
        weights["lm_head.weight"] = weights["embed_tokens.weight"]
    model.load_state_dict(weights, assign=True)
    return model.to(device).eval()
