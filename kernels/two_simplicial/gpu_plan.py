"""What a call of the Hopper kernels of 2-simplicial attention is cut into, so that it fits a chip.

A call is cut into chunks of examples, and a chunk into slices of the keys in first place, which keep the
arrays between the kernels small. A slice is one launch of each kernel. Blocks shrink until what a program
keeps in shared memory fits.
"""

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import jax.numpy as jnp

from kernels import plans
from kernels.arrays import Described, divisor, round_up
from kernels.chips import Chip
from kernels.hopper import ROWS
from kernels.plans import Launch, Refused
from kernels.tables import Direction
from kernels.two_simplicial import gpu_backward, gpu_forward
from kernels.two_simplicial.gpu_tiles import PAIRS, Layout, Tiling
from kernels.two_simplicial.reference import Config

# With fewer keys most of a tile of 16 would be padding; the plain path is hard to beat there.
LEAST_KEYS = 8
MOST_KEYS = 4096
MOST_FEATURES = 128

# Bytes that the arrays of a chunk may take (products of queries and keys, sums in float32), and those of a
# slice (values of pairs; three times as much of float32). One example, and one step, may take more.
CHUNK_BYTES = {"forward": 36 << 20, "backward": 18 << 20}
SLICE_BYTES = {"forward": 16 << 20, "backward": 8 << 20}
# Keys of a slice that make a pipeline worth starting, and programs of one warpgroup that keep a
# multiprocessor busy: chunks are not smaller than the second asks for, else small enough for the first.
SLICE_KEYS = 16
PROGRAMS = 4
WARPGROUPS = 2  # that compute in a program, if there is work for them and room

LAYOUTS: dict[str, Callable[[Tiling], Layout]] = {
    "forward": gpu_forward.layout,
    "query_side": gpu_backward.query_layout,
    "pair_side": gpu_backward.pair_layout,
}
KERNELS: dict[Direction, tuple[str, ...]] = {"forward": ("forward",), "backward": ("query_side", "pair_side")}


@dataclass(frozen=True)
class Plan:
    """A call, cut up.

    Attributes:
      tilings: sizes by kernel, which differ in j_block, stages, ahead and warpgroups only.
      launches: the kernels of a slice, those of `output` included.
      examples: how many make a chunk.
      chunks: how many there are; the last is filled up.
      slices: of the keys in first place.
      output: how the backward pass computes the output again where it was saved in 16 bits, or None.
    """

    tilings: Mapping[str, Tiling]
    launches: tuple[Launch, ...]
    examples: int
    chunks: int
    slices: int
    output: "Plan | None" = None

    @property
    def tiling(self) -> Tiling:
        """The sizes that the kernels agree on."""
        return next(iter(self.tilings.values()))


def plan(
    direction: Direction,
    config: Config,
    query: Described,
    key1: Described,
    key2: Described,
    value: Described,
    bilinear: Described,
    mask: Described | None = None,
    *,
    chip: Chip,
    blocks: Mapping[str, int] | None = None,
) -> Plan:
    """Decides on everything; `blocks` are a wish.

    Raises:
      Refused: for what the kernels cannot compute.
    """
    arrays = {"query": query, "key1": key1, "key2": key2, "value": value, "bilinear": bilinear}
    for name, array in arrays.items():
        if array.dtype not in (jnp.float32, jnp.bfloat16):
            raise Refused(f"{name}: got dtype {array.dtype}, expected float32 or bfloat16")
        if symbols := [str(size) for size in array.shape if not isinstance(size, int)]:
            raise Refused(f"{name}: got the symbolic size {symbols[0]}, expected a number; 'xla' takes any")
    sizes = (*query.shape, key1.shape[1], value.shape[-1], bilinear.shape[1])
    _, _, _, d, m, e, f = sizes
    if m < LEAST_KEYS:
        raise Refused(f"M: got {m} keys, expected at least {LEAST_KEYS} (fewer leave most of a tile empty)")
    if m > MOST_KEYS:
        raise Refused(f"M: got {m} keys, expected at most {MOST_KEYS}")
    for name, size in (("D", d), ("E", e), ("F", f)):
        if size > MOST_FEATURES:
            raise Refused(
                f"{name}: got {size} features, expected at most {MOST_FEATURES} (registers hold no more)"
            )
    if config.scale <= 0:
        # The largest logit is found before scaling.
        raise Refused(f"scale: got {config.scale}, expected a positive number")
    wish = tuple(sorted(blocks.items())) if blocks else ()
    narrow = jnp.result_type(*(a.dtype for a in arrays.values())) == jnp.bfloat16
    recompute = direction == "backward" and value.dtype == jnp.bfloat16
    return _plan(
        direction, config, sizes, narrow, None if mask is None else mask.shape, chip, wish, recompute
    )


