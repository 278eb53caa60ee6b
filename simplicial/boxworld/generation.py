"""Random puzzles from the authors' distribution.

The boxes and loose keys of a puzzle are numbered: 0 is the Gem; then, path by path, the boxes 1..L-1 of the
first path (key n behind lock n + 1) and its loose key L, then the same for the second path; then the bridge;
then the distractors, branch by branch. Each number is assigned a random slot. All of this is arithmetic on
the S slots, by rank instead of sorting or scattering, because vmapped sorts and scatters are slow on CPUs.

Axis letters: S slots, row by row; K traps; R rows, C columns.
"""

import colorsys
import itertools

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Int8, Int32, PRNGKeyArray, UInt8, UInt32

from simplicial.boxworld.config import NUM_COLOURS, BoxWorldConfig, check, known_leaves
from simplicial.boxworld.rules import EMPTY, GEM, State

HUES: UInt8[np.ndarray, "20 3"] = np.round(
    [255 * np.asarray(colorsys.hsv_to_rgb(i / NUM_COLOURS, 0.7, 0.8)) for i in range(NUM_COLOURS)]
).astype(np.uint8)
"""Colours of the keys: hues 0, 18, .., 342 degrees, saturation 0.7, value 0.8."""


def reset(key: PRNGKeyArray, config: BoxWorldConfig) -> State:
    """Returns a new episode with a puzzle drawn from the config's distribution.

    The solution length and the number of distractors are uniform in their ranges; slots and colours are
    random permutations. A bridge's lock is uniform over the keys of the first path, its key over those of the
    second; the first lock of a distractor branch is uniform over all keys of the solution.

    Raises:
        ValueError: the config's ranges are empty or do not fit the board; leaves that are traced or batched
            are not checked.
    """
    check(config)
    # One call draws all random words: a call for each draw would dominate the run and compile time.
    sizes = (2, 3, 1, config.num_slots, NUM_COLOURS, config.traps)
    words = jax.random.bits(key, (sum(sizes),), jnp.uint32)
    for_sizes, for_bridge, for_gem, for_slots, for_colours, for_locks = jnp.split(
        words, np.cumsum(sizes)[:-1]
    )
    paths = config.gem_locks
    length = _uniform(for_sizes[0], config.min_length, config.max_length)
    distractors = _uniform(for_sizes[1], config.min_distractors, config.max_distractors)

    rank = _slot_ranks(for_gem[0], for_slots, config)
    traps = jnp.arange(config.traps, dtype=jnp.int32)
    lock, content = _trap_boxes(for_bridge, for_locks, length, distractors, config)
    number = paths * length + 1 + traps
    if not config.bridge_traps:
        is_used = traps < distractors * config.branch_length
        bridge = jnp.zeros(2, jnp.int32)
    else:  # trap 0 is the bridge's; without a bridge the distractors move up by one, which leaves slots free
        has_bridge = lock[0] >= 0
        is_used = jnp.where(traps == 0, has_bridge, traps <= distractors * config.branch_length)
        number = number - jnp.where(traps > 0, 1 - has_bridge.astype(jnp.int32), 0)
        bridge = jnp.where(has_bridge, jnp.stack([lock[0], content[0]]), 0)

    on_path = (rank > 0) & (rank <= paths * length)
    contents = jnp.where(on_path, rank, EMPTY)
    locks = jnp.where(on_path & (rank % length != 0), rank + 1, EMPTY)
    here = (rank[:, None] == number[None]) & is_used[None]
    contents = jnp.maximum(contents, jnp.max(jnp.where(here, content[None], EMPTY), axis=1, initial=EMPTY))
    locks = jnp.maximum(locks, jnp.max(jnp.where(here, lock[None], EMPTY), axis=1, initial=EMPTY))
    is_gem = rank == 0
    grid = board_of(jnp.where(is_gem, GEM, contents), jnp.where(is_gem, 1, locks), config)
    if paths == 2:
        below = board_of(jnp.where(is_gem, GEM, EMPTY), jnp.where(is_gem, length + 1, EMPTY), config)
        grid = jnp.maximum(grid, jnp.roll(below, 1, axis=0))

    places = np.meshgrid(config.slot_ys, config.slot_xs, indexing="ij")
    ys, xs = (jnp.asarray(place.ravel(), jnp.int8) for place in places)
    gem_slot = jnp.argmax(is_gem)
    trap_slot = jnp.argmax(here, axis=0)
    return State(
        grid=grid,
        inventory=jnp.full(config.rows, EMPTY, jnp.int8),
        player=jnp.zeros(2, jnp.int8),
        gem=jnp.stack([xs[gem_slot], ys[gem_slot]]),
        palette=jnp.concatenate([jnp.full((1, 3), 255, jnp.uint8), jnp.asarray(HUES)[_ranks(for_colours)]]),
        traps=jnp.where(is_used[:, None], jnp.stack([xs[trap_slot] + 1, ys[trap_slot]], -1), -1),
        puzzle=jnp.stack([length, *bridge, distractors * config.branch_length]).astype(jnp.int8),
        time=jnp.int32(0),
        terminated=jnp.bool_(False),
        truncated=jnp.bool_(False),
    )


