"""What the Hopper kernels of 2-simplicial attention share: sizes, blocks of operands, arithmetic on tiles.

A computing warpgroup works on tiles of queries (rows) by keys k (columns), one for each of several j, held in
registers in the layout of the tensor core's accumulator. Everything of the size of N x M or M x M is computed
outside; see `gpu.py`. The pipeline is that of `kernels/hopper.py`.

Letters: Z groups (batch x heads), N queries (i), J and K the keys in first and second place, P pairs of
them, F output features, D features of the linear logits.
"""

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import llvm
from jaxtyping import Array

from kernels import hopper
from kernels.hopper import BY_COLUMN, BY_ROW, MATRIX, ROWS, Kernel, Ref, Ring, Scalar
from kernels.softmax import MASKED

PAIRS = 64  # of a step of `pair_side`: the rows of a matrix instruction


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
    masked: bool  # a mask of triples [(batch or 1) J, N, K] is given
    j_block: int  # keys j of a step
    k_block: int  # keys k of a tile
    stages: int  # steps whose operands are held at a time
    ahead: int  # pieces of work whose own operands are held at a time
    warpgroups: int  # that compute in a program
    programs: int  # that a chip runs at a time
    interpret: bool = False  # run in Pallas' interpret mode, on a CPU

    @property
    def j_steps(self) -> int:
        """Steps that cover all first keys j."""
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
        """Pairs of keys of one step."""
        return self.j_block * self.k_block

    @property
    def tile(self) -> tuple[int, int]:
        """The shape of a tile of logits."""
        return ROWS, self.k_block

    @property
    def swizzle(self) -> int:
        """That of all matrices, since most meet each other in some product."""
        return hopper.widest(jnp.bfloat16, self.k_block, self.features, self.depth)

    def of_group(self, name: str, operand: Ref, group: Array) -> Ref:
        """The part of an operand that has one for each group, for each example, or one for all."""
        rows = self.first if name == "mask" else 1  # whose first two axes are one: a copy has at most five
        count = operand.shape[0] // rows
        part = group if count == self.groups else 0 if count == 1 else lax.div(group, self.heads)
        return operand.at[pl.ds(part * rows, rows) if name == "mask" else part]

    def values(self) -> list[str]:
        """The operands whose sum is W."""
        return [f"w{p}" for p in range(self.value_parts)]

    def keys(self) -> list[str]:
        """The operands whose sum is C."""
        return [f"c{p}" for p in range(self.key_parts)]

    def query(self) -> list[str]:
        """The operands whose sum is the query."""
        return [f"q{p}" for p in range(self.query_parts)]

    def douts(self) -> list[str]:
        """The operands whose sum is the output's gradient."""
        return [f"d{p}" for p in range(self.output_parts)]


# ---- blocks of the operands in shared memory

# The axes of an operand after that of groups or examples, by its name without the number of a part.
AXES = {
    "x": "ji",
    "z": "ik",
    "y": "yjk",  # y, b.b and c.c
    "bias": "jk",
    "mask": "jik",
    "rows": "si",  # s and e
    "sums": "ti",  # the log-sum-exp, delta, and that log-sum-exp less log2 s
    "w": "pf",
    "c": "pd",
    "d": "if",
    "q": "id",
}


def axes(name: str) -> str:
    """The letters of an operand's axes."""
    return AXES[name.rstrip("0123456789")]


def block(plan: Tiling, name: str, *leading: int) -> Any:
    """Shared memory for blocks of an operand."""
    sizes = {"i": ROWS, "j": plan.j_block, "k": plan.k_block, "p": plan.pairs}
    sizes |= {"f": plan.features, "d": plan.depth, "y": 3, "s": 2, "t": 3}
    shape = *leading, *(sizes[axis] for axis in axes(name))
    if name == "z":
        return hopper.tiles(*shape, dtype=jnp.float32, swizzle=hopper.widest(jnp.float32, plan.k_block))
    if name == "mask":
        return plgpu.SMEM(shape, jnp.int8)
    if name[-1].isdigit():
        return hopper.tiles(*shape, dtype=jnp.bfloat16, swizzle=plan.swizzle)
    return plgpu.SMEM(shape, jnp.float32)


def place(plan: Tiling, name: str, i: Scalar, j: Scalar, k: Scalar) -> tuple[Any, ...]:
    """Where in an operand the block for these tiles is."""
    starts = {
        "i": pl.ds(i * ROWS, ROWS),
        "j": pl.ds(j * plan.j_block, plan.j_block),
        "k": pl.ds(k * plan.k_block, plan.k_block),
        "p": pl.ds((k * plan.j_steps + j) * plan.pairs, plan.pairs),
    }
    return tuple(starts.get(axis, slice(None)) for axis in axes(name))


def own(name: str, axis: str) -> bool:
    """Whether each computing warpgroup of a program has a block of its own; see `Layout.axis`."""
    return bool(set(axes(name)) & {"i": {"i"}, "j": {"j", "p"}}[axis])


