"""Trilinear attention on Hopper GPUs: Pallas, Mosaic GPU, for compute capability 9.0.

Forward here, backward in `gpu_backward`, what they share in `gpu_sweep`.

The queries of a group are the rows of a tile: [B G, N R, D], position before head. With 64 query heads a group
(Roy et al. 2025) a tile of 64 rows is one position, its windows are exact and masks are needed at the start of a
sequence only. With fewer a tile holds several positions, whose windows overlap: it sweeps their union under masks,
so that short groups cost (64 / R - 1) extra keys a window.

The second keys are those that stream through the matrix unit, so the longer window should be theirs: the operation
is symmetric in (key1, value1) and (key2, value2), and they are exchanged where that helps.
"""

import dataclasses
import functools
import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu
from jaxtyping import Array, Float

from kernels.trilinear import gpu_sweep as sweep
from kernels.trilinear.gpu_sweep import ALIGNMENT, COMPUTE, ROWS, Band
from kernels.trilinear.reference import Config

FEATURES = (64, 128)  # what the tiles are written for; fewer are padded with zeros
LOG2E = math.log2(math.e)
DTYPES = ("bfloat16", "float16")


def unsupported(config: Config, query: Any, key1: Any, key2: Any, value1: Any, value2: Any) -> str | None:
    """Why these arguments cannot be served, from their shapes and dtypes alone; None if they can."""
    del config
    dtypes = {jnp.dtype(a.dtype).name for a in (query, key1, key2, value1, value2)}
    if len(dtypes) > 1 or not dtypes <= set(DTYPES):
        return f"the matrix units take one of {', '.join(DTYPES)} for all arrays, not {', '.join(sorted(dtypes))}"
    if query.shape[-1] > max(FEATURES):
        return f"at most {max(FEATURES)} features a head fit its tiles, not {query.shape[-1]}"
    if not query.size:
        return "it needs at least one position, head and feature"
    return None


def block_candidates(config: Config, *arrays: Any) -> dict[str, list[dict[str, int]]]:
    """Block sizes to try; the first is the default."""
    del config, arrays
    return {
        "forward": [{"columns": c, "stages": s} for c, s in ((128, 2), (64, 4), (64, 3))],
        "backward": [{}],
    }


