"""What the TPU kernels of 2-simplicial attention share: how they are called, and one tile of logits.

A tile is some first keys and some second keys against some queries, [pairs, queries], pairs being j-major. It
is walked in two ways: products with the matrix unit over chunks of pairs, and elementwise work over the few
rows of a `strip`, small enough to stay in registers.
"""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jaxtyping import Array

from kernels.arrays import divisor
from kernels.plans import Launch
from kernels.softmax import LOG2E, MASKED
from kernels.tpu_shared import halves, tile_bytes, with_temporaries
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
      e: features of values.
      depth: length of the vectors whose product is a logit: D, or 2 D for the signed logit.
      dtype: of the products with values, and of weights in them.
      mask: shape [b, j, k, N] of a mask that differs between queries, its first three sizes 1 where it is
        alike; None where there is none.
      alike: whether the pairs that are there are the same for all examples.
      biased: whether some pairs are not there (mask or padding), which a product of keys does not show.
      split: whether the product of two bfloat16 keys is kept exactly, as a sum of two bfloat16 numbers.
      rounded: whether the output is saved in 16 bits, so that Delta has to be computed again.
    """

    config: Config
    plan: Plan
    e: int
    depth: int
    dtype: Any
    mask: tuple[int, ...] | None
    alike: bool
    biased: bool
    split: bool
    rounded: bool

    @property
    def unsigned(self) -> bool:
        """Whether logits come from pairwise products (`pairwise`), not from `product_factors`."""
        return self.config.logit == "unsigned"

    @property
    def masked(self) -> bool:
        """Whether there is a mask that differs between queries."""
        return self.mask is not None

    @property
    def narrow(self) -> bool:
        """Whether products with values are of bfloat16 numbers."""
        return self.dtype == jnp.bfloat16

    @property
    def copies(self) -> int:
        """In how many bfloat16 numbers the backward pass keeps one of `dtype`: see `exact`."""
        return 2 if self.narrow else 1

    def exact(self, x: Array) -> tuple[Array, ...]:
        """Numbers that sum to a float32 one and that products with values take as they are."""
        return halves(x) if self.narrow else (x,)

    @property
    def products(self) -> tuple[int, Any]:
        """Length and dtype of the product of two keys as the matrix unit takes it."""
        return (2 * self.depth, jnp.bfloat16) if self.split else (self.depth, jnp.float32)

    @property
    def floor(self) -> float:
        """Added to squared logits: (scale eps)^2, in powers of two; not 0, whose root has no inverse."""
        return max((self.config.scale * self.config.eps * LOG2E) ** 2, 1e-30)


@dataclass(frozen=True)
class Operand:
    """An array a kernel reads or writes, and the block of it that a step of the grid sees.

    Attributes:
      dtype: the array's.
      block: sizes of the block, its first axis 1 and left out of what the kernel sees.
      index: from the numbers of the grid's steps to the block's place.
      shape: the array's, where it is written.
    """

    dtype: Any
    block: tuple[int, ...]
    index: Callable[..., tuple[Any, ...]]
    shape: tuple[int, ...] = ()

    @property
    def spec(self) -> pl.BlockSpec:
        """The block as Pallas wants it."""
        return pl.BlockSpec((None, *self.block[1:]), self.index)


@dataclass(frozen=True)
class Kernel:
    """A kernel and its operands by name.

    Attributes:
      name: the kernel's.
      body: gets the spec and one namespace of references.
      grid: sizes of the grid.
      inputs: what it reads.
      outputs: what it writes.
      scratch: shapes and dtypes of what it keeps.
      order: which axes of the grid may be walked in any order.
    """

    name: str
    body: Callable[[Spec, SimpleNamespace], None]
    grid: tuple[int, ...]
    inputs: Mapping[str, Operand]
    outputs: Mapping[str, Operand]
    scratch: Mapping[str, tuple[tuple[int, ...], Any]]
    order: tuple[Literal["parallel", "arbitrary"], ...] = ("parallel", "parallel", "arbitrary", "arbitrary")

    @property
    def kept(self) -> int:
        """Bytes of blocks twice, as the next ones are fetched meanwhile, and of scratch once."""
        blocks = sum(
            tile_bytes(o.block[1:], o.dtype) for o in (*self.inputs.values(), *self.outputs.values())
        )
        return 2 * blocks + sum(tile_bytes(shape, dtype) for shape, dtype in self.scratch.values())

    @property
    def launch(self) -> Launch:
        """Its grid and its memory, with room for the compiler's temporaries."""
        return Launch(self.name, self.grid, with_temporaries(self.kept))


