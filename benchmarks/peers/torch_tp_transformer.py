"""TPMHA and an encoder layer (Schlag et al. 2019) in plain PyTorch, using its fused attention."""

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

    def attend(self, x, mask=None):
        """Maps [B, T, I] to [B, T, I]; the mask [B, 1, 1, T] is True for keys that may be attended to."""
        query, key, value = (
            layer(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        filler = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
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
