"""The operators of our kernels in plain PyTorch, with an einsum for every sum in the papers.

If opt_einsum is installed, which JAX requires, `torch.einsum` uses it to order products of three arrays.

Axis letters: B batch, H heads, N queries, M keys, D, E, F features; X, A, Y tokens.
"""

import torch  # pyrefly: ignore[missing-import]
from torch.nn import functional as F  # pyrefly: ignore[missing-import]

from benchmarks.peers.comparing import Layout


def two_simplicial(query, key1, key2, value, bilinear, eps=1e-6):
    """Computes equation (10) of Clift et al. (2020) with logits (8), from [B, N, H, D] to [B, N, H, F]."""
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
    """Computes row t of Table 2 in Chen (2023), with heads last as released: `bxac,bayc->bxyc`."""
    return torch.einsum("bxac,bayc->bxyc", kernel_logits.softmax(dim=2), premise)


def causal_trans(kernel_logits, premise):
    """Computes `trans` with a causal mask: x attends only to a <= x."""
    size = kernel_logits.shape[1]
    past = torch.ones(size, size, dtype=torch.bool, device=kernel_logits.device).tril()
    return trans(kernel_logits.masked_fill(~past[None, :, :, None], -1e30), premise)


HEADS_LAST = Layout(inputs=((0, 2, 3, 1), (0, 2, 3, 1)), outputs=((0, 2, 3, 1),))
"""The layout of `trans`; in ours, heads are first."""


def trans_by_attention(kernel_logits, premise):
    """Computes trans with PyTorch's fused attention from [B, H, X, A] and [B, H, A, Y].

    Queries are zero, the logits are the bias, and premises are the values.
    """
    rows, columns = kernel_logits.shape[-2:]
    query = premise.new_zeros((*premise.shape[:2], rows, 8))
    key = premise.new_zeros((*premise.shape[:2], columns, 8))
    return F.scaled_dot_product_attention(query, key, premise, attn_mask=kernel_logits)


def self_attention(query, key, value):
    """Computes self-attention with PyTorch's fused function; all arrays are [B, H, T, S]."""
    return F.scaled_dot_product_attention(query, key, value)


HEADS_FIRST = Layout(inputs=((0, 2, 1, 3),) * 3, outputs=((0, 2, 1, 3),))
"""The layout of `self_attention`; our arrays are [B, T, H, S]."""
