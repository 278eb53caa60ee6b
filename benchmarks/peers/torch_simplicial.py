"""The agents of Clift et al. (2020) in plain PyTorch; attributes are named like our parameters.

Axis letters: B batch, N standard entities, M virtual entities, V features, H heads, D features per head.
"""

import torch  # pyrefly: ignore[missing-import]
from torch import nn  # pyrefly: ignore[missing-import]
from torch.nn import functional as F  # pyrefly: ignore[missing-import]

from benchmarks.peers.torch_attention import two_simplicial


class FeedForward(nn.Module):
    """The function g in equations (3) and (12): two layers with a ReLU in between."""

    def __init__(self, inputs: int, hidden: int, outputs: int):
        super().__init__()
        self.hidden = nn.Linear(inputs, hidden)
        self.output = nn.Linear(hidden, outputs)

    def forward(self, x):
        return self.output(torch.relu(self.hidden(x)))


class Attention(nn.Module):
    """1-simplicial attention with one projection for queries, keys and values."""

    def __init__(self, features: int, heads: int):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(features, 3 * features, bias=False)

    def project(self, x):
        """Returns queries, keys and values [B, N, H, D]."""
        return [part.unflatten(-1, (self.heads, -1)) for part in self.qkv(x).chunk(3, dim=-1)]

    @staticmethod
    def attend(query, key, value):
        """Returns softmax(q k / sqrt(D)) v by PyTorch's fused attention, with heads concatenated."""
        heads = (x.transpose(1, 2) for x in (query, key, value))
        return F.scaled_dot_product_attention(*heads).transpose(1, 2).flatten(-2)


class TwoSimplicial(nn.Module):
    """2-simplicial attention with one projection for queries, both keys and values, and the tensor B."""

    def __init__(self, features: int, outputs: int, heads: int):
        super().__init__()
        size = outputs // heads
        self.outputs, self.heads = outputs, heads
        self.qkkv = nn.Linear(features, 4 * outputs, bias=False)
        self.bilinear = nn.Parameter(torch.zeros(heads, size, size, size))

    def forward(self, entities, virtual):
        """Returns the standard entities' outputs and the virtual entities' values."""
        query = F.linear(entities, self.qkkv.weight[: self.outputs])
        key1, key2, value = F.linear(virtual, self.qkkv.weight[self.outputs :]).chunk(3, dim=-1)
        heads = [x.unflatten(-1, (self.heads, -1)) for x in (query, key1, key2, value)]
        return two_simplicial(*[*heads, self.bilinear]).flatten(-2), value


class Norms(nn.Module):
    """The LayerNorms of a block, which blocks do not share."""

    def __init__(self, features: int, pairs: int):
        super().__init__()
        self.input_norm = nn.LayerNorm(features)
        if pairs:
            self.pair_norm = nn.LayerNorm(pairs)
        self.output_norm = nn.LayerNorm(features)


def relational_block(norms, attention, feed_forward, entities):
    """Computes equation (3), a relational block, on entities [B, N, V]."""
    attended = attention.attend(*attention.project(norms.input_norm(entities)))
    return norms.output_norm(entities + feed_forward(attended))


def simplicial_block(norms, attention, two_simplicial, feed_forward, entities, virtual):
    """Computes equations (12) to (14) on standard and virtual entities, [B, N, V] and [B, M, V]."""
    normed, normed_virtual = norms.input_norm(entities), norms.input_norm(virtual)
    query, key, value = attention.project(normed)
    virtual_query, virtual_key, virtual_value = attention.project(normed_virtual)
    attended = attention.attend(query, key, value)
    all_keys, all_values = torch.cat((key, virtual_key), dim=1), torch.cat((value, virtual_value), dim=1)
    attended_virtual = attention.attend(virtual_query, all_keys, all_values)
    pairs, own = two_simplicial(normed, normed_virtual)

    def updated(old, attended, other):
        return norms.output_norm(old + feed_forward(torch.cat((attended, norms.pair_norm(other)), dim=-1)))

    return updated(entities, attended, pairs), updated(virtual, attended_virtual, own)


