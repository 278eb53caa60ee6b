"""What the Hopper kernels of 2-simplicial attention share: sizes, memory, and steps on a tile of logits.

A kernel works on tiles of queries (rows) by keys k (columns), one for each of several j, held in registers in
the layout of the tensor core's accumulator. Everything of the size of N x M or M x M is computed outside; see
`gpu.py`.

Letters: Z groups (batch x heads), N queries (i), J and K the keys in first and second place, F output
features, D features of the linear logits.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import jax
import jax.experimental.pallas as pl
import jax.experimental.pallas.mosaic_gpu as plgpu
import jax.numpy as jnp
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import llvm
from jaxtyping import Array

from kernels.arrays import round_up

PAIRS = 64  # of a step of `pair_side`: the rows of a matrix instruction
ROWS = 64  # queries of a tile: what one warpgroup's matrix instruction takes
LINE = 128  # bytes: a copy into shared memory is a multiple of it
COPY = 256  # elements: what a copy may have along an axis
ALIGNMENT = 1024  # bytes: what an array in shared memory is a multiple of
REDUCTION = 2048  # bytes that sums over a tile's axis take, `plgpu.CompilerParams.reduction_scratch_bytes`
BARRIER = 8  # bytes

TILE, ROW, COLUMN = plgpu.Layout.WGMMA, plgpu.Layout.WGMMA.reduce(1), plgpu.Layout.WGMMA.reduce(0)


@dataclass(frozen=True)
class Tiling:
    """The static sizes of one kernel launch, padded to whole tiles."""

    linear: bool  # the logit is q . C_jk (trilinear and signed) instead of the triple product
    groups: int  # Z
    heads: int  # groups of one example, which share its mask
    queries: int  # N, a multiple of ROWS
    first: int  # J, a multiple of j_block
    second: int  # K, a multiple of k_block
    features: int  # F, a multiple of 16
    depth: int  # D of the linear logits, a multiple of 16; 0 for the triple product
    scale: float  # what the linear logits are multiplied by
    value_parts: int  # bfloat16 numbers whose sum is one number of W
    output_parts: int  # the same of the output's gradient, and of the gradient of W
    weight_parts: int  # the same of a weight or a logit's gradient, which are split in registers
    query_parts: int  # the same of a query, linear logits only
    key_parts: int  # the same of C
    biased: bool  # a bias [batch or 1, J, K] is added to the logits: -1e30 where a pair is masked or padding
    masked: bool  # a mask of triples [batch or 1, J, N, K] is given
    j_block: int  # keys j of one pipeline step
    k_block: int  # keys k of a tile
    stages: int  # pipeline depth
    interpret: bool = False  # run in Pallas' interpret mode, on a CPU

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

    @property
    def pairs(self) -> int:
        """Pairs of keys of one pipeline step."""
        return self.j_block * self.k_block

    def example(self, group: Array, count: int) -> Array | int:
        """The row of an array that has one for each group, for each example, or one for all."""
        return group if count == self.groups else 0 if count == 1 else jax.lax.div(group, self.heads)


Specs = dict[str, plgpu.BlockSpec]
"""Blocks of a pipeline by the names of the operands; their index maps are not asked for by a plan."""


@dataclass(frozen=True)
class Layout:
    """What one kernel needs of a chip: both the launch and the plan of a call are made from it.

    Attributes:
      grid: programs by axis; they are launched along one axis, the last one fastest.
      results: shapes and dtypes of the kernel's results.
      scratch: shared memory and barriers of a program, as `plgpu.kernel` takes them.
      specs: the pipeline's blocks.
      steps: how many steps the pipeline has.
      reduces: whether a step sums along an axis of a tile.
    """

    grid: dict[str, int]
    results: tuple[jax.ShapeDtypeStruct, ...]
    scratch: tuple[Any, ...]
    specs: Specs
    steps: int
    reduces: bool

    @property
    def programs(self) -> int:
        """The size of the grid."""
        return math.prod(self.grid.values())

    def memory(self, stages: int) -> int:
        """Bytes of shared memory that Mosaic GPU asks for: arrays on whole kilobytes, then barriers."""
        scratch = jax.tree.leaves(self.scratch, is_leaf=lambda x: isinstance(x, plgpu.Barrier))
        arrays = [x for x in scratch if not isinstance(x, plgpu.Barrier)]
        stages = min(stages, self.steps)
        sizes = [math.prod(x.shape) * jnp.dtype(x.dtype).itemsize for x in arrays]
        for name, spec in self.specs.items():
            sizes.append(
                stages * math.prod(cast(tuple[int, ...], spec.block_shape)) * dtype_of(name).itemsize
            )
        barriers = len(scratch) - len(arrays) + stages
        reduction = REDUCTION if self.reduces else 0
        return sum(round_up(size, ALIGNMENT) for size in sizes) + reduction + barriers * BARRIER


def dtype_of(name: str) -> jnp.dtype:
    """The dtype of an operand: bfloat16 of numbered parts, int8 of a mask, float32 of all others."""
    return jnp.dtype("bfloat16" if name[-1].isdigit() else "int8" if name == "mask" else "float32")


def launch(
    plan: Tiling,
    name: str,
    kernel: Callable[..., None],
    layout: Layout,
    operands: Mapping[str, Array],
) -> tuple[Array, ...]:
    """The results of `kernel(plan, program, operands by name, *results, *scratch)` over a grid.

    `program` has the indices along the grid's axes.
    """

    def body(*references):
        inputs = dict(zip(operands, references[: len(operands)], strict=True))
        rest, program = jax.lax.axis_index("program"), cast(dict[str, Any], dict(layout.grid))
        for axis, size in reversed(layout.grid.items()):
            program[axis], rest = jax.lax.rem(rest, jnp.int32(size)), jax.lax.div(rest, jnp.int32(size))
        kernel(plan, program, inputs, *references[len(operands) :])

    return plgpu.kernel(
        body,
        kernel_name=f"two_simplicial_{name}",
        out_type=layout.results,
        scratch_types=layout.scratch,
        # One axis, since only the first may have more than 65,535 programs.
        grid=(layout.programs,),
        grid_names=("program",),
        # Approximate here means the special function unit itself: two units in the last place.
        compiler_params=plgpu.CompilerParams(
            approx_math=True,
            lowering_semantics=plgpu.LoweringSemantics.Lane,
            reduction_scratch_bytes=REDUCTION,
        ),
        interpret=plgpu.InterpretGPUParams() if plan.interpret else None,
    )(*operands.values())


def vector(size: int) -> Any:
    """Shared memory for a float32 vector in whole lines."""
    return plgpu.SMEM((line(size),), jnp.float32)


def copies(source, target) -> list[tuple]:
    """A vector's copy in pieces that are not too long for one."""
    size = target.shape[0]
    starts = range(0, size, COPY)
    return [(source.at[pl.ds(i, n)], target.at[pl.ds(i, n)]) for i in starts if (n := min(COPY, size - i))]


