"""Tiles of trans on a TPU: their sizes, where they lie in the arrays, and what of them is inside.

Every kernel sees the same three axes, X (rows), A (the reduced index) and Y (columns of the premise), and
some heads; they differ in the order in which the grid walks along the axes. A `Tiles` has the sizes and makes
block specifications for an order; its masks cut off what overhangs the arrays' ends.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jaxtyping import Array

from kernels.arrays import divisor, round_up
from kernels.chips import Chip
from kernels.plans import Launch, Refused, check, fits
from kernels.tables import Direction
from kernels.tpu_shared import LANES, check_arrays, tile_bytes, with_temporaries
from kernels.trans.reference import Config

LIVE = 4  # float32 tiles of the kernel that are live at once
LONGEST = {"forward": (512, 512, 512), "backward": (256, 512, 512)}  # default tile sides: X, A, Y
# Heads share a step while the float32 bytes of the kernel's tile stay under this: a step has a fixed cost.
HEADS_BYTES = {"forward": 2**19, "backward": 2**18}
NAMES = ("heads", "rows", "columns", "outputs")  # block sizes, as tables and callers write them
DTYPES = ("float32", "bfloat16")


class Here(NamedTuple):
    """Where a step of the grid is.

    Attributes:
        tile: the number of its tile along each axis.
        begins: whether it is the first step of the walk along the innermost axis.
        ends: whether it is the last one.
    """

    tile: dict[str, Any]
    begins: Any
    ends: Any


@dataclasses.dataclass(frozen=True)
class Tiles:
    """Sizes of the arrays and of the tiles they are cut into, and which tiles a causal mask leaves.

    Attributes:
        config: static settings of the call.
        batch: size of the batch axis; it may be a symbol of `jax.export`.
        total_heads: size of the heads' axis.
        sizes: of the axes X, A and Y.
        heads: how many a tile has; divides total_heads.
        sides: of a tile along X, A and Y.
    """

    config: Config
    batch: Any
    total_heads: int
    sizes: dict[str, int]
    heads: int
    sides: dict[str, int]

    def count(self, axis: str) -> int:
        """Tiles along an axis."""
        return pl.cdiv(self.sizes[axis], self.sides[axis])

    def grid(self, order: str) -> tuple[Any, ...]:
        """The grid that walks along the axes in this order, the last one innermost."""
        return self.batch, self.total_heads // self.heads, *(self.count(axis) for axis in order)

    def spec(
        self, order: str, axes: str, shape: tuple[int, ...] | None = None, written: bool = False
    ) -> pl.BlockSpec:
        """Where a step of such a grid finds its tile of an array [B, H, *axes].

        Args:
            order: of the grid's last three axes, such as "XYA".
            axes: the array's last two axes, of "X", "A", "Y" and "1" (of size 1).
            shape: the array's, where some sizes may be 1: a mask's.
            written: an output, of which every tile is written; of an input those not needed are not fetched.
        """
        whole = [shape is not None and size == 1 for size in shape or (0, 0, 0, 0)]
        sides = [self.sides.get(axis, 1) for axis in axes]
        block = [1 if one else side for one, side in zip(whole[1:], (self.heads, *sides), strict=True)]

        def index(batch, heads, *place):
            tile = dict(zip(order, place, strict=True))
            tile = tile if written else self._fetched(order, tile, axes)
            wanted = (batch, heads, *(tile.get(axis, 0) for axis in axes))
            return tuple(0 if one else number for one, number in zip(whole, wanted, strict=True))

        return pl.BlockSpec((None, *block), index)

    def _fetched(self, order: str, tile: dict[str, Any], axes: str) -> dict[str, Any]:
        """The tile to fetch for a step: the nearest that is computed, so that no step fetches for nothing."""
        if not self.config.causal or self.config.row_offset < 0:
            return tile
        inner = max("XA", key=order.index)  # of the two that the mask is about, the one that walks faster
        if inner not in axes:
            return tile
        # Nothing is negative here, and a division that rounds towards 0 needs no sign, hence no device.
        if inner == "A":
            seen = (tile["X"] + 1) * self.sides["X"] - 1 + self.config.row_offset
            return {**tile, "A": jnp.minimum(tile["A"], jax.lax.div(seen, self.sides["A"]))}
        first = jnp.maximum(tile["A"] * self.sides["A"] - self.config.row_offset, 0)
        first = jnp.minimum(jax.lax.div(first, self.sides["X"]), self.count("X") - 1)
        return {**tile, "X": jnp.maximum(tile["X"], first)}

    def here(self, order: str) -> "Here":
        """Inside a kernel: where the step is.

        Asked once, at the top: inside of a condition Pallas' plain interpreter does not know it.
        """
        tile = {axis: pl.program_id(2 + place) for place, axis in enumerate(order)}
        inner = order[-1]
        return Here(tile, tile[inner] == 0, tile[inner] == self.count(inner) - 1)

    def computed(self, here: "Here") -> Any:
        """Inside a kernel: whether any entry of the step's tile of the kernel may be allowed."""
        if not self.config.causal:
            return True
        seen = (here.tile["X"] + 1) * self.sides["X"] - 1 + self.config.row_offset
        return here.tile["A"] * self.sides["A"] <= seen

    def positions(self, here: "Here", axis: str, shape: tuple[int, ...], dimension: int) -> Array:
        """Inside a kernel: where each entry of a tile lies along an axis of the whole array."""
        first = here.tile[axis] * self.sides[axis]
        return jax.lax.broadcasted_iota(jnp.int32, shape, dimension) + first

    def inside(self, here: "Here", axes: str, reference: Any) -> Array:
        """Inside a kernel: a tile [heads, *axes] with 0 where it overhangs and may hold anything."""
        values = reference[...]
        for dimension, axis in enumerate(axes, start=1):
            if axis in self.sizes and self.sizes[axis] % self.sides[axis]:
                there = self.positions(here, axis, values.shape, dimension) < self.sizes[axis]
                values = jnp.where(there, values, jnp.zeros_like(values))
        return values

    def logits(self, here: "Here", kernel: Any, mask: Any) -> Array:
        """Inside a kernel: float32 logits [heads, X, A] of a tile, -inf where nothing is or may be seen."""
        logits = kernel[...].astype(jnp.float32)
        conditions = []
        if mask is not None:
            conditions.append(mask[...].astype(jnp.int32) != 0)
        for dimension, axis in ((1, "X"), (2, "A")):
            if self.sizes[axis] % self.sides[axis]:
                conditions.append(self.positions(here, axis, logits.shape, dimension) < self.sizes[axis])
        if self.config.causal:
            rows = self.positions(here, "X", logits.shape, 1) + self.config.row_offset
            conditions.append(self.positions(here, "A", logits.shape, 2) <= rows)
        for condition in conditions:
            logits = jnp.where(condition, logits, -jnp.inf)
        return logits


