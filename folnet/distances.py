"""Binary base atoms of decoders: plain distances, of whole texts and of one token to those before it.

They are those of `positions`, without the two that single out [CLS]: a decoder's texts have none, they are
cut anywhere from longer ones, and what its first token is to others is no different from any other's. The
table is the encoder's, its two rows for [CLS] are not read; so an encoder's parameters can start a decoder.
A causal model has no use for the rows of later tokens either; within a prefix they are needed.

Between two texts there is no distance. Tokens of an input relate to those of a target as segments do to one
another: "folnet" has an atom for that (row Delta), "t5" has none, as its attention over the encoder has no
bias, and the base atoms are 0.

Axis letters: B batch; T tokens of a text, C tokens a single one may look at, N rows of a table, D2 its width.
"""

import jax.numpy as jnp
import numpy as np
from flax import struct
from jaxtyping import Array, Bool, Float, Int

from folnet import positions
from folnet.configuration import FOLNetConfig

OTHER_TEXT = -1
"""The segment of tokens that belong to another text: no token of this one has it."""

Table = Float[Array, "N D2"] | None


@struct.dataclass
class Columns:
    """Tokens that others look at: positions in their texts, and segments, OTHER_TEXT of an encoder's input.

    `seen` says whether they can be looked at yet: not room for later ones, nor padding.
    """

    positions: Int[Array, "B C"]
    types: Int[Array, "B C"]
    seen: Bool[Array, "B C"]


def offset_ids(config: FOLNetConfig, offsets: np.ndarray) -> np.ndarray:
    """The number of the base atom for offsets y - x, within a segment; see `positions`."""
    if config.relative_position == "t5":
        distance = config.relative_attention_max_distance
        return positions.t5_buckets(offsets, config.relative_attention_num_buckets, distance)
    return positions.near_ids(offsets, config.max_distance)


def of_texts(config: FOLNetConfig, table: Table, types: Int[Array, "B T"]) -> Float[Array, "#B D2 T T"]:
    """Base atoms of all pairs of whole texts, before they are normalised."""
    length = types.shape[1]
    if table is None:
        return jnp.zeros((1, config.relation_size, length, length))
    near = positions.diagonals(positions.rows_of(table, offset_ids(config, np.arange(1 - length, length))))
    if config.relative_position == "t5":
        return near[None]
    same = types[:, None, :, None] == types[:, None, None, :]
    return jnp.where(same, near[None], _between(config, table))


def of_token(
    config: FOLNetConfig, table: Table, position: Int[Array, "B"], types: Int[Array, "B"], columns: Columns
) -> Float[Array, "B D2 1 C"]:
    """Base atoms of one token of each text, at a position of a segment, to others, before normalisation."""
    batch, count = columns.positions.shape
    if table is None:
        return jnp.zeros((batch, config.relation_size, 1, count))
    t5 = config.relative_position == "t5"
    reach = config.relative_attention_max_distance if t5 else config.max_distance
    # From `reach` on all are alike, so a table of these offsets has all there are.
    local = positions.rows_of(table, offset_ids(config, np.arange(-reach, reach + 1)))
    offsets = jnp.clip(columns.positions - position[:, None], -reach, reach)
    near = jnp.take(local, offsets + reach, axis=1)  # [D2, B, C]
    near = jnp.moveaxis(near, 1, 0)[:, :, None]
    same = columns.types != OTHER_TEXT if t5 else columns.types == types[:, None]
    return jnp.where(same[:, None, None], near, _between(config, table))


def to_other_text(
    config: FOLNetConfig, table: Table, batch: int, rows: int, count: int
) -> Float[Array, "B D2 T C"]:
    """Base atoms of a text's tokens to those of another, before they are normalised."""
    shape = (batch, config.relation_size, rows, count)
    return jnp.zeros(shape) if table is None else jnp.broadcast_to(_between(config, table), shape)


def _between(config: FOLNetConfig, table: Float[Array, "N D2"]) -> Float[Array, "1 D2 1 1"]:
    """The base atom of tokens of two texts."""
    if config.relative_position == "t5":
        return jnp.zeros((1, config.relation_size, 1, 1), table.dtype)
    return table[config.max_distance][None, :, None, None]