# ---- pipeline


@dataclass(frozen=True)
class Feed:
    """A ring of blocks by the operands' names, during one piece of work. There may be no operands.

    Attributes:
      layout: the kernel's.
      names: of the operands.
      ring: None without operands.
      start: the position of the piece's first blocks.
      inputs: the operands in global memory, those of the piece's group.
    """

    layout: "Layout"
    names: Sequence[str]
    ring: Ring | None
    start: Scalar
    inputs: Mapping[str, Ref]

    def fill(self, index: Scalar, i: Scalar = 0, j: Scalar = 0, k: Scalar = 0) -> None:
        """Copying side: starts the copies of the blocks for tiles i, j, k, or those from there."""
        plan, axis = self.layout.plan, self.layout.axis

        def source(name, member=0):
            at = {"i": i, "j": j, "k": k}
            return self.inputs[name].at[place(plan, name, **at | {axis: at[axis] + member})]

        if self.ring is not None:
            members = range(plan.warpgroups)
            sources = [[source(n, m) for m in members] if own(n, axis) else source(n) for n in self.names]
            self.ring.fill(self.start + index, *sources)

    def wait(self, index: Scalar, member: Scalar) -> dict[str, Ref]:
        """Computing side: a warpgroup's blocks, once they have arrived."""
        if self.ring is not None:
            self.ring.await_copies(self.start + index)
        return self.at(index, member)

    def at(self, index: Scalar, member: Scalar) -> dict[str, Ref]:
        """Computing side: a warpgroup's blocks, which were waited for before."""
        if self.ring is None:
            return {}
        blocks = zip(self.names, self.ring.at(self.start + index), strict=True)
        return {name: ref.at[member] if own(name, self.layout.axis) else ref for name, ref in blocks}

    def release(self, index: Scalar) -> None:
        """Computing side: gives the blocks back. Threads have read them, and copies write over them."""
        if self.ring is not None:
            plgpu.commit_smem()
            self.ring.release(self.start + index)


@dataclass(frozen=True)
class Layout:
    """What one kernel needs of a chip: both the launch and the plan of a call are made from it.

    If the operands of more than one piece of work can be held, programs are persistent: each takes one piece
    after the other, and its copying warpgroup runs ahead into the next. Else each takes one.

    Attributes:
      plan: sizes.
      name: the kernel's.
      grid: pieces of work by axis, groups first.
      axis: whose tiles the computing warpgroups of a program share out, "i" or "j".
      feeds: of each ring the operands' names, and how many blocks of each a piece needs.
      scratch: more shared memory.
      reduction: bytes that sums over queries take.
    """

    plan: Tiling
    name: str
    grid: tuple[int, ...]
    axis: str
    feeds: Sequence[tuple[Sequence[str], int]]
    scratch: Any = ()
    reduction: int = 0

    @cached_property
    def kernel(self) -> Kernel:
        """The kernel."""
        plan, rings = self.plan, []
        for names, count in self.feeds:
            slots = plan.ahead if count == 1 else plan.stages
            blocks = [block(plan, n, slots, *[plan.warpgroups] * own(n, self.axis)) for n in names]
            copies = sum(plan.warpgroups if own(name, self.axis) else 1 for name in names)
            rings.append(Ring.scratch(*blocks, consumers=plan.warpgroups, copies=copies) if names else ())
        programs = pieces = math.prod(self.grid)
        if plan.ahead > 1:
            programs = min(plan.programs * (3 - plan.warpgroups), pieces)
        scratch = tuple(rings), self.scratch
        return Kernel(f"two_simplicial_{self.name}", (programs,), scratch, plan.warpgroups, self.reduction)

    def run(
        self,
        body: Callable[..., Any],
        shapes: Sequence[tuple[tuple[int, ...], Any]],
        operands: Mapping[str, Array],
    ) -> tuple[Array, ...]:
        """Runs the kernel.

        Args:
          body: `(plan, piece, feeds, outs, scratch)` to the parts of the copying and of the computing
            warpgroups in a piece of work. `piece` are its indices along the grid, `outs` the results and
            `scratch` the additional shared memory.
          shapes: shapes and dtypes of the results.
          operands: by name.
        """
        names = [name for names, _ in self.feeds for name in names]
        arrays = [operands[name] for name in names]
        results = tuple(hopper.result(shape, dtype, arrays[0]) for shape, dtype in shapes)

        def kernel(*references):
            outs, (rings, scratch) = references[len(names) : -2], references[-2:]
            rings = [Ring(*ring) if ring else None for ring in rings]

            def pieces(part):
                """Each warpgroup finds its place for itself: what their branches share is spilled."""
                (program,), (programs,) = self.kernel.place(), self.kernel.grid
                total = math.prod(self.grid)

                def step(n, _=None):
                    piece = hopper.places(program + n * programs, self.grid)
                    inputs = {
                        name: self.plan.of_group(name, ref, piece[0])
                        for name, ref in zip(names, references[: len(names)], strict=True)
                    }
                    feeds = [
                        Feed(self, held, ring, n * each, inputs)
                        for (held, each), ring in zip(self.feeds, rings, strict=True)
                    ]
                    part(*body(self.plan, piece, feeds, outs, scratch))

                if programs == total:
                    step(0)
                    return 1
                count = lax.div(total - program + (programs - 1), programs)
                lax.fori_loop(0, count, step, None)
                return count

            def copy():
                count = pieces(lambda copy, _: copy())
                for (_, each), ring in zip(self.feeds, rings, strict=True):
                    if ring is not None:
                        ring.drain(count * each)

            def compute(member):
                pieces(lambda _, compute: compute(member))

            self.kernel.split(copy, compute)

        return self.kernel.run(kernel, results, *arrays, interpret=self.plan.interpret)