def puzzles(config: BoxWorldConfig) -> list[tuple[int, int, int]]:
    """Lists every (L, s, t) that `reset` can draw, (L, 0, 0) without a bridge; see `puzzle_type`.

    Raises:
        ValueError: the config's ranges are empty, do not fit the board, or are traced or batched.
    """
    check(config)
    known = known_leaves(config)
    least, most, probability = (known[name] for name in ("min_length", "max_length", "bridge_probability"))
    if least is None or most is None or probability is None:
        raise ValueError(
            "config: got lengths or a bridge_probability that are traced or batched, expected plain numbers"
        )
    found = []
    for length in range(int(least), int(most) + 1):
        if probability < 1:
            found.append((length, 0, 0))
        if probability > 0:
            locks, keys = range(1, length + 1), range(length + 1, 2 * length + 1)
            found += [(length, lock, held) for lock, held in itertools.product(locks, keys)]
    return found


def puzzle_number(state: State, config: BoxWorldConfig) -> Int32[Array, ""]:
    """Returns the index of the state's puzzle in `puzzles(config)`, or -1 if it is not listed.

    Raises:
        ValueError: as `puzzles`.
    """
    known = jnp.asarray(puzzles(config))
    is_it = jnp.all(known == state.puzzle[None, :3], axis=1)
    return jnp.where(is_it.any(), jnp.argmax(is_it), -1).astype(jnp.int32)


def _uniform(word: UInt32[Array, "*N"], least: ArrayLike, most: ArrayLike) -> Int32[Array, "*N"]:
    """Maps a random word to one of n < 2^20 integers, from `least` to `most`; bias below n / 2^24."""
    least = jnp.asarray(least, jnp.int32)
    count = (jnp.asarray(most, jnp.int32) - least + 1).astype(jnp.uint32)
    # (word >> 8) * count >> 24, in halves of 12 bits, because the product may have more than 32 bits
    high, low = word >> 20, word >> 8 & 0xFFF
    return least + (high * count + (low * count >> 12) >> 12).astype(jnp.int32)


def _ranks(words: UInt32[Array, "N"]) -> Int32[Array, "N"]:
    """Returns the rank of each of N random words: a uniformly random permutation."""
    count = words.shape[0]
    bits = (count - 1).bit_length()  # the low bits are replaced by the index, which breaks ties
    words = (words >> bits << bits) | jnp.arange(count, dtype=jnp.uint32)
    return jnp.sum(words[None, :] < words[:, None], axis=1, dtype=jnp.int32)


def _slot_ranks(
    for_gem: UInt32[Array, ""], for_slots: UInt32[Array, "S"], config: BoxWorldConfig
) -> Int32[Array, "S"]:
    """Returns the number of the box or key assigned to each slot; 0 is the Gem."""
    width, slots = len(config.slot_xs), config.num_slots
    order = _ranks(for_slots)
    if config.gem_locks == 1:
        return order
    # The authors shuffle the slots until the first one may hold the Gem (it is in neither the last column nor
    # the last row). Equivalently, the Gem's slot is uniform among those and the other slots are in uniform
    # order. The slot below the Gem is ranked last, which no puzzle that fits the board reaches.
    allowed = np.arange(slots).reshape(-1, width)[:-1, :-1].ravel()
    gem = jnp.asarray(allowed)[_uniform(for_gem, 0, allowed.size - 1)]
    place = jnp.arange(slots)
    is_gem, is_below = place == gem, place == gem + width
    gem_order = jnp.sum(jnp.where(is_gem, order, 0))
    below_order = jnp.sum(jnp.where(is_below, order, 0))
    among_others = 1 + order - (order > gem_order) - (order > below_order)
    return jnp.where(is_gem, 0, jnp.where(is_below, slots - 1, among_others))


def _trap_boxes(for_bridge, for_locks, length, distractors, config: BoxWorldConfig):
    """Returns lock and content of every trap, used or not; without a bridge the first lock is -1."""
    paths, first = config.gem_locks, config.bridge_traps
    traps = jnp.arange(config.traps, dtype=jnp.int32) - first
    content = paths * length + 1 + traps  # each holds a new key
    first_lock = _uniform(for_locks, 1, paths * length)
    lock = jnp.where(traps % config.branch_length == 0, first_lock, content - 1)
    if not first:
        return lock, content
    has_bridge = (for_bridge[0] >> 8).astype(jnp.float32) * 2.0**-24 < config.bridge_probability
    bridge_lock = _uniform(for_bridge[1], 1, length)
    bridge_key = _uniform(for_bridge[2], length + 1, 2 * length)
    lock = lock.at[0].set(jnp.where(has_bridge, bridge_lock, EMPTY))
    return lock, content.at[0].set(bridge_key)


def board_of(contents, locks, config: BoxWorldConfig) -> Int8[Array, "R C"]:
    """Places the tiles of all slots on the board, with `EMPTY` between them."""
    height, width = len(config.slot_ys), len(config.slot_xs)

    def spread(tiles, x):
        tiles = tiles.astype(jnp.int8).reshape(height, width)
        above, below = (1, config.rows - 2 * height), 1
        before, after = (x, config.cols - x - (3 * width - 2)), 2
        return jax.lax.pad(tiles, jnp.int8(EMPTY), [(*above, below), (*before, after)])

    return jnp.maximum(spread(contents, 1), spread(locks, 2))
