"""Settings of BoxWorld: settings that may change in training are pytree leaves, array sizes are static."""

import dataclasses
import math

import jax
import numpy as np
from flax import struct
from jax.typing import ArrayLike

from simplicial import checks

NUM_COLOURS = 20  # not counting the Gem's white


class BoxWorldConfig(struct.PyTreeNode):
    """Distribution of puzzles and size of the board.

    Leaves may be traced or batched (`jax.vmap` over a curriculum); `reset` checks those that are plain
    numbers. A Gem with two locks gives bridge BoxWorld: two solution paths of the same length and possibly a
    bridge between them.

    Attributes:
        min_length: shortest solution path, counted in keys including the loose key.
        max_length: longest solution path; the length is uniform between the two.
        bridge_probability: probability of a bridge; must be 0 for a Gem with one lock.
        min_distractors: smallest number of distractor branches.
        max_distractors: largest number of distractor branches; the number is uniform between the two.
        branch_length: boxes in a distractor branch; each is locked with the key in the previous one.
        horizon: number of steps after which an episode is truncated; 0 for never, as in the paper.
        rows: height R of the board.
        cols: width C of the board.
        gem_locks: 1, or 2 for bridge BoxWorld.
        traps: K, the largest number of boxes that end an episode: `branch_length` per distractor, plus one
            for the bridge.
    """

    min_length: ArrayLike = 1
    max_length: ArrayLike = 1
    bridge_probability: ArrayLike = 0.0
    min_distractors: ArrayLike = 0
    max_distractors: ArrayLike = 0
    branch_length: ArrayLike = 1
    horizon: ArrayLike = 0
    rows: int = struct.field(pytree_node=False, default=7)
    cols: int = struct.field(pytree_node=False, default=9)
    gem_locks: int = struct.field(pytree_node=False, default=2)
    traps: int = struct.field(pytree_node=False, default=1)

    @property
    def bridge_traps(self) -> int:
        """Number of traps reserved for a bridge (the first one of K): 1 if the Gem has two locks."""
        return self.gem_locks - 1

    @property
    def slot_xs(self) -> range:
        """Columns of the left tiles of boxes and of loose keys; a box's lock is one column to the right."""
        return range(1, self.cols - 1, 3)

    @property
    def slot_ys(self) -> range:
        """Rows of boxes and loose keys."""
        return range(1, self.rows - 1, 2)

    @property
    def num_slots(self) -> int:
        """Number of slots, places for a box or a loose key, on the board."""
        return len(self.slot_xs) * len(self.slot_ys)


STANDARD = BoxWorldConfig(min_length=1, max_length=5, max_distractors=4, rows=9, cols=9, gem_locks=1, traps=4)
"""The paper's BoxWorld of Zambaldi et al.: 9 x 9, solution length 1 to 5, up to 4 distractors of length 1."""

BRIDGE = BoxWorldConfig(max_length=3, bridge_probability=0.5, rows=7, cols=9, gem_locks=2, traps=1)
"""The paper's bridge BoxWorld: 7 x 9, solution length 1 to 3, a bridge in half of the episodes."""


LARGEST = 127
"""Most rows and columns: places are int8, also one step beyond the board."""


def check_sizes(config: BoxWorldConfig) -> None:
    """Raises ValueError if a static size does not give a valid board."""
    if config.gem_locks not in (1, 2):
        raise ValueError(f"gem_locks: got {config.gem_locks!r}, expected 1 or 2")
    for name, least in (("rows", 3), ("cols", 3), ("traps", config.bridge_traps)):
        checks.whole_number(name, getattr(config, name), least)
    for name in ("rows", "cols"):
        if getattr(config, name) > LARGEST:
            raise ValueError(f"{name}: got {getattr(config, name)}, expected at most {LARGEST}")


def check(config: BoxWorldConfig) -> None:
    """Checks settings for consistency; leaves that are traced or batched are not checked.

    Raises:
        ValueError: a range is empty or out of bounds, or its largest puzzle needs more slots, colours or
            traps than the config provides.
    """
    check_sizes(config)
    plain = known_leaves(config)
    probability = plain.pop("bridge_probability")
    for name, value in plain.items():
        least = int(name in ("min_length", "max_length", "branch_length"))
        if value is not None and (value < least or value != int(value)):
            raise ValueError(f"{name}: got {value:g}, expected an integer of at least {least}")
    for name in ("length", "distractors"):
        least, most = plain[f"min_{name}"], plain[f"max_{name}"]
        if least is not None and most is not None and least > most:
            raise ValueError(f"min_{name}: got {least:g}, expected at most max_{name} = {most:g}")
    if probability is not None and not 0 <= probability <= 1:
        raise ValueError(f"bridge_probability: got {probability}, expected a number between 0 and 1")
    if probability and config.gem_locks == 1:
        raise ValueError(f"bridge_probability: got {probability}, expected 0 for a Gem with one lock")
    if config.gem_locks == 2 and (len(config.slot_xs) < 2 or len(config.slot_ys) < 2):
        raise ValueError(
            f"rows, cols: got {config.rows} x {config.cols}, expected at least 5 x 6: a Gem with two locks "
            "needs slots to its right and below it"
        )

    length, distractors, branch = (plain[name] for name in ("max_length", "max_distractors", "branch_length"))
    if length is None or distractors is None or branch is None:
        return
    side = int(distractors * branch)
    keys = int(config.gem_locks * length) + side
    if keys > NUM_COLOURS:
        raise ValueError(
            f"max_length, max_distractors, branch_length: got puzzles of {keys} colours, expected at most "
            f"{NUM_COLOURS}"
        )
    if side > config.traps - config.bridge_traps:
        raise ValueError(
            f"traps: got {config.traps}, expected at least {side + config.bridge_traps} for "
            f"max_distractors={distractors:g} of branch_length={branch:g}"
            f"{' and a bridge' * config.bridge_traps}"
        )
    bridge = int(probability != 0 and config.gem_locks == 2)
    room = config.num_slots - (config.gem_locks - 1)  # the slot below a Gem with two locks stays empty
    if 1 + keys + bridge > room:
        raise ValueError(
            f"max_length={length:g}, max_distractors={distractors:g}, branch_length={branch:g}: got puzzles "
            f"of {1 + keys + bridge} slots{' with the bridge' * bridge}, expected at most {room} for "
            f"rows={config.rows}, cols={config.cols}"
        )


def known_leaves(config: BoxWorldConfig) -> dict[str, float | None]:
    """Returns every leaf as a number, or None if it is traced or batched.

    Raises:
        ValueError: a leaf is infinite or NaN.
    """
    known: dict[str, float | None] = {}
    for field in dataclasses.fields(config):
        if not field.metadata.get("pytree_node", True):
            continue
        name, leaf = field.name, getattr(config, field.name)
        is_known = not isinstance(leaf, jax.core.Tracer) and np.ndim(leaf) == 0
        value = known[name] = float(leaf) if is_known else None
        if value is not None and not math.isfinite(value):
            raise ValueError(f"{name}: got {value}, expected a finite number")
    return known