@dataclasses.dataclass(frozen=True)
class Kernel:
    """A kernel over the grid of some tiles.

    Attributes:
        name: the kernel's, in profiles.
        body: gets the tiles, `Here`, and references: a list of inputs, the mask or None, a list of outputs
            and a list of what runs along the innermost axis (empty where that has one tile only).
        tiles: the tiles.
        order: in which the grid walks along the axes; tiles are independent but along the last ones.
        inputs: axes and dtype of each of the arrays [B, H, *axes] that it reads.
        mask: shape of the mask [b, h, x, a], or None.
        outputs: axes and dtype of each array that it writes.
        running: axes of each float32 tile that is kept along the innermost axis.
        summed: how many of the last axes of the grid add to the same outputs.
    """

    name: str
    body: Callable[..., None]
    tiles: Tiles
    order: str
    inputs: tuple[tuple[str, Any], ...]
    mask: tuple[int, ...] | None
    outputs: tuple[tuple[str, Any], ...]
    running: tuple[str, ...] = ()
    summed: int = 1

    @property
    def kept(self) -> tuple[str, ...]:
        """What runs along the innermost axis, if that has several tiles."""
        return self.running if self.tiles.count(self.order[-1]) > 1 else ()

    def _tile(self, axes: str) -> tuple[int, ...]:
        return self.tiles.heads, *(self.tiles.sides.get(axis, 1) for axis in axes)

    @property
    def launch(self) -> Launch:
        """Its grid, and its vector memory: blocks twice, as the next ones are on their way, and more."""
        tile = self._tile("XA")
        blocks = sum(tile_bytes(self._tile(axes), dtype) for axes, dtype in (*self.inputs, *self.outputs))
        if self.mask is not None:
            ones = [size == 1 for size in self.mask[1:]]
            blocks += tile_bytes(
                tuple(1 if one else side for one, side in zip(ones, tile, strict=True)), jnp.int8
            )
        live = [self._tile(axes) for axes in self.kept] + [tile] * LIVE
        live += [self._tile(axes) for axes, _ in (*self.inputs, *self.outputs)]
        temporaries = sum(tile_bytes(shape, jnp.float32) for shape in live)
        return Launch(self.name, self.tiles.grid(self.order), with_temporaries(2 * blocks + temporaries))