def run(spec: Spec, kernel: Kernel, parts: Mapping[str, Any], interpret: Any) -> dict[str, Array]:
    """Calls a kernel with its inputs taken from `parts`; returns its outputs, both by name."""
    arrays = [parts[name] for name in kernel.inputs]
    names = (*kernel.inputs, *kernel.outputs, *kernel.scratch)

    def body(*refs):
        kernel.body(spec, SimpleNamespace(**dict(zip(names, refs, strict=True))))

    manual = jax.typeof(arrays[0]).manual_axis_type
    results = pl.pallas_call(
        body,
        out_shape=[
            jax.ShapeDtypeStruct(o.shape, o.dtype, manual_axis_type=manual) for o in kernel.outputs.values()
        ],
        grid=kernel.grid,
        in_specs=[o.spec for o in kernel.inputs.values()],
        out_specs=[o.spec for o in kernel.outputs.values()],
        scratch_shapes=[pltpu.VMEM(shape, dtype) for shape, dtype in kernel.scratch.values()],
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=kernel.order, vmem_limit_bytes=kernel.launch.memory
        ),
        interpret=interpret,
        name=kernel.name,
    )(*arrays)
    return dict(zip(kernel.outputs, results, strict=True))


def walk(*axes: int) -> tuple[Any, Any]:
    """Inside a kernel: whether the step is the first, and the last, of a walk along some axes of the grid."""
    begins = [pl.program_id(axis) == 0 for axis in axes]
    ends = [pl.program_id(axis) == pl.num_programs(axis) - 1 for axis in axes]
    return functools.reduce(jnp.logical_and, begins), functools.reduce(jnp.logical_and, ends)


# ---- matrix products, columns, loops
# ----------------------------------------------------------------


def dot(a: Array, b: Array, contract: tuple[int, int] = (1, 0)) -> Array:
    """A product of two matrices over the given axes, in float32; exact products of what it is given."""
    if 1 in (*a.shape, *b.shape):  # which Mosaic takes for a vector, of the result's type
        a, b = a.astype(jnp.float32), b.astype(jnp.float32)
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
    size = divisor(spec.plan.keys, PRODUCT_ROWS // spec.plan.partners) * spec.plan.partners
    if size == rows:
        body(pl.ds(0, rows))
        return

    def step(index, carry):
        body(pl.ds(pl.multiple_of(index * size, SUBLANES), size))
        return carry

    jax.lax.fori_loop(0, rows // size, step, None)


def over_first(spec: Spec, body: Callable[[Array, Any], Any], carry: Any = 0) -> Any:
    """Folds the body over the first keys of a tile."""
    return jax.lax.fori_loop(0, spec.plan.keys, body, carry)


def strips(spec: Spec, j: Array) -> list[tuple[Any, Any]]:
    """The strips of first key j: their rows of the tile, and their second keys."""
    second = spec.plan.partners
    size = max(size for size in (8, 16, 32) if second % size == 0 and size <= STRIP)
    start = pl.multiple_of(j * second, SUBLANES)
    return [
        (pl.ds(pl.multiple_of(start + k, SUBLANES), size), pl.ds(k, size)) for k in range(0, second, size)
    ]


def columns(spec: Spec, to: Any, rows: Array) -> None:
    """to[pairs, lanes] = a number a pair, from its row of first keys [j, k], the same in all lanes."""
    turned = rows.T
    second = spec.plan.partners
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
    """r.w_tile[pairs, F] = the values of a tile's pairs; 0 for those that are not there.

    In twice as many columns it is kept exactly, as rounded values and rounding errors.
    """
    second, v, allowed = spec.plan.partners, r.v[...], r.allowed[...].T
    for j in range(spec.plan.keys):
        w = dot(v, r.g[j])
        if spec.biased:
            w = w * allowed[:, j : j + 1]
        rows, width = slice(j * second, (j + 1) * second), w.shape[1]
        for n, part in enumerate(spec.exact(w)[: r.w_tile.shape[1] // width]):
            r.w_tile[rows, n * width : (n + 1) * width] = part


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
    second, depth = spec.plan.partners, r.shape[1]
    r = r.astype(jnp.float32)
    for j in range(spec.plan.keys):
        c = a[j : j + 1, :].astype(jnp.float32) * r
        rows = slice(j * second, (j + 1) * second)
        if spec.split:
            to[rows, :depth], to[rows, depth:] = halves(c)
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
