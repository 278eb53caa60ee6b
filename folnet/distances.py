"""Binary base atoms of decoders: plain distances, for whole texts and for one token to those before it.

They are those of `positions` without the two that single out [CLS]. A decoder's texts have no [CLS]: they are
cut anywhere from longer texts, so their first token is like any other. The table is the encoder's, whose two
rows for [CLS] are not read; an encoder's parameters can therefore initialize a decoder. Causal models also
ignore the rows for later tokens, which a prefix needs.

There is no distance between two texts. Tokens of an input relate to those of a target as segments do to one
another: "folnet" has an atom for that (row Delta). "t5" has none, as its cross-attention has no bias, and the
base atoms are 0.

Axis letters: B batch; T tokens of a text; C columns, the tokens one token may attend to; N rows of a table;
D2 its width.
"""

import jax.numpy as jnp
import numpy as np
from flax import struct
from jaxtyping import Array, Bool, Float, Int

from folnet import positions
from folnet.configuration import FOLNetConfig

OTHER_TEXT = -1
"""Segment of tokens that belong to another text; no token of the text itself has it."""

Table = Float[Array, "N D2"] | None


@struct.dataclass
class Columns:
    """Tokens that others attend to.

    Attributes:
      positions: positions in their texts.
      types: segments; OTHER_TEXT for an encoder's input.
      seen: whether a column can be attended to: False at padding and at room for later tokens.
    """

    positions: Int[Array, "B C"]
    types: Int[Array, "B C"]
    seen: Bool[Array, "B C"]


def offset_ids(config: FOLNetConfig, offsets: Int[np.ndarray, "*N"]) -> Int[np.ndarray, "*N"]:
    """Returns the number of the base atom for offsets y - x within a segment; see `positions`."""
    if config.relative_position == "t5":
        distance = config.relative_attention_max_distance
        return positions.t5_buckets(offsets, config.relative_attention_num_buckets, distance)
    return positions.near_ids(offsets, config.max_distance)


def of_texts(config: FOLNetConfig, table: Table, types: Int[Array, "B T"]) -> Float[Array, "#B D2 T T"]:
    """Returns base atoms of all pairs of whole texts, before normalization."""
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
    """Returns base atoms of one token per text, at a position in a segment, to `columns`; unnormalized."""
    batch, count = columns.positions.shape
    if table is None:
        return jnp.zeros((batch, config.relation_size, 1, count))
    t5 = config.relative_position == "t5"
    reach = config.relative_attention_max_distance if t5 else config.max_distance
    # All offsets from `reach` on are alike, so a table of -reach to reach is complete.
    local = positions.rows_of(table, offset_ids(config, np.arange(-reach, reach + 1)))
    offsets = jnp.clip(columns.positions - position[:, None], -reach, reach)
    near = jnp.take(local, offsets + reach, axis=1)  # [D2, B, C]
    near = jnp.moveaxis(near, 1, 0)[:, :, None]
    same = columns.types != OTHER_TEXT if t5 else columns.types == types[:, None]
    return jnp.where(same[:, None, None], near, _between(config, table))


def to_other_text(
    config: FOLNetConfig, table: Table, batch: int, rows: int, count: int
) -> Float[Array, "B D2 T C"]:
    """Returns base atoms of a text's tokens to those of another text, before normalization."""
    shape = (batch, config.relation_size, rows, count)
    return jnp.zeros(shape) if table is None else jnp.broadcast_to(_between(config, table), shape)


def _between(config: FOLNetConfig, table: Float[Array, "N D2"]) -> Float[Array, "1 D2 1 1"]:
    """Returns the base atom between tokens of two texts."""
    if config.relative_position == "t5":
        return jnp.zeros((1, config.relation_size, 1, 1), table.dtype)
    return table[config.max_distance][None, :, None, None]