def default_blocks(direction: Direction, keys: int) -> dict[str, int]:
    """Keys k of a tile, keys j of a pipeline step, and stages of the pipeline."""
    width = 16 if keys <= 16 else 32
    return {"k": width, "j": 4 if direction == "forward" else PAIRS // width, "stages": 2}


@functools.lru_cache(maxsize=1024)
def _plan(direction, config, sizes, narrow, mask, chip, wish, recompute, exact=False) -> Plan:
    output = None
    exact = exact or direction == "backward"
    if recompute:
        # W takes twice as much as in the forward pass, so a slice is half as long.
        output = _plan("forward", config, sizes, narrow, mask, chip, (("j", 2),), False, True)
    reason = ""
    for k, tried in _wishes(direction, sizes[4], dict(wish)):
        whole = _tiling(config, sizes, narrow, mask, k, exact, exact and direction == "forward", chip)
        unit = max(j for j, _ in tried) * (WARPGROUPS if direction == "backward" else 1)
        examples, slices, first = _cut(direction, sizes, whole, chip, unit)
        padded = slices * first != sizes[4] or whole.second != sizes[4]
        biased = whole.biased or padded
        whole = replace(whole, groups=examples * whole.heads, first=first, biased=biased)
        tilings, launches = {}, []
        for kernel in KERNELS[direction]:
            # Of float32 numbers the pair side has no registers left for a loop over pieces.
            aheads = (1,) if kernel == "pair_side" and not narrow else (2, 1)
            for warpgroups, (j, stages), ahead in itertools.product((WARPGROUPS, 1), tried, aheads):
                tiling = replace(whole, j_block=j, stages=stages, ahead=ahead, warpgroups=warpgroups)
                shared_out = tiling.j_steps if kernel == "pair_side" else tiling.q_steps
                if first % j or shared_out % warpgroups or (kernel == "pair_side" and j * k != PAIRS):
                    continue
                launch = LAYOUTS[kernel](tiling).kernel.launch
                unfit = plans.fits(chip, launch)
                if unfit is None:
                    tilings[kernel] = tiling
                    launches.append(launch)
                    break
                reason = unfit
            else:
                break
        else:
            earlier = output.launches if output is not None else ()
            chunks = -(-sizes[0] // examples)
            return Plan(tilings, (*earlier, *launches), examples, chunks, slices, output)
    raise Refused(reason)


def _wishes(direction, keys, wish) -> Iterator[tuple[int, list[tuple[int, int]]]]:
    """Widths k to try, each with (j, stages) in the order to try: those asked for, then ever smaller ones."""
    default = default_blocks(direction, keys)
    k, j, stages = ({**default, **wish}[name] for name in ("k", "j", "stages"))
    suits = k in (16, 32, 64) and round_up(keys, k) <= round_up(keys, default["k"])
    suits = suits and j in (1, 2, 4, 8) and 1 <= stages <= 4 and 32 <= j * k <= 256
    if not suits or (direction == "backward" and j * k != PAIRS):
        k, j, stages = default.values()
    for width in (k, 16) if k > 16 else (k,):
        most = j if width == k else PAIRS // width
        # A step has at least 32 pairs, so that its copies are whole lines.
        smaller = [
            (size, count) for count in (2, 1) for size in (8, 4, 2, 1) if size <= most and size * width >= 32
        ]
        first = [(j, stages)] if width == k else []
        yield width, [*first, *smaller]


def _tiling(config, sizes, narrow, mask, k, exact, recomputed, chip) -> Tiling:
    """The sizes of a call in one piece, with tiles of `k` keys.

    `exact` is for dP - delta, where what W and the output were rounded by would be left over.
    """
    batch, n, heads, d, m, _, f = sizes
    linear = config.logit != "unsigned"
    triples = mask is not None and mask[1] != 1 and mask[2:] != (1, 1)
    return Tiling(
        linear=linear,
        groups=batch * heads,
        heads=heads,
        queries=round_up(n, ROWS if n <= ROWS else ROWS * WARPGROUPS),
        first=m,
        second=round_up(m, k),
        features=round_up(f, 16),
        depth=round_up(d, 16) if linear else 0,
        scale=config.scale,
        value_parts=(2 if exact else 1) if narrow else 3,
        output_parts=1 if narrow else 3,
        # Weights of 8 bits will do for the output, and for the gradient of W.
        weight_parts=2 if not narrow or recomputed or (exact and linear) else 1,
        query_parts=(1 if narrow else 3) if linear else 0,
        key_parts=(2 if narrow else 3) if linear else 0,
        biased=mask is not None and not triples and mask[2:] != (1, 1),
        masked=triples,
        j_block=1,
        k_block=k,
        stages=1,
        ahead=1,
        warpgroups=1,
        programs=chip.cores,
    )


def _cut(direction, sizes, whole, chip, unit) -> tuple[int, int, int]:
    """Examples of a chunk, slices of the first keys, and keys of a slice, a multiple of `unit`."""
    batch, _, heads, d, m, e, _ = sizes
    ways = 1 if direction == "forward" else 2
    square = 0 if whole.linear else whole.second  # products of a query and keys
    rows = ways * square + (1 + ways) * whole.features + ways * whole.depth
    group = 4 * (whole.queries * rows + ways * m * (d + e))
    parts = whole.features * whole.value_parts + whole.depth * whole.key_parts
    products = 0 if whole.linear else 1 + (ways - 1) * whole.k_steps
    key = 2 * whole.second * parts + whole.queries * (4 * products + whole.masked * whole.second)
    slice_bytes = SLICE_BYTES[direction] * whole.output_parts

    programs = whole.q_steps * (whole.k_steps if direction == "backward" else 1)
    groups = min(CHUNK_BYTES[direction] // group, slice_bytes // (SLICE_KEYS * key))
    groups = max(groups, PROGRAMS * chip.cores // programs)
    examples = max(1, min(batch, groups // heads))
    even = divisor(batch, examples)
    examples = even if 2 * even >= examples else examples  # the last chunk is filled up

    most = slice_bytes // (examples * heads * key)
    slices = math.ceil(m / max(most // unit * unit, unit))
    first = round_up(math.ceil(m / slices), unit)
    return examples, math.ceil(m / first), first
