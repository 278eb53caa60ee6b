"""The TP-Transformer (Schlag et al. 2019) and its parts in plain PyTorch, using its fused attention."""

import math
from collections.abc import Mapping

import torch  # pyrefly: ignore[missing-import]
from torch import nn  # pyrefly: ignore[missing-import]
from torch.nn import functional as F  # pyrefly: ignore[missing-import]

from benchmarks.peers.torch_simplicial import FeedForward


class TPAttention(nn.Module):
    """TPMHA, equations (3) to (6): each head's retrieved values times its role."""

    def __init__(self, features: int, heads: int):
        super().__init__()
        self.heads = heads
        for name in ("query", "key", "value", "role", "output"):
            setattr(self, name, nn.Linear(features, features))

    def attend(self, x, mask=None, context=None, *, causal=False):
        """Maps [B, T, I] to [B, T, I]; the mask [B, 1, 1, S] is True for keys that may be attended to.

        Keys and values are those of the context [B, S, I], by default x itself.
        """
        context = x if context is None else context
        query, key, value = (
            layer(cells).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for layer, cells in ((self.query, x), (self.key, context), (self.value, context))
        )
        filler = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, is_causal=causal)
        return self.output(filler.transpose(1, 2).flatten(-2) * self.role(x))

    def forward(self, x):
        return (self.attend(x),)


class EncoderLayer(nn.Module):
    """h = z + TPMHA(LN z), z' = LN(h + FF(LN h)): equation (1)."""

    def __init__(self, features: int, heads: int, hidden: int):
        super().__init__()
        self.attention = TPAttention(features, heads)
        self.feed_forward = FeedForward(features, hidden, features)  # equation (7)
        for name in ("attention_norm", "feed_forward_norm", "output_norm"):
            setattr(self, name, nn.LayerNorm(features))

    def forward(self, cells, mask):
        cells = cells + self.attention.attend(self.attention_norm(cells), mask[:, None, None, :])
        return (self.output_norm(cells + self.feed_forward(self.feed_forward_norm(cells))),)


class DecoderLayer(nn.Module):
    """The encoder's layer with attention to the encoder's cells in between, whose keys are not normalized."""

    def __init__(self, features: int, heads: int, hidden: int):
        super().__init__()
        self.self_attention, self.cross_attention = (TPAttention(features, heads) for _ in range(2))
        self.feed_forward = FeedForward(features, hidden, features)
        for name in ("self_attention_norm", "cross_attention_norm", "feed_forward_norm", "output_norm"):
            setattr(self, name, nn.LayerNorm(features))

    def forward(self, cells, encoded, mask):
        cells = cells + self.self_attention.attend(self.self_attention_norm(cells), causal=True)
        query = self.cross_attention_norm(cells)
        cells = cells + self.cross_attention.attend(query, mask[:, None, None, :], encoded)
        return self.output_norm(cells + self.feed_forward(self.feed_forward_norm(cells)))


class Embedding(nn.Module):
    """Cells of symbols at positions, equation (2), and logits of cells, equation (8)."""

    def __init__(self, symbols: int, features: int, longest: int):
        super().__init__()
        self.tokens = nn.Parameter(torch.zeros(symbols, features))
        self.role = nn.Linear(features, features)
        angles = torch.arange(longest)[:, None] * 1e4 ** (-torch.arange(0, features, 2) / features)
        self.register_buffer("waves", torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1))

    def forward(self, tokens):
        e = F.embedding(tokens, self.tokens) * math.sqrt(self.tokens.shape[1])
        e = e + self.waves[: tokens.shape[1]]
        return e * (self.role(e) + 1)


class TPTransformer(nn.Module):
    """Logits [B, T, V] of the symbol after each symbol of an answer, without dropout."""

    def __init__(
        self, *, symbols: int, features: int, heads: int, hidden: int, layers: int, longest: int, pad: int
    ):
        super().__init__()
        self.pad, self.layers = pad, layers
        self.embedding = Embedding(symbols, features, longest)
        for i in range(layers):
            setattr(self, f"encoder_{i}", EncoderLayer(features, heads, hidden))
            setattr(self, f"decoder_{i}", DecoderLayer(features, heads, hidden))

    def forward(self, source, target):
        mask, encoded = source != self.pad, self.embedding(source)
        for i in range(self.layers):
            (encoded,) = getattr(self, f"encoder_{i}")(encoded, mask)
        cells = self.embedding(target)
        for i in range(self.layers):
            cells = getattr(self, f"decoder_{i}")(cells, encoded, mask)
        return F.linear(cells, self.embedding.tokens)


def loss(model: TPTransformer, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """Returns the mean cross-entropy of the answers' symbols after the first, without padding."""
    target = batch["target"].long()
    logits = model(batch["source"], target[:, :-1])
    return F.cross_entropy(logits.flatten(0, 1), target[:, 1:].flatten(), ignore_index=model.pad)
