"""The operators of our kernels as one writes them in PyTorch: an einsum for every sum of the paper.

`torch.einsum` takes the order of a product of three from opt_einsum where that is installed, as beside JAX.

Axis letters: B batch, H heads, N queries, M keys, D, E, F features; X, A, Y tokens.
"""

import torch  # pyrefly: ignore[missing-import]
from torch.nn import functional as F  # pyrefly: ignore[missing-import]

from benchmarks.peers.comparing import Layout


def two_simplicial(query, key1, key2, value, bilinear, eps=1e-6):
    """Clift et al. (2020), equation (10), its logits by equation (8); [B, N, H, D] to [B, N, H, F]."""
    ab = torch.einsum("bihd,bjhd->bhij", query, key1)[:, :, :, :, None]
    ac = torch.einsum("bihd,bkhd->bhik", query, key2)[:, :, :, None, :]
    bc = torch.einsum("bjhd,bkhd->bhjk", key1, key2)[:, :, None, :, :]
    aa = query.square().sum(-1).transpose(1, 2)[:, :, :, None, None]
    bb = key1.square().sum(-1).transpose(1, 2)[:, :, None, :, None]
    cc = key2.square().sum(-1).transpose(1, 2)[:, :, None, None, :]
    square = ab**2 * cc + bc**2 * aa + ac**2 * bb - 2 * ab * ac * bc
    logits = torch.sqrt(square + eps**2)
    weights = logits.flatten(-2).softmax(-1).view_as(logits)
    pairs = torch.einsum("hfrs,bjhr,bkhs->bhjkf", bilinear, value, value)
    return torch.einsum("bhijk,bhjkf->bihf", weights, pairs)


def trans(kernel_logits, premise):
    """Chen (2023), Table 2, row t, heads last as released: `bxac,bayc->bxyc`."""
    return torch.einsum("bxac,bayc->bxyc", kernel_logits.softmax(dim=2), premise)


def causal_trans(kernel_logits, premise):
    """The same where x may look at no later a."""
    size = kernel_logits.shape[1]
    past = torch.ones(size, size, dtype=torch.bool, device=kernel_logits.device).tril()
    return trans(kernel_logits.masked_fill(~past[None, :, :, None], -1e30), premise)


HEADS_LAST = Layout(inputs=((0, 2, 3, 1), (0, 2, 3, 1)), outputs=((0, 2, 3, 1),))
"""Of `trans`: heads come first in ours."""


def trans_by_attention(kernel_logits, premise):
    """Trans by PyTorch's fused attention, [B, H, X, A] and [B, H, A, Y]: zero queries, a bias, values."""
    rows, columns = kernel_logits.shape[-2:]
    query = premise.new_zeros((*premise.shape[:2], rows, 8))
    key = premise.new_zeros((*premise.shape[:2], columns, 8))
    return F.scaled_dot_product_attention(query, key, premise, attn_mask=kernel_logits)


def self_attention(query, key, value):
    """Attention of all to all by PyTorch's fused function; [B, H, T, S] each."""
    return F.scaled_dot_product_attention(query, key, value)


HEADS_FIRST = Layout(inputs=((0, 2, 1, 3),) * 3, outputs=((0, 2, 1, 3),))
"""Of `self_attention`: ours are [B, T, H, S]."""