class Block(Norms):
    """One simplicial block with its own layers."""

    def __init__(self, features: int, pairs: int, heads: int, pair_heads: int):
        super().__init__(features, pairs)
        self.attention = Attention(features, heads)
        self.two_simplicial = TwoSimplicial(features, pairs, pair_heads)
        self.feed_forward = FeedForward(features + pairs, features, features)

    def forward(self, entities, virtual):
        return simplicial_block(
            self, self.attention, self.two_simplicial, self.feed_forward, entities, virtual
        )


class Transformer(nn.Module):
    """Blocks that share everything except LayerNorms; relational blocks if there are no virtual entities."""

    def __init__(self, features: int, pairs: int, virtual: int, blocks: int, heads: int, pair_heads: int):
        super().__init__()
        pairs = pairs if virtual else 0
        self.attention = Attention(features, heads)
        self.feed_forward = FeedForward(features + pairs, features, features)
        self.blocks = [f"block_{i}" for i in range(blocks)]
        for name in self.blocks:
            setattr(self, name, Norms(features, pairs))
        self.virtual = virtual
        if virtual:
            self.two_simplicial = TwoSimplicial(features, pairs, pair_heads)
            self.virtual_entities = nn.Parameter(torch.zeros(virtual, features))

    def forward(self, entities):
        if not self.virtual:
            for name in self.blocks:
                entities = relational_block(getattr(self, name), self.attention, self.feed_forward, entities)
            return entities
        virtual = self.virtual_entities.expand(len(entities), -1, -1)
        layers = self.attention, self.two_simplicial, self.feed_forward
        for name in self.blocks:
            entities, virtual = simplicial_block(getattr(self, name), *layers, entities, virtual)
        return entities


class Agent(nn.Module):
    """Section 4: two convolutions, the Transformer, a maximum over entities, dense layers."""

    def __init__(
        self,
        *,
        features: int,
        pairs: int,
        virtual: int,
        blocks: int,
        heads: int,
        pair_heads: int,
        convolutions: tuple[int, ...],
        dense: tuple[int, ...],
        actions: int,
    ):
        super().__init__()
        channels = (3, *convolutions)
        self.convolutions = [f"conv_{i}" for i in range(len(convolutions))]
        for name, inputs, outputs in zip(self.convolutions, channels, convolutions, strict=False):
            setattr(self, name, nn.Conv2d(inputs, outputs, 2))
        self.embed = nn.Linear(channels[-1], features - 2, bias=False)
        self.transformer = Transformer(features, pairs, virtual, blocks, heads, pair_heads)
        self.dense = [f"head_{i}" for i in range(len(dense))]
        for name, inputs, outputs in zip(self.dense, (features, *dense), dense, strict=False):
            setattr(self, name, nn.Linear(inputs, outputs))
        self.logits = nn.Linear(dense[-1], actions)
        self.value = nn.Linear(dense[-1], 1)

    def forward(self, observation):
        """Returns logits and values of uint8 pictures [B, R, C, 3]."""
        x = observation.permute(0, 3, 1, 2).float() / 255
        for name in self.convolutions:
            x = torch.relu(getattr(self, name)(x))
        batch, _, rows, columns = x.shape
        x = self.embed(x.permute(0, 2, 3, 1))
        y, z = torch.linspace(-1, 1, rows, device=x.device), torch.linspace(-1, 1, columns, device=x.device)
        positions = torch.stack(torch.meshgrid(y, z, indexing="ij"), dim=-1).expand(batch, -1, -1, -1)
        entities = self.transformer(torch.cat((x, positions), dim=-1).flatten(1, 2))
        x = entities.max(dim=1).values
        for name in self.dense:
            x = torch.relu(getattr(self, name)(x))
        return self.logits(x), self.value(x)[:, 0]