@dataclasses.dataclass(frozen=True)
class Geometry:
    """How a call is laid out for the kernels.

    Attributes:
        batch: B G, the blocks that have nothing in common.
        length: N, positions.
        heads: R, query heads of a group.
        slots: rows of a position: R, or the next number that divides a tile or that a tile divides.
        features: D.
        padded: columns of a tile.
        exchanged: whether key1 and value1 have taken the places of key2 and value2.
        band: what sees what, after that exchange.
        scale: of the logits; positive.
        sign: what key1 is multiplied by to make it so.
    """

    batch: int
    length: int
    heads: int
    slots: int
    features: int
    padded: int
    exchanged: bool
    band: Band
    scale: float
    sign: float

    @property
    def positions(self) -> int:
        """How many positions a tile of rows covers."""
        return max(ROWS // self.slots, 1)

    @property
    def rows(self) -> int:
        """Rows of a group's queries, whole tiles."""
        return -(-self.length // self.positions) * self.positions * self.slots

    def fronts(self, columns: int) -> tuple[int, ...]:
        """Zeros before the first of the second keys, copy by copy; tile number t of the queries takes copy t modulo
        their number. With them its window starts at a multiple of 8 rows, and never before the first row."""
        if not self.band.causal:
            return (0,)
        copies = max(ALIGNMENT // self.positions, 1) if self.slots <= ROWS else ALIGNMENT
        starts = (copy * self.positions - (self.band.window2 - 1) for copy in range(copies))
        return tuple(columns + (-start - columns) % ALIGNMENT for start in starts)

    def range_of(self, tile: jax.Array) -> tuple[jax.Array, jax.Array]:
        """The positions, [start, stop), of a tile of query rows."""
        start = lax.div(tile * ROWS, jnp.int32(self.slots))
        return start, start + self.positions


def geometry(config: Config, query: Any, key1: Any) -> Geometry:
    """The layout of a call."""
    batch, length, heads, features = query.shape
    groups = key1.shape[2]
    heads //= groups
    slots = -(-heads // ROWS) * ROWS if heads > ROWS else 1 << (heads - 1).bit_length()
    window1, window2 = config.reach(length)
    exchanged = window1 > window2
    return Geometry(
        batch=batch * groups,
        length=length,
        heads=heads,
        slots=slots,
        features=features,
        padded=next(size for size in FEATURES if size >= features),
        exchanged=exchanged,
        band=Band(length, min(window1, window2), max(window1, window2), config.causal),
        # The running maximum is of unscaled logits, so the scale must be positive; a scale of 0 is a key of 0.
        scale=abs(config.scale) or 1.0,
        sign=math.copysign(1.0, config.scale) if config.scale else 0.0,
    )


def as_rows(plan: Geometry, x: Float[Array, "B N H D"]) -> Float[Array, "BG rows padded"]:
    """Queries, or what has their shape, as rows of their group."""
    batch, length, heads, features = x.shape
    groups = heads // plan.heads
    x = x.reshape(batch, length, groups, plan.heads, features).swapaxes(1, 2)
    positions = plan.rows // plan.slots
    x = _padded(x, (batch, groups, positions, plan.slots, plan.padded))
    return x.reshape(plan.batch, plan.rows, plan.padded)


def from_rows(plan: Geometry, x: Float[Array, "BG rows padded"], batch: int) -> Float[Array, "B N H D"]:
    """The inverse of `as_rows`."""
    groups = plan.batch // batch
    x = x.reshape(batch, groups, plan.rows // plan.slots, plan.slots, plan.padded)
    x = x[:, :, : plan.length, : plan.heads, : plan.features].swapaxes(1, 2)
    return x.reshape(batch, plan.length, groups * plan.heads, plan.features)


def row_scalars(plan: Geometry, x: Float[Array, "B H N"]) -> Float[Array, "BG rows"]:
    """One number for each query head and position, as `as_rows` orders them."""
    x = x.reshape(plan.batch, plan.heads, plan.length).swapaxes(1, 2)
    return _padded(x, (plan.batch, plan.rows // plan.slots, plan.slots)).reshape(plan.batch, plan.rows)


def from_row_scalars(plan: Geometry, x: Float[Array, "BG rows"], batch: int) -> Float[Array, "B H N"]:
    """The inverse of `row_scalars`."""
    x = x.reshape(plan.batch, plan.rows // plan.slots, plan.slots)[:, : plan.length, : plan.heads]
    return x.swapaxes(1, 2).reshape(batch, -1, plan.length)


def as_keys(plan: Geometry, x: Float[Array, "B N G D"], extra: int = ROWS) -> Float[Array, "BG positions padded"]:
    """Keys or values, with `extra` rows of zeros after the last for tiles that reach beyond it."""
    batch, length, groups, _ = x.shape
    x = _padded(x.swapaxes(1, 2), (batch, groups, length + extra, plan.padded))
    return x.reshape(plan.batch, length + extra, plan.padded)


def as_windows(plan: Geometry, x: Float[Array, "B N G D"], columns: int) -> Float[Array, "BGcopies positions padded"]:
    """Second keys or values, to be read in tiles from where a window starts: a copy for each `plan.fronts`.

    A swizzled tile starts at a multiple of 8 rows and a window anywhere. Where groups are small a tile's positions
    are many and the windows of all tiles start alike; where they are large the keys are few beside the queries.
    """
    x = as_keys(plan, x, 0)
    total = -(-(plan.length + max(plan.fronts(columns)) + columns) // ALIGNMENT) * ALIGNMENT
    copies = [jnp.pad(x, ((0, 0), (f, total - plan.length - f), (0, 0))) for f in plan.fronts(columns)]
    return jnp.stack(copies, axis=1).reshape(-1, total, plan.padded)


def _padded(x: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    return jnp.pad(x, [(0, new - old) for new, old in zip(shape, x.shape, strict=True)])


def forward(
    config: Config,
    query: Float[Array, "B N H D"],
    key1: Float[Array, "B N G D"],
    key2: Float[Array, "B N G D"],
    value1: Float[Array, "B N G D"],
    value2: Float[Array, "B N G D"],
    blocks: Mapping[str, int] | None = None,
    interpret: bool = False,
) -> tuple[Float[Array, "B N H D"], Float[Array, "B H N"]]:
    """The output and the logarithm of each softmax's denominator: Roy et al. (2025), Algorithm 1.

    Args:
        config: windows, causality and scale.
        query: as for `reference.trilinear`.
        key1: likewise.
        key2: likewise.
        value1: likewise.
        value2: likewise.
        blocks: "columns", second keys of a tile; "stages", tiles in flight.
        interpret: run on a CPU, slowly.
    """
    plan = geometry(config, query, key1)
    if plan.exchanged:
        key1, key2, value1, value2 = key2, key1, value2, value1
    blocks = {**block_candidates(config)["forward"][0], **(blocks or {})}
    if plan.sign != 1.0:
        key1 = key1 * jnp.asarray(plan.sign, key1.dtype)
    firsts = (as_keys(plan, a) for a in (key1, value1))
    seconds = (as_windows(plan, a, blocks["columns"]) for a in (key2, value2))
    kernel = _forward_kernel(plan, **blocks, interpret=interpret)
    out, lse = kernel(as_rows(plan, query), *firsts, *seconds)
    batch = query.shape[0]
    return from_rows(plan, out, batch), from_row_scalars(plan, lse, batch)


def _forward_kernel(plan: Geometry, *, columns: int, stages: int, interpret: bool) -> Any:
    """The kernel, of arrays as `as_rows` and `as_keys` lay them out."""
    band, width, fronts = plan.band, plan.padded, plan.fronts(columns)
    scale = plan.scale * LOG2E  # of powers of two

    def kernel(query, key1, value1, key2, value2, out, lse, buffers, barriers):
        group, index, role = (lax.axis_index(name) for name in ("group", "tile", "warpgroup"))
        rows = plan.range_of(index)
        here = pl.ds(index * ROWS, ROWS)
        first, stop = band.first(*rows)
        pairs = lax.div(stop - first + (COMPUTE - 1), COMPUTE)
        low, high = band.second(*rows, columns)
        tiles = lax.div(high - low + (columns - 1), columns)
        copy = lax.rem(lax.div(rows[0], plan.positions), len(fronts))
        front = functools.reduce(lambda f, c: jnp.where(copy == c, fronts[c], f), range(1, len(fronts)), fronts[0])
        window = group * len(fronts) + copy

        def span(_):
            return low + front, tiles

        q, scaled, totals, maxima, sums, lse_tile, k1, v1, k2, v2 = buffers
        arrived, handed, turns, *stream_barriers = barriers
        factors, streams = (
            [
                sweep.Stream(source.at[where], buffer, full, free)
                for source, buffer, (full, free) in zip(sources, held, ready, strict=True)
            ]
            for sources, where, held, ready in (
                ((key1, value1), group, (k1, v1), stream_barriers[0]),
                ((key2, value2), window, (k2, v2), stream_barriers[1]),
            )
        )
        keys, values = streams
        turns = sweep.Turns(turns, role)

        @pl.when(role == COMPUTE)
        def copy_tiles():
            plgpu.set_max_registers(sweep.COPY_REGISTERS, action="decrease")
            plgpu.copy_gmem_to_smem(query.at[group, here], q, arrived)
            sweep.copying(pairs, first, span, factors, streams, stages=stages, size=columns)

        @pl.when(role < COMPUTE)
        def compute():
            plgpu.set_max_registers(sweep.COMPUTE_REGISTERS, action="increase")
            mine = scaled.at[role]
            plgpu.barrier_wait(arrived)

            def begin(vectors, total):
                sweep.scale_into(mine, q, vectors[0])
                plgpu.commit_smem()
                _, maximum, denominator = total
                return sweep.full((ROWS, width), 0), maximum, denominator

            def tile(j, row, stage, inner):
                start = row - front
                inner, maximum, denominator = inner
                plgpu.barrier_wait(keys.full.at[stage])
                logits = sweep.row_product(mine, keys.buffer.at[stage], turns.change)
                plgpu.barrier_arrive(keys.free.at[stage])
                shape = logits.shape

                def masked(logits):
                    p = sweep.positions(shape, 0, rows[0], plan.slots) if plan.slots < ROWS else rows[0]
                    k = sweep.positions(shape, 1, start)
                    return jnp.where(band.allowed(p, j, k), logits, sweep.MASKED)

                whole = band.everywhere(rows, j, (start, start + columns))
                logits = lax.cond(whole, lambda x: x, masked, logits)
                new = jnp.maximum(maximum, logits.max(axis=1))
                shrink = jnp.exp2((maximum - new) * scale)
                weights = jnp.exp2(logits * scale - sweep.along_columns(new * scale, shape))
                denominator = denominator * shrink + weights.sum(axis=1)
                inner *= sweep.along_columns(shrink, inner.shape)
                weights = weights.astype(mine.dtype)
                inner, new, denominator, weights = lax.optimization_barrier(
                    (inner, new, denominator, weights)
                )
                turns.change()
                plgpu.barrier_wait(values.full.at[stage])
                inner = sweep.add_product(inner, weights, values.buffer.at[stage], interpret=interpret)
                plgpu.barrier_arrive(values.free.at[stage])
                return inner, new, denominator

            def finish(_, vectors, total, inner):
                total, before, _ = total
                inner, maximum, denominator = inner
                shrink = jnp.exp2((before - maximum) * scale)
                factor = plgpu.load(vectors[1], layout=sweep.BY_COLUMN).astype(jnp.float32)
                total = total * sweep.along_columns(shrink, total.shape)
                return total + inner * sweep.along_rows(factor, total.shape), maximum, denominator

            turns.begin()
            total, maximum, denominator = sweep.computing(
                pairs,
                first,
                span,
                factors,
                member=role,
                stages=stages,
                size=columns,
                begin=begin,
                tile=tile,
                finish=finish,
                total=(
                    sweep.full((ROWS, width), 0),
                    sweep.full((ROWS,), sweep.FLOOR),
                    sweep.full((ROWS,), 0),
                ),
            )
            turns.end()

            @pl.when(role == 1)
            def give():
                totals[...], maxima[...], sums[...] = total, maximum, denominator
                plgpu.commit_smem()
                plgpu.barrier_arrive(handed)

            @pl.when(role == 0)
            def take():
                plgpu.barrier_wait(handed)
                theirs = plgpu.load(maxima, layout=sweep.BY_ROW)
                top = jnp.maximum(maximum, theirs)
                ours, theirs = jnp.exp2((maximum - top) * scale), jnp.exp2((theirs - top) * scale)
                sum_ = denominator * ours + plgpu.load(sums, layout=sweep.BY_ROW) * theirs
                # A row that sees nothing is one of the padding.
                share = 1 / jnp.where(sum_ > 0, sum_, 1)
                other = plgpu.load(totals, layout=sweep.MATRIX)
                mean = total * sweep.along_columns(ours * share, total.shape)
                mean += other * sweep.along_columns(theirs * share, total.shape)
                q[...] = mean.astype(q.dtype)  # both are done with the queries
                lse_tile[...] = jnp.where(sum_ > 0, top * plan.scale + jnp.log(sum_), 0.0)
                plgpu.commit_smem()
                plgpu.copy_smem_to_gmem(q, out.at[group, here])
                plgpu.copy_smem_to_gmem(lse_tile, lse.at[group, here])
                plgpu.wait_smem_to_gmem(0)

    def with_memory(*arrays):
        dtype = arrays[0].dtype
        matrix = sweep.matrix_buffer
        vectors = plgpu.SMEM((sweep.FACTOR_SLOTS, COMPUTE, width), dtype)
        buffers = (
            matrix(ROWS, width, dtype=dtype),
            matrix(COMPUTE, ROWS, width, dtype=dtype),
            matrix(ROWS, width, dtype=jnp.float32),
            plgpu.SMEM((ROWS,), jnp.float32),
            plgpu.SMEM((ROWS,), jnp.float32),
            plgpu.SMEM((ROWS,), jnp.float32),
            vectors,
            vectors,
            matrix(stages, columns, width, dtype=dtype),
            matrix(stages, columns, width, dtype=dtype),
        )
        barriers = (
            plgpu.Barrier(),
            plgpu.Barrier(),
            plgpu.Barrier(num_arrivals=COMPUTE),
            *(
                tuple(
                    (
                        plgpu.Barrier(num_barriers=slots),
                        plgpu.Barrier(num_arrivals=COMPUTE, num_barriers=slots),
                    )
                    for _ in range(2)
                )
                for slots in (sweep.FACTOR_SLOTS, stages)
            ),
        )
        pl.run_scoped(
            lambda *scoped: kernel(*arrays, *scoped), buffers, barriers, collective_axes="warpgroup"
        )

    def call(query, *keys):
        return plgpu.kernel(
            with_memory,
            out_type=(
                jax.ShapeDtypeStruct(query.shape, query.dtype),
                jax.ShapeDtypeStruct(query.shape[:2], jnp.float32),
            ),
            grid=(plan.batch, plan.rows // ROWS),
            grid_names=("group", "tile"),
            num_threads=COMPUTE + 1,
            thread_name="warpgroup",
            compiler_params=plgpu.CompilerParams(approx_math=True),
            interpret=plgpu.InterpretGPUParams() if interpret else None,
        )(query, *keys)

    return call
