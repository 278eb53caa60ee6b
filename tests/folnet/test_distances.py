"""Base atoms of decoders: ids of distances, whole texts, single tokens, other texts."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from folnet import distances, positions
from tests.folnet import small
from tests.folnet.small_decoders import OTHER

pytestmark = pytest.mark.usefixtures("compiled_quickly")

TYPES = np.asarray([[0, 0, 0, 1, 1, 1, 0], [0] * 7], np.int32)
LENGTH = 7
KINDS = {"folnet": {}, "t5": OTHER, "none": {"relative_position": "none"}}


def configured(kind: str) -> tuple[Any, Any]:
    """Returns settings, a table with distinct rows, and its rows for offsets -9..9 by the definitions."""
    config = small.config(**KINDS[kind])
    count = config.num_relative_positions
    if not count:
        return config, None
    return config, jnp.asarray(
        np.random.default_rng(0).normal(size=(count, config.relation_size)), jnp.float32
    )


def test_distances_are_the_encoders_without_cls():
    """They equal `positions.relative_ids` shifted by two tokens, so that none is the first."""
    config = small.config()
    places, types = jnp.arange(2, 2 + LENGTH), jnp.asarray(TYPES[1:])
    ids = small.quickly(lambda at: positions.relative_ids(at, at, types, types, config.max_distance))
    want = ids(places)[0]
    offsets = np.arange(LENGTH)[None] - np.arange(LENGTH)[:, None]
    np.testing.assert_array_equal(distances.offset_ids(config, offsets), want)
    assert not np.isin(distances.offset_ids(config, np.arange(-99, 99)), (6, 7)).any()  # [CLS]'s numbers


@pytest.mark.parametrize("kind", KINDS)
def test_whole_texts(kind):
    """One row of the table per pair; between segments the one for other texts, except with T5's."""
    config, table = configured(kind)
    found = small.quickly(lambda types: distances.of_texts(config, table, types))(TYPES)
    found = np.broadcast_to(found, (2, config.relation_size, LENGTH, LENGTH))
    table = None if table is None else np.asarray(table)
    for b, x, y in np.ndindex(2, LENGTH, LENGTH):
        if table is None:
            want = np.zeros(config.relation_size)
        elif kind == "folnet" and TYPES[b, x] != TYPES[b, y]:
            want = table[config.max_distance]
        else:
            want = table[distances.offset_ids(config, np.asarray([y - x]))[0]]
        np.testing.assert_array_equal(found[b, :, x, y], want)


@pytest.mark.parametrize("kind", KINDS)
def test_one_token_has_its_row_of_the_whole(kind):
    """Also if earlier columns belong to another text, and beyond the last distance."""
    config, table = configured(kind)
    ahead = ((0, 0), (2, 0))
    columns = distances.Columns(
        positions=jnp.asarray(np.pad(np.broadcast_to(np.arange(LENGTH), TYPES.shape), ahead)),
        types=jnp.asarray(np.pad(TYPES, ahead, constant_values=distances.OTHER_TEXT)),
        seen=jnp.asarray(np.ones((2, LENGTH + 2), bool)),
    )

    @small.quickly
    def texts(types):
        whole = distances.of_texts(config, table, types)
        whole = jnp.broadcast_to(whole, (2, *whole.shape[1:]))
        return jnp.concatenate((distances.to_other_text(config, table, 2, LENGTH, 2), whole), axis=3)

    of_token = small.quickly(lambda at, types: distances.of_token(config, table, at, types, columns))
    whole = np.asarray(texts(TYPES))
    for x in range(LENGTH):
        row = np.asarray(of_token(np.full(2, x, np.int32), TYPES[:, x]))
        np.testing.assert_array_equal(row[:, :, 0], whole[:, :, x])


@pytest.mark.parametrize("kind", KINDS)
def test_other_texts(kind):
    """One atom for all of their tokens: row Delta, or zeros."""
    config, table = configured(kind)
    found = small.quickly(lambda: distances.to_other_text(config, table, 2, 3, 4))()
    assert found.shape == (2, config.relation_size, 3, 4)
    want = table[config.max_distance] if kind == "folnet" else np.zeros(config.relation_size)
    np.testing.assert_array_equal(
        np.moveaxis(np.asarray(found), 1, 3), np.broadcast_to(want, (2, 3, 4, len(want)))
    )
