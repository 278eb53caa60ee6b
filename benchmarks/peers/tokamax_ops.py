"""tokamax: its attention, for subjects that are attention.

FOLNet's assoc and join are self-attention. Trans is attention with a bias and zero queries (here 8 features
wide, whose product costs little compared with the values'). tokamax chooses its implementation itself.
"""

import functools
from typing import Any

import jax.numpy as jnp
import tokamax  # pyrefly: ignore[missing-import]

from benchmarks.peers.comparing import Layout, jax_programs

HEADS_INSIDE = (0, 2, 1, 3)


def about() -> dict[str, Any]:
    """Returns facts for the record: what is not compared, and why."""
    return {
        "not_compared": "triangle_multiplication: a product without a softmax, with LayerNorms and gates, "
        "which cannot express trans"
    }


def trans_by_attention(kernel_logits, premise):
    """Computes trans from [B, H, X, A] and [B, A, H, Y] to [B, X, H, Y]."""
    batch, heads, rows, columns = kernel_logits.shape
    query = jnp.zeros((batch, rows, heads, 8), premise.dtype)
    key = jnp.zeros((batch, columns, heads, 8), premise.dtype)
    return (tokamax.dot_product_attention(query, key, premise, bias=kernel_logits),)


def self_attention(query, key, value):
    """Computes self-attention; all arrays are [B, T, H, S]."""
    return (tokamax.dot_product_attention(query, key, value),)


FUNCTIONS = {
    "self_attention": ("tokamax attention", self_attention, Layout()),
    "trans": (
        "tokamax attention with a bias",
        trans_by_attention,
        Layout((None, HEADS_INSIDE), (HEADS_INSIDE,)),
    ),
}
programs = functools.partial(jax_programs, FUNCTIONS)
