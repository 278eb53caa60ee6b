"""cuEquivariance: its triangle attention on a single row of pairs, for subjects that are attention.

FOLNet's assoc and join are self-attention without a bias. Trans is attention with a bias and zero queries,
which must be as wide as the values here, so it costs a second product of the same size. On a CPU this is the
library's own fallback in plain JAX; its CUDA kernels are in another package.
"""

import functools
import importlib.util
from typing import Any

import cuequivariance_jax  # pyrefly: ignore[missing-import]
import jax.numpy as jnp

from benchmarks.peers.comparing import Layout, jax_programs

HEADS_FIRST = (0, 2, 1, 3)


def about() -> dict[str, Any]:
    """Returns facts for the record: whether its kernels are installed, and what is not compared."""
    kernels = importlib.util.find_spec("cuequivariance_ops_jax") is not None
    return {
        "kernels": "cuequivariance_ops_jax" if kernels else "not installed (plain JAX fallback)",
        "not_compared": "triangle_multiplicative_update: a product without a softmax, with LayerNorms and "
        "gates, which cannot express trans",
    }


def trans_by_attention(kernel_logits, premise):
    """Computes trans from [B, H, X, A] and [B, H, A, Y] to [B, H, X, Y], where X, A and Y must be equal."""
    nothing = jnp.zeros_like(premise)[:, None]
    bias = kernel_logits[:, None]
    out, *_ = cuequivariance_jax.triangle_attention(nothing, nothing, premise[:, None], bias, None, 1.0)
    return (out[:, 0],)


def self_attention(query, key, value):
    """Computes self-attention; all arrays are [B, H, T, S]."""
    bias = jnp.zeros((len(query), 1, query.shape[1], query.shape[2], key.shape[2]), jnp.float32)
    scale = query.shape[-1] ** -0.5
    rows = (x[:, None] for x in (query, key, value))
    return (cuequivariance_jax.triangle_attention(*rows, bias, None, scale)[0][:, 0],)


FUNCTIONS = {
    "self_attention": (
        "cuEquivariance triangle attention",
        self_attention,
        Layout((HEADS_FIRST,) * 3, (HEADS_FIRST,)),
    ),
    "trans": ("cuEquivariance triangle attention with a bias", trans_by_attention, Layout()),
}
programs = functools.partial(jax_programs, FUNCTIONS)
