"""A small transformer over bytes."""

import torch
from torch import nn

START = 256  # the token before the first byte


class Network(nn.Module):
    """Logits of the next byte after each given byte; a cache holds the keys and values of earlier bytes."""

    def __init__(self, width, layers, heads, context):
        super().__init__()
        self.context = context
        self.byte_embedding = nn.Embedding(257, width)
        self.position_embedding = nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.output = nn.Linear(width, 256)
        for embedding in (self.byte_embedding, self.position_embedding):
            nn.init.normal_(embedding.weight, std=0.02)

    def forward(self, tokens, cache=None):
        """tokens: (streams, length). With a cache (a list, which is extended), pass only the new tokens."""
        start = cache[0][0].shape[2] if cache else 0
        positions = torch.arange(start, start + tokens.shape[1], device=tokens.device)
        hidden = self.byte_embedding(tokens) + self.position_embedding(positions)
        for number, block in enumerate(self.blocks):
            hidden, cached = block(hidden, cache[number] if cache and start else None)
            if cache is not None:
                cache[number : number + 1] = [cached]
        return self.output(self.norm(hidden))


class Block(nn.Module):
    """Causal attention, then a feed-forward layer."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm, self.second_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.feed_forward = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, hidden, cached=None):
        """Return the new state, and the keys and values of all tokens so far."""
        streams, length, width = hidden.shape
        query, key, value = (
            self.qkv(self.norm(hidden)).view(streams, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        )
        if cached is not None:
            key, value = torch.cat([cached[0], key], dim=2), torch.cat([cached[1], value], dim=2)
        attended = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=length > 1)
        hidden = hidden + self.project(attended.transpose(1, 2).reshape(streams, length, width))
        return hidden + self.feed_forward(self.second_norm(hidden)), (key, value)
