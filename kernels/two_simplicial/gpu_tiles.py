"""What the Hopper kernels of 2-simplicial attention share: sizes, and steps on a tile of logits.

A kernel works on tiles of queries (rows) by keys k (columns), one for each of several j, held in registers in
the layout of the tensor core's accumulator. Everything of the size of N x M or M x M is computed outside; see
`gpu.py`.

Letters: Z groups (batch x heads), N queries (i), J and K the keys in first and second place, F output
features, D features of the linear logits.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import jax
import jax.experimental.pallas as pl
import jax.experimental.pallas.mosaic_gpu as plgpu
import jax.numpy as jnp
from jax.experimental.pallas.mosaic_gpu import Layout
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import llvm
from jaxtyping import Array

ROWS = 64  # queries of a tile: what one warpgroup's matrix instruction takes
LINE = 128  # bytes: a copy into shared memory is a multiple of it

TILE, ROW, COLUMN = Layout.WGMMA, Layout.WGMMA.reduce(1), Layout.WGMMA.reduce(0)


@dataclass(frozen=True)
class Plan:
    """The static sizes of one kernel call, padded to whole tiles."""

    linear: bool  # the logit is q . C_jk (trilinear and signed) instead of the triple product
    groups: int  # Z
    heads: int  # groups of one example, which share its mask
    queries: int  # N, a multiple of ROWS
    first: int  # J, a multiple of j_block
    second: int  # K, a multiple of k_block
    features: int  # F, a multiple of 16
    depth: int  # D of the linear logits, a multiple of 16; 0 for the triple product
    scale: float  # what the linear logits are multiplied by
    value_parts: int  # bfloat16 numbers whose sum is one number of W and of the output's gradient
    weight_parts: int  # the same of a weight or a logit's gradient, which are split in registers
    query_parts: int  # the same of a query, linear logits only
    key_parts: int  # the same of C
    biased: bool  # a bias [Z or fewer, J, K] is added to the logits: -1e30 where a pair is masked or padding
    masked: bool  # a mask of triples [batch or 1, J, N, K] is given
    j_block: int  # keys j of one pipeline step
    k_block: int  # keys k of a tile
    stages: int  # pipeline depth
    interpret: bool  # run in Pallas' interpret mode, on a CPU

    @property
    def j_steps(self) -> int:
        """Pipeline steps that cover all first keys j."""
        return self.first // self.j_block

    @property
    def k_steps(self) -> int:
        """Tiles that cover all second keys k."""
        return self.second // self.k_block

    @property
    def q_steps(self) -> int:
        """Tiles that cover all queries."""
        return self.queries // ROWS

    def example(self, group: Array, count: int) -> Array | int:
        """The row of an array that has one for each group, for each example, or one for all."""
        return group if count == self.groups else 0 if count == 1 else jax.lax.div(group, self.heads)

    def launch(
        self,
        name: str,
        kernel: Callable[..., None],
        operands: Mapping[str, Array],
        shapes: Sequence[tuple[int, ...]],
        scratch: Sequence[Any],
        **grid: int,
    ) -> tuple[Array, ...]:
        """The float32 results of `kernel(plan, operands by name, *results, *scratch)` over a grid."""

        def body(*references):
            inputs = dict(zip(operands, references[: len(operands)], strict=True))
            kernel(self, inputs, *references[len(operands) :])

        return plgpu.kernel(
            body,
            kernel_name=f"two_simplicial_{name}",
            out_type=tuple(jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes),
            scratch_types=scratch,
            grid=tuple(grid.values()),
            grid_names=tuple(grid),
            # Approximate here means the special function unit itself: two units in the last place.
            compiler_params=plgpu.CompilerParams(
                approx_math=True, lowering_semantics=plgpu.LoweringSemantics.Lane
            ),
            interpret=plgpu.InterpretGPUParams() if self.interpret else None,
        )(*operands.values())

    def vectors(self) -> list:
        """Shared memory for b.b and c.c."""
        return [plgpu.SMEM((line(size),), jnp.float32) for size in (self.first, self.second)]

    def queries_of_tile(self) -> list:
        """Shared memory for the parts of a tile's queries, linear logits only."""
        return [matrix(ROWS, self.depth, self.k_block)] * self.query_parts


def swizzled(features: int, rows: int = ROWS, dtype: Any = jnp.bfloat16) -> tuple:
    """How a [rows, features] operand of the tensor core lies in shared memory: in the widest swizzle."""
    size = jnp.dtype(dtype).itemsize
    for swizzle in (128, 64, 32):
        width = swizzle // size
        if features % width == 0 and (size != 2 or rows % width == 0):
            return (plgpu.TilingTransform((8, width)), plgpu.SwizzleTransform(swizzle))
    raise ValueError(f"features, rows: got {features} and {rows}, expected multiples that fit a swizzle")