@contextlib.contextmanager
def alone(plan: Tiling, barrier: Ref, member: Scalar) -> Iterator[None]:
    """What one computing warpgroup does after the other: sums over queries, in memory that they share."""
    turns = hopper.Turns(barrier, member)
    if plan.warpgroups == 1:
        yield
        return
    turns.begin()
    yield
    plgpu.commit_smem()
    turns.change()
    turns.end()


# ---- arithmetic


def special(plan: Tiling, name: str, tile: Array) -> Array:
    """The square root ("sqrt") or its inverse ("rsqrt") in one instruction.

    `jnp.sqrt` keeps subnormal numbers, for three more instructions an element; here squares are at least
    `pairwise.LEAST_SQUARE`.
    """
    if plan.interpret:
        return getattr(jax.lax, name)(tile)
    result = plgpu.ShapeDtypeStruct(tile.shape, tile.dtype, MATRIX)

    @plgpu.inline_mgpu(arg_types=(MATRIX,), return_type=result)
    def instruction(_, array):
        f32 = ir.F32Type.get()
        return array.foreach(
            lambda x, _: llvm.inline_asm(f32, [x], f"{name}.approx.ftz.f32 $0, $1;", "=f,f"),
            create_array=True,
        )

    return instruction(tile)


def split(tile: Array, parts: int) -> list[Array]:
    """The bfloat16 numbers whose sum approximates a float32 tile, largest first; only inside a kernel."""
    result = []
    for _ in range(parts):
        result.append(tile.astype(jnp.bfloat16))
        tile = tile - result[-1].astype(jnp.float32) if len(result) < parts else tile
    return result


def cross(left: Sequence, right: Sequence) -> list[tuple]:
    """The pairs of parts whose products count: as many orders as the longer side has parts."""
    orders = max(len(left), len(right))
    return [(a, b) for i, a in enumerate(left) for j, b in enumerate(right) if i + j < orders]


def row(plan: Tiling, vector: Array) -> Array:
    """One number a query, repeated along k."""
    return hopper.along_columns(vector, plan.tile)


def load_row(plan: Tiling, source: Ref) -> Array:
    """The same from shared memory."""
    return row(plan, hopper.load(source, BY_ROW))


def column(plan: Tiling, source: Ref) -> Array:
    """One number a key k, repeated along the queries."""
    return hopper.along_rows(hopper.load(source, BY_COLUMN), plan.tile)


def squares(plan: Tiling, x: Array, bb: Array, z: Array, zz: Array, y: Array, cc: Array, e: Array) -> Array:
    """The squares t^2 of `pairwise.py` for one j: x one a query, bb a number, the others tiles, zz = z^2."""
    xx = x * x
    # Rounding can leave b.b a little below x^2 where a and b are parallel.
    beta = jnp.maximum(bb - xx, 0.0)
    square = row(plan, xx) * cc + e
    square = row(plan, beta) * zz + square
    w = y - row(plan, x) * z
    return w * w + square


def against_pairs(
    plan: Tiling, rows: Sequence[str], blocks: Mapping[str, Ref], pairs: Sequence[str], i: int
) -> Array:
    """A tile of products of what belongs to queries with what belongs to pairs, those of j number i."""
    here = pl.ds(i * plan.k_block, plan.k_block)
    factors = [blocks[name].at[here].transpose((1, 0)) for name in pairs]
    return hopper.products([cross([blocks[name] for name in rows], factors)])[0]


def restrict(plan: Tiling, score: Array, blocks: Mapping[str, Ref], i: int) -> Array:
    """Logits of a tile with -1e30 where the pair is padding or masked."""
    if plan.biased:
        score = score + column(plan, blocks["bias"].at[i])
    if plan.masked:
        allowed = plgpu.load(blocks["mask"].at[i], layout=MATRIX, optimized=False)
        score = jnp.where(allowed != 0, score, MASKED)
    return score
