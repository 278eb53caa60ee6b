"""Settings of BoxWorld: what may change in training is a pytree leaf, what fixes array sizes is static."""

import dataclasses
import math

import jax
import numpy as np
from flax import struct
from jax.typing import ArrayLike

from simplicial import checks

NUM_COLOURS = 20  # beside the Gem's white


class BoxWorldConfig(struct.PyTreeNode):
    """Which puzzles are drawn, on which board.

    The leaves may be traced or batched (`jax.vmap` over a curriculum); `reset` checks those that are plain
    numbers. Two locks on the Gem make it bridge BoxWorld: two solution paths of the same length and perhaps a
    bridge between them.

    Attributes:
        min_length: shortest solution path, in keys (the loose key counts).
        max_length: longest solution path; the length is uniform between the two.
        bridge_probability: how often there is a bridge; only a Gem with two locks can have one.
        min_distractors: fewest distractor branches.
        max_distractors: most distractor branches; their number is uniform between the two.
        branch_length: boxes in a distractor branch, each locked with the key of the one before it.
        horizon: steps after which an episode is truncated; 0 for never, as in the paper.
        rows: height R of the board.
        cols: width C of the board.
        gem_locks: 1, or 2 for bridge BoxWorld.
        traps: K, the most boxes that end an episode: `branch_length` per distractor, and one for the bridge.
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
        """How many of the K traps are kept for a bridge: the first one, where the Gem has two locks."""
        return self.gem_locks - 1

    @property
    def slot_xs(self) -> range:
        """Columns in which boxes and loose keys are put; a box's lock is one further right."""
        return range(1, self.cols - 1, 3)

    @property
    def slot_ys(self) -> range:
        """Rows in which boxes and loose keys are put."""
        return range(1, self.rows - 1, 2)

    @property
    def num_slots(self) -> int:
        """How many slots the board has."""
        return len(self.slot_xs) * len(self.slot_ys)


STANDARD = BoxWorldConfig(min_length=1, max_length=5, max_distractors=4, rows=9, cols=9, gem_locks=1, traps=4)
"""The paper's BoxWorld of Zambaldi et al.: 9 x 9, solution length 1 to 5, up to 4 distractors of length 1."""

BRIDGE = BoxWorldConfig(max_length=3, bridge_probability=0.5, rows=7, cols=9, gem_locks=2, traps=1)
"""The paper's bridge BoxWorld: 7 x 9, solution length 1 to 3, a bridge in half of the episodes."""


def check_sizes(config: BoxWorldConfig) -> None:
    """Raises ValueError where a static size does not give a board."""
    if config.gem_locks not in (1, 2):
        raise ValueError(f"gem_locks must be 1 or 2, not {config.gem_locks!r}")
    for name, least in (("rows", 3), ("cols", 3), ("traps", config.bridge_traps)):
        checks.whole_number(name, getattr(config, name), least)


def check(config: BoxWorldConfig) -> None:
    """Refuses settings that cannot be met; leaves that are traced or batched are taken on trust.

    Raises:
        ValueError: a range is empty or out of bounds, or its largest puzzle does not fit the board's slots,
            the colours or `traps`.
    """
    check_sizes(config)
    plain = known_leaves(config)
    probability = plain.pop("bridge_probability")
    for name, value in plain.items():
        least = int(name in ("min_length", "max_length", "branch_length"))
        if value is not None and (value < least or value != int(value)):
            raise ValueError(f"{name} must be a whole number of at least {least}, not {value}")
    for name in ("length", "distractors"):
        least, most = plain[f"min_{name}"], plain[f"max_{name}"]
        if least is not None and most is not None and least > most:
            raise ValueError(f"min_{name} must be at most max_{name}, not {least} > {most}")
    if probability is not None and not 0 <= probability <= 1:
        raise ValueError(f"bridge_probability must be between 0 and 1, not {probability}")
    if probability and config.gem_locks == 1:
        raise ValueError(f"bridge_probability must be 0 for a Gem with one lock, not {probability}")
    if config.gem_locks == 2 and (len(config.slot_xs) < 2 or len(config.slot_ys) < 2):
        raise ValueError(
            "a Gem with two locks needs slots to its right and below it: at least 5 rows and 6 columns, "
            f"not rows={config.rows}, cols={config.cols}"
        )

    length, distractors, branch = (plain[name] for name in ("max_length", "max_distractors", "branch_length"))
    if length is None or distractors is None or branch is None:
        return
    side = int(distractors * branch)
    keys = int(config.gem_locks * length) + side
    if keys > NUM_COLOURS:
        raise ValueError(
            f"max_length, max_distractors and branch_length ask for {keys} colours of {NUM_COLOURS}"
        )
    if side > config.traps - config.bridge_traps:
        raise ValueError(
            f"traps must be at least {side + config.bridge_traps} for max_distractors={distractors:g} of "
            f"branch_length={branch:g}{' and a bridge' * config.bridge_traps}, not {config.traps}"
        )
    bridge = int(probability != 0 and config.gem_locks == 2)
    room = config.num_slots - (config.gem_locks - 1)  # the slot below a Gem with two locks stays empty
    if 1 + keys + bridge > room:
        raise ValueError(
            f"max_length={length:g}, max_distractors={distractors:g} and branch_length={branch:g} ask for "
            f"{1 + keys + bridge} slots{' with the bridge' * bridge}; rows={config.rows}, cols={config.cols} "
            f"have {room}"
        )


def known_leaves(config: BoxWorldConfig) -> dict[str, float | None]:
    """Every leaf as a number, None for those that are traced or batched.

    Raises:
        ValueError: one is infinite or not a number.
    """
    known: dict[str, float | None] = {}
    for field in dataclasses.fields(config):
        if not field.metadata.get("pytree_node", True):
            continue
        name, leaf = field.name, getattr(config, field.name)
        is_known = not isinstance(leaf, jax.core.Tracer) and np.ndim(leaf) == 0
        value = known[name] = float(leaf) if is_known else None
        if value is not None and not math.isfinite(value):
            raise ValueError(f"{name} must be finite, not {value}")
    return known
