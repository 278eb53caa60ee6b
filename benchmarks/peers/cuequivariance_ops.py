"""cuEquivariance: its triangle attention, of one row of pairs, where ours is attention.

FOLNet's assoc and join are self-attention without a bias; trans is attention with a bias and queries of 0,
which must be as wide as the values here: a second product of the same size. On a CPU this is the library's
own fallback in plain JAX; its kernels for CUDA are another package.
"""

import functools
import importlib.util
from typing import Any

import cuequivariance_jax  # pyrefly: ignore[missing-import]
import jax.numpy as jnp

from benchmarks.peers.comparing import Layout, jax_programs

HEADS_FIRST = (0, 2, 1, 3)


def about() -> dict[str, Any]:
    """Whether its kernels are here; what is not compared, and why."""
    kernels = importlib.util.find_spec("cuequivariance_ops_jax") is not None
    return {
        "kernels": "cuequivariance_ops_jax" if kernels else "none here: its fallback in plain JAX",
        "not_compared": "triangle_multiplicative_update: LayerNorms and gates around a product without a "
        "softmax; no weights make it trans",
    }


def trans_by_attention(kernel_logits, premise):
    """[B, H, X, A] and [B, H, A, Y] to [B, H, X, Y], which must be square."""
    nothing = jnp.zeros_like(premise)[:, None]
    bias = kernel_logits[:, None]
    out, *_ = cuequivariance_jax.triangle_attention(nothing, nothing, premise[:, None], bias, None, 1.0)
    return (out[:, 0],)


def self_attention(query, key, value):
    """[B, H, T, S] each."""
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
