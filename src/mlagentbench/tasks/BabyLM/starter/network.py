"""A small transformer over bytes."""

import torch
from torch import nn

START = 256  # stands for "nothing yet"


class Network(nn.Module):
    """Logits of the next byte, after each of some bytes and what the cache holds of those before."""

    def __init__(self, width, layers, heads, context):
        super().__init__()
        self.context = context
        self.bytes = nn.Embedding(257, width)
        self.places = nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.output = nn.Linear(width, 256)
        for table in (self.bytes, self.places):
            nn.init.normal_(table.weight, std=0.02)

    def forward(self, tokens, cache=None):
        """tokens: (streams, length). With a cache, a list, give what was not given before; the list is extended."""
        begin = cache[0][0].shape[2] if cache else 0
        places = torch.arange(begin, begin + tokens.shape[1], device=tokens.device)
        hidden = self.bytes(tokens) + self.places(places)
        for number, block in enumerate(self.blocks):
            hidden, seen = block(hidden, cache[number] if cache and begin else None)
            if cache is not None:
                cache[number : number + 1] = [seen]
        return self.output(self.norm(hidden))


class Block(nn.Module):
    """Attention to what came before, then a layer for each place alone."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm, self.second_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mix, self.joined = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.alone = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, hidden, seen=None):
        """The new state, and the keys and values of everything so far."""
        streams, length, width = hidden.shape
        query, key, value = self.mix(self.norm(hidden)).view(streams, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        if seen is not None:
            key, value = torch.cat([seen[0], key], dim=2), torch.cat([seen[1], value], dim=2)
        heard = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=length > 1)
        hidden = hidden + self.joined(heard.transpose(1, 2).reshape(streams, length, width))
        return hidden + self.alone(self.second_norm(hidden)), (key, value)