def run(kernel: Kernel, arrays: Sequence[Array], mask: Array | None, interpret: Any) -> Sequence[Array]:
    """Calls a kernel; returns its outputs.

    Args:
        kernel: the kernel.
        arrays: its inputs.
        mask: [b, h, x, a], or None.
        interpret: run on a CPU; True, or `pltpu.InterpretParams`.
    """
    tiles, order, count, arrays = kernel.tiles, kernel.order, len(kernel.inputs), list(arrays)
    specs = [tiles.spec(order, axes) for axes, _ in kernel.inputs]
    if mask is not None:  # as bytes: Mosaic has no arrays of booleans
        arrays.append(mask.astype(jnp.int8))
        specs.append(tiles.spec(order, "XA", mask.shape))
    # Inside shard_map results vary over the mesh axes that the arguments vary over.
    manual = jax.typeof(arrays[0]).manual_axis_type

    def shape(axes: str) -> tuple[Any, ...]:
        return tiles.batch, tiles.total_heads, *(tiles.sizes.get(axis, 1) for axis in axes)

    def body(*references):
        here = tiles.here(order)
        read, written = list(references[:count]), list(references[len(arrays) :])
        masked = references[count] if mask is not None else None
        outputs = len(kernel.outputs)
        kernel.body(tiles, here, read, masked, written[:outputs], written[outputs:])

    launch, summed = kernel.launch, kernel.summed
    return pl.pallas_call(
        body,
        grid=launch.grid,
        in_specs=specs,
        out_specs=[tiles.spec(order, axes, written=True) for axes, _ in kernel.outputs],
        out_shape=[
            jax.ShapeDtypeStruct(shape(axes), dtype, manual_axis_type=manual)
            for axes, dtype in kernel.outputs
        ],
        scratch_shapes=[
            pltpu.VMEM((tiles.heads, *(tiles.sides.get(axis, 1) for axis in axes)), jnp.float32)
            for axes in kernel.kept
        ],
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("parallel",) * (5 - summed) + ("arbitrary",) * summed,
            vmem_limit_bytes=launch.memory,
        ),
        interpret=interpret,
        name=launch.name,
    )(*arrays)


def product(left: Array, right: Array, left_axis: int, right_axis: int) -> Array:
    """Inside a kernel: products per head over one axis a side, in the narrower dtype, summed in float32."""
    narrow = jnp.bfloat16 if jnp.bfloat16 in (left.dtype, right.dtype) else jnp.float32
    return jax.lax.dot_general(
        left.astype(narrow),
        right.astype(narrow),
        (((left_axis,), (right_axis,)), ((0,), (0,))),
        # The default would round float32 to bfloat16 before it multiplies.
        precision=jax.lax.Precision.HIGHEST if narrow == jnp.float32 else jax.lax.Precision.DEFAULT,
        preferred_element_type=jnp.float32,
    )