def pieces(size: int) -> int:
    """How many copies `copies` makes of a vector in whole lines."""
    return -(-line(size) // COPY)


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


def special(plan: Tiling, name: str, tile: Array) -> Array:
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


def multiply(plan: Tiling, accumulator: Array | tuple[int, int], factors: Sequence[tuple]) -> Array:
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


def zeros(plan: Tiling, shape: tuple[int, ...], layout=TILE, value: float = 0.0) -> Array:
    """A constant array in registers."""
    array = jnp.full(shape, value, jnp.float32)
    return array if plan.interpret else plgpu.layout_cast(array, layout)


def load(plan: Tiling, reference, layout) -> Array:
    """A copy into registers."""
    if plan.interpret:
        return reference[...]
    return plgpu.load(reference, layout=layout, optimized=False)


def fetch(copies: Sequence[tuple], barrier) -> None:
    """Brings small arrays into shared memory once, and waits."""
    for source, target in copies:
        plgpu.copy_gmem_to_smem(source, target, barrier)
    plgpu.barrier_wait(barrier)


def squares(plan: Tiling, x: Array, bb: Array, z: Array, zz: Array, y: Array, cc: Array, e) -> Array:
    """The squares t^2 of `pairwise.py` for one j: x one a query, bb a number, the others tiles, zz = z^2."""
    width = z.shape[1]
    xx = x * x
    # Rounding can leave b.b a little below x^2 where a and b are parallel.
    beta = jnp.maximum(bb - xx, 0.0)
    square = rows(xx, width) * cc + e
    square = rows(beta, width) * zz + square
    w = y - rows(x, width) * z
    return w * w + square