def matrix(rows: int, features: int, aligned: int = ROWS, dtype: Any = jnp.bfloat16) -> Any:
    """Shared memory for a matrix, read or written `aligned` rows at a time."""
    return plgpu.SMEM((rows, features), dtype, transforms=swizzled(features, aligned, dtype))


def line(size: int) -> int:
    """The length of a float32 vector in whole lines."""
    return -(-size * 4 // LINE) * LINE // 4


def special(plan: Plan, name: str, tile: Array) -> Array:
    """The square root ("sqrt") or its inverse ("rsqrt") in one instruction.

    `jnp.sqrt` keeps subnormal numbers, for three more instructions an element; here squares are at least
    `pairwise.LEAST_SQUARE`.
    """
    if plan.interpret:
        return getattr(jax.lax, name)(tile)

    @plgpu.inline_mgpu(arg_types=(TILE,), return_type=plgpu.ShapeDtypeStruct(tile.shape, tile.dtype, TILE))
    def instruction(_, array):
        f32 = ir.F32Type.get()
        return array.foreach(
            lambda x, _: llvm.inline_asm(f32, [x], f"{name}.approx.ftz.f32 $0, $1;", "=f,f"),
            create_array=True,
        )

    return instruction(tile)


def multiply(plan: Plan, accumulator: Array | tuple[int, int], factors: Sequence[tuple]) -> Array:
    """Adds products a @ b to an accumulator on the tensor core; a shape stands for zeros.

    Args:
      plan: whether to interpret.
      accumulator: float32 in the TILE layout, or its shape.
      factors: pairs (a, b): a an array in registers or a reference, b a reference, both bfloat16.
    """
    if plan.interpret:  # which has no matrix instruction with an operand in registers
        total = jnp.zeros(accumulator, jnp.float32) if isinstance(accumulator, tuple) else accumulator
        for a, b in factors:
            total = total + jnp.dot(a[...], b[...], preferred_element_type=jnp.float32)
        plgpu.commit_smem()  # matrix instructions read by the way of the copies, which this one did not
        return total

    def instructions(reference):
        for a, b in factors:
            plgpu.wgmma(reference, a, b)

    if isinstance(accumulator, tuple):

        def product(reference):
            instructions(reference)
            return reference[...]

        return pl.run_scoped(product, plgpu.ACC(accumulator, jnp.float32))
    # `run_state` turns the reference's description into the array that it ends with.
    return cast(Array, pl.run_state(instructions)(plgpu.ACC.init(accumulator)))


def split(tile: Array, parts: int) -> list[Array]:
    """The bfloat16 numbers whose sum approximates a float32 tile, largest first."""
    result = []
    for _ in range(parts):
        result.append(tile.astype(jnp.bfloat16))
        tile = tile - result[-1].astype(jnp.float32) if len(result) < parts else tile
    return result


def cross(left: Sequence, right: Sequence) -> list[tuple]:
    """The pairs of parts whose products count: as many orders as the longer side has parts."""
    orders = max(len(left), len(right))
    return [(a, b) for i, a in enumerate(left) for j, b in enumerate(right) if i + j < orders]


def rows(vector: Array, columns: int) -> Array:
    """One number a query, repeated along k."""
    return jax.lax.broadcast_in_dim(vector, (ROWS, columns), [0])


def columns(vector: Array) -> Array:
    """One number a key, repeated along the queries."""
    return jax.lax.broadcast_in_dim(vector, (ROWS, vector.shape[0]), [1])


def zeros(plan: Plan, shape: tuple[int, ...], layout=TILE, value: float = 0.0) -> Array:
    """A constant array in registers."""
    array = jnp.full(shape, value, jnp.float32)
    return array if plan.interpret else plgpu.layout_cast(array, layout)


def load(plan: Plan, reference, layout) -> Array:
    """A copy into registers."""
    if plan.interpret:
        return reference[...]
    return plgpu.load(reference, layout=layout, optimized=False)


def fetch(copies: Sequence[tuple], barrier) -> None:
    """Brings small arrays into shared memory once, and waits."""
    for source, target in copies:
        plgpu.copy_gmem_to_smem(source, target, barrier)
    plgpu.barrier_wait(barrier)


def squares(plan: Plan, x: Array, bb: Array, z: Array, zz: Array, y: Array, cc: Array, e) -> Array:
    """The squares t^2 of `pairwise.py` for one j: x one a query, bb a number, the others tiles, zz = z^2."""
    width = z.shape[1]
    xx = x * x
    # Rounding can leave b.b a little below x^2 where a and b are parallel.
    beta = jnp.maximum(bb - xx, 0.0)
    square = rows(xx, width) * cc + e
    square = rows(beta, width) * zz + square
    w = y - rows(x, width) * z
    return w * w + square