def planned(
    direction: Direction,
    config: Config,
    arrays: Sequence[Any],
    chip: Chip,
    blocks: Mapping[str, int] | None,
    kernels: Callable[..., tuple[Kernel, ...]],
) -> tuple[Kernel, ...]:
    """Plans a call for a chip: its kernels, with tiles that fit into vector memory.

    Args:
        direction: "forward" or "backward".
        config: static settings.
        arrays: kernel_logits, premise and mask or None, or their shapes and dtypes.
        chip: a TPU.
        blocks: wishes for the sizes of tiles, made to suit the call; None for the default ones.
        kernels: `(tiles, kernel_logits, premise, mask)` to the kernels of this direction.

    Raises:
        Refused: what the kernels do not compute, and what fits with no tiles.
    """
    kernel_logits, premise, mask = arrays
    check_arrays(DTYPES, any_batch=True, kernel_logits=kernel_logits, premise=premise)
    if 0 in (*kernel_logits.shape, *premise.shape):
        shapes = f"{kernel_logits.shape} and {premise.shape}"
        raise Refused(f"kernel_logits, premise: got shapes {shapes}, expected no empty axis")
    smallest = dict.fromkeys(NAMES, LANES) | {"heads": 1}
    for tried in (blocks, None, smallest):
        found = kernels(tiles(config, kernel_logits, premise, direction, tried), kernel_logits, premise, mask)
        if not any(fits(chip, kernel.launch) for kernel in found):
            return found
    check(chip, [kernel.launch for kernel in found])
    return found


def tiles(
    config: Config, kernel_logits: Any, premise: Any, direction: Direction, blocks: Mapping[str, int] | None
) -> Tiles:
    """The tiles of a call in one direction, near given sizes or of the default ones."""
    batch, heads, *sizes = (*kernel_logits.shape, premise.shape[3])
    blocks = default(config, kernel_logits, premise, direction) | dict(blocks or {})
    sides = [round_up(min(blocks[name], size), LANES) for name, size in zip(NAMES[1:], sizes, strict=True)]
    return Tiles(
        config,
        batch,
        heads,
        dict(zip("XAY", sizes, strict=True)),
        divisor(heads, blocks["heads"]),
        dict(zip("XAY", sides, strict=True)),
    )


def default(config: Config, kernel_logits: Any, premise: Any, direction: str) -> dict[str, int]:
    """A sound choice: whole rows where they fit; with a causal mask tiles of which some can be left out."""
    heads, *sizes = (*kernel_logits.shape[1:], premise.shape[3])
    longest = LONGEST[direction]
    if config.causal and premise.dtype == jnp.float32:
        # Six passes of the matrix unit a product: leaving out products is worth fetching more often.
        longest = (256, 256, 512)
    sides = [side(*pair) for pair in zip(sizes, longest, strict=True)]
    return dict(zip(NAMES, (shared_heads(heads, sides, direction), *sides), strict=True))


def side(size: int, longest: int) -> int:
    """The side of tiles that cover an axis with little overhang; each tile counts for 64 entries more."""

    def cost(side: int) -> float:
        return pl.cdiv(size, side) * (side + LANES / 2)

    return min(range(LANES, min(longest, round_up(size, LANES)) + 1, LANES), key=cost)


def shared_heads(heads: int, sides: list[int], direction: str) -> int:
    """How many heads a step takes: the most that divide all and keep the tile small."""
    return divisor(heads, HEADS_BYTES[direction] // (4 * sides[0] * max(sides[1:])))


def candidates(config: Config, kernel_logits: Any, premise: Any, direction: str) -> list[dict[str, int]]:
    """Block sizes worth a try, the default first."""
    heads, *sizes = (*kernel_logits.shape[1:], premise.shape[3])
    whole = [round_up(size, LANES) for size in sizes]
    found = [default(config, kernel_logits, premise, direction)]
    for rows in (128, 256, 512):
        for columns in (128, 256, 512):
            sides = [min(side, size) for side, size in zip((rows, columns, 512), whole, strict=True)]
            for share in {1, shared_heads(heads, sides, direction)}:
                blocks = dict(zip(NAMES, (share, *sides), strict=True))
                found += [blocks] if blocks not in found else []
    return found
