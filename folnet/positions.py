"""Relative positions of tokens: the binary base atoms RelDist of Appendix A.4, and T5's buckets.

Axis letters: B batch; T, X, Y tokens; N, M rows of a table or offsets; D2 its width.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int


def relative_ids(
    rows: Int[Array, "X"],
    columns: Int[Array, "Y"],
    row_types: Int[Array, "B X"],
    column_types: Int[Array, "B Y"],
    max_distance: int,
) -> Int[Array, "B X Y"]:
    """Returns the number of the atom RelDist_d(x, y) that holds for a pair, numbered as in released models.

    With t and tau the positions of x and y, the first case that applies is taken:

        t = tau = 0                  0                     [CLS] to itself
        t = 0                        2 Delta               [CLS] to others
        tau = 0                      2 Delta + 1           others to [CLS]
        different segments           Delta
        tau >= t                     min(tau - t, Delta - 1)
        tau < t                      2 Delta + max(tau - t, 1 - Delta)

    Thus Delta - 1 means at least that far after, and Delta + 1 at least that far before. Padding belongs to
    segment 0. Delta is `max_distance`, at least 2; `rows` and `columns` are the positions of x and y, from 0.
    """
    t, tau = rows[:, None], columns[None, :]
    near = near_ids(tau - t, max_distance, jnp)
    same = row_types[:, :, None] == column_types[:, None, :]
    ids = jnp.where(same, near[None], max_distance)
    ids = jnp.where(((t == 0) & (tau > 0))[None], 2 * max_distance, ids)
    ids = jnp.where(((t > 0) & (tau == 0))[None], 2 * max_distance + 1, ids)
    return jnp.where(((t == 0) & (tau == 0))[None], 0, ids)


def near_ids(offsets: Any, max_distance: int, xp: Any = np) -> Any:
    """Returns `relative_ids` of offsets tau - t within a segment, using NumPy or JAX."""
    last = max_distance - 1
    return xp.where(offsets >= 0, xp.minimum(offsets, last), 2 * max_distance + xp.maximum(offsets, -last))


def relative_atoms(
    table: Float[Array, "N D2"], token_type_ids: Int[Array, "B T"], max_distance: int
) -> Float[Array, "B D2 T T"]:
    """Computes `table[relative_ids]` of whole texts, predicates first, without an index per pair.

    The gradient of a gather over all pairs adds B T T rows into a table of 130, which is slow everywhere and
    varies from run to run on GPUs. Equal distances lie on diagonals, which a reshape can fill; the remaining
    cases choose between constants. The gradient then consists of sums.
    """
    length = token_type_ids.shape[1]
    if not isinstance(length, int):  # a symbolic length under `jax.export`, which `diagonals` cannot reshape
        positions = jnp.arange(length)
        every = relative_ids(positions, positions, token_type_ids, token_type_ids, max_distance)
        return jnp.moveaxis(table[every], -1, 1)
    ids = near_ids(np.arange(1 - length, length), max_distance)
    near = diagonals(rows_of(table, ids))[None]  # [1, D2, T, T]
    other, from_first, to_first = (
        table[max_distance + row][None, :, None, None] for row in (0, max_distance, max_distance + 1)
    )
    same = token_type_ids[:, :, None] == token_type_ids[:, None, :]
    atoms = jnp.where(same[:, None], near, other)
    first = jnp.arange(length) == 0
    atoms = jnp.where((first[:, None] & ~first[None, :])[None, None], from_first, atoms)
    return jnp.where((~first[:, None] & first[None, :])[None, None], to_first, atoms)


def t5_atoms(table: Float[Array, "N D2"], length: int, max_distance: int) -> Float[Array, "1 D2 T T"]:
    """Returns binary base atoms by T5's buckets: `table[t5_buckets]`, predicates first."""
    buckets = t5_buckets(np.arange(1 - length, length), len(table), max_distance)
    return diagonals(rows_of(table, buckets))[None]


def t5_buckets(offsets: Int[np.ndarray, "*N"], num_buckets: int, max_distance: int) -> Int[np.ndarray, "*N"]:
    """Returns buckets of distances y - x (Raffel et al. 2020): single distances first, then growing widths.

    Half of a direction's buckets stand for single distances; the others grow by a constant factor up to
    `max_distance`, and the last includes all greater distances.

    Row 5 of Table 3 only says "the relative positional encoding used by T5", and no code for it was released.
    T5 adds a learned scalar per bucket and head to the attention scores of every layer. FOLNet has binary
    atoms in that place, so here a bucket's row is the pair's binary base atom, like the paper's own relative
    positions, and reaches all layers through the residual stream. The buckets are T5's; their place, their
    width D2, and that segments and [CLS] make no difference, are our choices. (The paper counts 110M
    parameters for this row and 109M without; this table adds only 384. Absolute positions, which
    `absolute_position` adds, would account for the difference.)

    Args:
      offsets: y - x.
      num_buckets: total number of buckets; half of them are for y > x.
      max_distance: start of the last bucket.
    """
    num_buckets //= 2
    direction, distance = num_buckets * (offsets > 0), np.abs(offsets)
    exact = num_buckets // 2
    # Where the logarithm is an integer, a rounded quotient may fall just below it.
    growth = np.log(np.maximum(distance, 1) / exact) / np.log(max_distance / exact) * (num_buckets - exact)
    far = exact + np.floor(growth + 1e-9).astype(int)
    return direction + np.where(distance < exact, distance, np.minimum(far, num_buckets - 1))


def rows_of(table: Float[Array, "N D2"], ids: Int[np.ndarray, "M"]) -> Float[Array, "D2 M"]:
    """Computes table[ids] transposed, exactly, as a product with a one-hot matrix; so is its gradient."""
    chosen = jax.nn.one_hot(ids, len(table), dtype=table.dtype, axis=0)
    return jnp.matmul(table.T, chosen, precision=jax.lax.Precision.HIGHEST)


def diagonals(values: Float[Array, "D2 N"]) -> Float[Array, "D2 T T"]:
    """Returns the matrices with values[:, T - 1 + y - x] at [x, y], N = 2T - 1: one value per diagonal.

    Let c be the values from the main diagonal on, one value that is never read, and the values before the
    main diagonal. Row x is c shifted right by x. Repeating c and cutting it into rows one shorter than c
    gives these shifts.
    """
    channels, count = values.shape
    length = (count + 1) // 2
    c = jnp.concatenate((values[:, length - 1 :], values[:, :1], values[:, : length - 1]), axis=1)
    repeated = jnp.broadcast_to(c[:, None], (channels, length, count + 1)).reshape(channels, -1)
    return repeated[:, : length * count].reshape(channels, length, count)[:, :, :length]
