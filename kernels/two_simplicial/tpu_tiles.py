"""What the three TPU kernels of 2-simplicial attention share: how they are called, and one tile of logits.

A tile is all second keys of some first keys against some queries, [pairs, queries], pairs being j-major. It
is walked in two ways: products with the matrix unit over chunks of pairs, and elementwise work over the few
rows of a `strip`, small enough to stay in registers.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jaxtyping import Array

from kernels.arrays import divisor, round_up
from kernels.softmax import LOG2E, MASKED
from kernels.two_simplicial.reference import Config
from kernels.two_simplicial.tpu_layout import LANES, SUBLANES, Plan

PRODUCT_ROWS = 512  # pairs of one product with the matrix unit: long enough to pay for loading its weights
STRIP = 32  # at most so many pairs at a time in elementwise work


@dataclass(frozen=True)
class Spec:
    """What is static in a kernel.

    Attributes:
      config: logit, scale and eps.
      plan: sizes and tiles.
      dtype: of the products with values, and of weights in them.
      masked: whether there is a mask that differs between queries.
      biased: whether some pairs are not there (mask or padding), which a product of keys does not show.
      split: whether the product of two bfloat16 keys is kept exactly, as a sum of two bfloat16 numbers.
    """

    config: Config
    plan: Plan
    dtype: Any
    masked: bool
    biased: bool
    split: bool

    @property
    def unsigned(self) -> bool:
        """Whether logits come from pairwise products (`pairwise`), not from `product_factors`."""
        return self.config.logit == "unsigned"

    @property
    def floor(self) -> float:
        """Added to squared logits: (scale eps)^2, in powers of two; not 0, whose root has no inverse."""
        return max((self.config.scale * self.config.eps * LOG2E) ** 2, 1e-30)


@dataclass(frozen=True)
class Operand:
    """An array a kernel reads or writes, and the block of it that a step of the grid sees.

    Attributes:
      array: what is read; a shape and dtype for what is written.
      block: sizes of the block, its first axis 1 and left out of what the kernel sees.
      index: from the names of the grid's steps to the block's place, all but the first axis' when shorter.
    """

    array: Any
    block: tuple[int, ...]
    index: Callable[..., tuple[Any, ...]]

    @property
    def spec(self) -> pl.BlockSpec:
        """The block as Pallas wants it."""
        return pl.BlockSpec((None, *self.block[1:]), self.index)


def call(
    spec: Spec,
    kernel: Callable[[Spec, SimpleNamespace], None],
    name: str,
    grid: tuple[int, ...],
    operands: tuple[dict, dict, dict],
    interpret: Any,
    *,
    order: tuple[Literal["parallel", "arbitrary"], ...] = ("parallel", "parallel", "arbitrary"),
) -> tuple[Array, ...]:
    """`pallas_call` with inputs, outputs and scratch by name: the kernel gets one namespace of references."""
    inputs, outputs, scratch = operands
    names = (*inputs, *outputs, *scratch)

    def body(*refs):
        kernel(spec, SimpleNamespace(**dict(zip(names, refs, strict=True))))

    manual = jax.typeof(next(iter(inputs.values())).array).manual_axis_type
    call = pl.pallas_call(
        body,
        out_shape=[
            jax.ShapeDtypeStruct(o.array.shape, o.array.dtype, manual_axis_type=manual)
            for o in outputs.values()
        ],
        grid=grid,
        in_specs=[o.spec for o in inputs.values()],
        out_specs=[o.spec for o in outputs.values()],
        scratch_shapes=[pltpu.VMEM(shape, dtype) for shape, dtype in scratch.values()],
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=order, vmem_limit_bytes=vmem_limit(*operands)
        ),
        interpret=interpret,
        name=f"two_simplicial_{name}",
    )
    return tuple(call(*(o.array for o in inputs.values())))


def vmem_bytes(
    inputs: Mapping[str, Operand],
    outputs: Mapping[str, Operand],
    scratch: Mapping[str, tuple[tuple[int, ...], Any]],
) -> int:
    """On-chip memory of a kernel: blocks twice, as the next ones are fetched meanwhile, and scratch once."""
    blocks = sum(_tile_bytes(o.block[1:], o.array.dtype) for o in (*inputs.values(), *outputs.values()))
    return 2 * blocks + sum(_tile_bytes(shape, dtype) for shape, dtype in scratch.values())


def vmem_limit(inputs: Any, outputs: Any, scratch: Any) -> int:
    """Returns the bytes that the compiler may use, with room for its temporaries; at least 16 MiB."""
    return max(16 << 20, vmem_bytes(inputs, outputs, scratch) * 3 // 2 + (2 << 20))


def _tile_bytes(shape: tuple[int, ...], dtype: Any) -> int:
    size = jnp.dtype(dtype).itemsize
    *major, rows, lanes = shape
    rows, lanes = round_up(rows, SUBLANES * 4 // size), round_up(lanes, LANES)
    count = rows * lanes * size
    for axis in major:
        count *= axis
    return count


# ---- matrix products, columns, loops
# ----------------------------------------------------------------


def dot(a: Array, b: Array, contract: tuple[int, int] = (1, 0)) -> Array:
    """A product of two matrices over the given axes, in float32; exact products of what it is given."""
    exact = jax.lax.Precision.HIGHEST if a.dtype == jnp.float32 else None
    return jax.lax.dot_general(
        a,
        b,
        (((contract[0],), (contract[1],)), ((), ())),
        precision=exact,
        preferred_element_type=jnp.float32,
    )


def product(spec: Spec, to: Any, left: Any, right: Array) -> None:
    """to[pairs, queries] = left[pairs, .] @ right[., queries], a chunk of pairs at a time."""

    def chunk(rows):
        to[rows, :] = dot(left[rows, :], right)

    over_products(spec, chunk)


def over_products(spec: Spec, body: Callable[[Any], None]) -> None:
    """Calls the body for chunks of a tile's pairs that are long enough for the matrix unit."""
    rows = spec.plan.rows
    size = divisor(spec.plan.keys, PRODUCT_ROWS // spec.plan.second) * spec.plan.second
    if size == rows:
        body(pl.ds(0, rows))
        return

    def step(index, carry):
        body(pl.ds(pl.multiple_of(index * size, SUBLANES), size))
        return carry

    jax.lax.fori_loop(0, rows // size, step, 0)


def over_first(spec: Spec, body: Callable[[Array, Any], Any], carry: Any = 0) -> Any:
    """Folds the body over the first keys of a tile."""
    return jax.lax.fori_loop(0, spec.plan.keys, body, carry)


def strips(spec: Spec, j: Array) -> list[tuple[Any, Any]]:
    """The strips of first key j: their rows of the tile, and their second keys."""
    second = spec.plan.second
    size = max(size for size in (8, 16, 32) if second % size == 0 and size <= STRIP)
    start = pl.multiple_of(j * second, SUBLANES)
    return [
        (pl.ds(pl.multiple_of(start + k, SUBLANES), size), pl.ds(k, size)) for k in range(0, second, size)
    ]


def columns(spec: Spec, to: Any, rows: Array) -> None:
    """to[pairs, lanes] = a number a pair, from its row of first keys [j, k], the same in all lanes."""
    turned = rows.T
    second = spec.plan.second
    for j in range(spec.plan.keys):
        to[j * second : (j + 1) * second, :] = jnp.broadcast_to(turned[:, j : j + 1], (second, LANES))


def registers(x: Array) -> Array:
    """A strip [rows, queries] as registers of eight rows, which all meet the same row of numbers a query."""
    return x.reshape(-1, SUBLANES, x.shape[1])


def flat(x: Array) -> Array:
    """The inverse of `registers`: [rows, queries]."""
    return x.reshape(-1, x.shape[2])


def across(spec: Spec, column: Array) -> Array:
    """Repeats a column [rows, lanes] over all queries of a tile, in registers."""
    return registers(jnp.concatenate([column] * (spec.plan.queries // LANES), axis=1))


# ---- logits and values of a tile
# --------------------------------------------------------------------


def values(spec: Spec, r: SimpleNamespace) -> None:
    """r.w_tile[pairs, F] = the values of a tile's pairs; 0 for those that are not there."""
    second, v, allowed = spec.plan.second, r.v[...], r.allowed[...].T
    for j in range(spec.plan.keys):
        w = dot(v, r.g[j])
        if spec.biased:
            w = w * allowed[:, j : j + 1]
        r.w_tile[j * second : (j + 1) * second, :] = w.astype(spec.dtype)


@dataclass(frozen=True)
class Squares:
    """Squared unsigned logits of one strip in registers, and what their gradient needs; in powers of two."""

    x: Array
    z: Array
    y: Array
    norms: Array
    inner: Array
    square: Array


def squares(spec: Spec, r: SimpleNamespace, j: Array, rows: Any, second: Any) -> Squares:
    """Equation (8) with normalised keys, for first key j and a strip of second ones."""
    x = jnp.broadcast_to(r.x[pl.ds(j, 1), :], (SUBLANES, spec.plan.queries))[None]
    z, aa = registers(r.z[second, :]), r.aa[...][None]
    y, norms = r.y_column[rows, :], r.norm_column[rows, :]
    inner = z * (z - x * across(spec, y + y)) + x * x + aa * across(spec, y * y)
    return Squares(x, z, y, norms, inner, inner * across(spec, norms) + spec.floor)


def key_products(spec: Spec, to: Any, a: Any, r: Array) -> None:
    """Writes k1_j * k2_k to to[pairs, D]; where it is split, the rounded product, then the rounding error."""
    second, depth = spec.plan.second, r.shape[1]
    r = r.astype(jnp.float32)
    for j in range(spec.plan.keys):
        c = a[j : j + 1, :].astype(jnp.float32) * r
        rows = slice(j * second, (j + 1) * second)
        if spec.split:
            rounded = c.astype(jnp.bfloat16)
            to[rows, :depth] = rounded
            to[rows, depth:] = (c - rounded.astype(jnp.float32)).astype(jnp.bfloat16)
        else:
            to[rows, :] = c


def product_logits(spec: Spec, r: SimpleNamespace) -> None:
    """r.tile[pairs, queries] = logits by products of keys, before scale and bias."""
    key_products(spec, r.c_tile, r.a, r.r[...])
    q = r.q[...]
    product(spec, r.tile, r.c_tile, jnp.concatenate([q, q], axis=0) if spec.split else q)


def scaled(spec: Spec, r: SimpleNamespace, rows: Any) -> Array:
    """A strip of such logits in registers, in powers of two; MASKED or less for pairs that are not there."""
    logit = registers(r.tile[rows, :]) * (spec.config.scale * LOG2E)
    return logit + across(spec, r.bias_column[rows, :]) if spec.biased else logit


def bias_columns(spec: Spec, r: SimpleNamespace) -> None:
    """0 for the pairs that are there, MASKED for the others."""
    if spec.biased:
        columns(spec, r.bias_column, (1.0 - r.allowed[...]) * MASKED)


def is_allowed(spec: Spec, r: SimpleNamespace, j: Array, second: Any) -> Array:
    """The strip of a mask that differs between queries, in registers."""
    first, rows = r.mask.shape[0], r.mask.shape[1]
    mask = r.mask[j if first > 1 else 0, second if rows > 1 else pl.ds(0, 1), :].astype(jnp.int32)
    return registers(jnp.broadcast_to(mask, (second.size, spec.plan.queries))) != 0
