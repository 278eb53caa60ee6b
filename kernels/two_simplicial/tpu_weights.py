"""Weights of the pairs of a tile, and the gradients of their logits, in the backward kernels on TPUs.

Both are computed again from the log-sum-exp, strip by strip; see `tpu_backward` for the formulas.
"""

import functools
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from kernels.two_simplicial import tpu_tiles as tiles
from kernels.two_simplicial.tpu_layout import LANES
from kernels.two_simplicial.tpu_tiles import Spec


def pairs(spec: Spec, r: SimpleNamespace) -> None:
    """Values and numbers of a tile's pairs."""
    tiles.values(spec, r)
    if spec.unsigned:
        tiles.columns(spec, r.y_column, r.y[...])
        tiles.columns(spec, r.norm_column, r.norms[...])
    else:
        tiles.bias_columns(spec, r)


def unsigned_weight_of(spec, r, s, j, second, lse) -> tuple[Array, Array]:
    """The weights of a strip, and the inverse of their logits."""
    inverse = jax.lax.rsqrt(s.square)
    weight = jnp.exp2(s.square * inverse - lse)
    if spec.masked:
        weight = jnp.where(tiles.is_allowed(spec, r, j, second), weight, 0.0)
    return weight, inverse


def unsigned_change_of(spec, r, s, j, rows, second, lse, delta) -> tuple[Array, Array]:
    """The weights of a strip, and the gradient of the squared logits without its factor ln(2) / 2."""
    weight, inverse = unsigned_weight_of(spec, r, s, j, second, lse)
    return weight, weight * inverse * (tiles.registers(r.dp[rows, :]) - delta)


def weight_of(spec, r, j, rows, second, lse) -> Array:
    """The weights of a strip, where logits are products."""
    weight = jnp.exp2(tiles.scaled(spec, r, rows) - lse)
    if spec.masked:
        weight = jnp.where(tiles.is_allowed(spec, r, j, second), weight, 0.0)
    return weight


def changes(spec: Spec, r: SimpleNamespace, weights: Any = None) -> None:
    """Gradients of logits (times their scale later), where logits are products; the weights too if wanted."""
    lse, delta = r.lse[...][None], r.delta[...][None]

    def fold(j, carry):
        for rows, second in tiles.strips(spec, j):
            weight = weight_of(spec, r, j, rows, second, lse)
            if weights is not None:
                keep(spec, weights, rows, weight)
            change = weight * (tiles.registers(r.dp[rows, :]) - delta)
            keep(spec, r.change, rows, change)
        return carry

    tiles.over_first(spec, fold)


def keep(spec: Spec, to: Any, rows: Any, strip: Array) -> None:
    """Keeps a strip in the type of products: exactly as two numbers, rounded where there is room for one."""
    for n, part in enumerate(spec.exact(tiles.flat(strip))[: to.shape[0]]):
        to[n, rows, :] = part


def lanes_of(x: Array) -> Array:
    """Sums the queries of a tile to the lanes of a register, without crossing them."""
    return functools.reduce(jnp.add, jnp.split(x, x.shape[1] // LANES, axis=1))
