"""Masks compared with their definition pair by pair, and invalid prefix lengths."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from folnet import masks
from tests.folnet.small_decoders import first

pytestmark = pytest.mark.usefixtures("compiled_quickly")


@pytest.mark.parametrize("padded", [False, True])
def test_decoder_masks_by_definition(padded):
    """Figure 4(b), pair by pair: earlier tokens, or both in the prefix; never padding."""
    lengths, prefixes, length = [5, 3, 4], [0, 2, 4], 5
    real = first(lengths, length) if padded else None
    for given in (None, jnp.asarray(prefixes)):
        mask = masks.decoder(length, given, real)
        assert mask.dtype == bool
        mask = np.broadcast_to(mask, (3, 1, length, length))
        for b, x, y in np.ndindex(3, length, length):
            both = given is not None and x < prefixes[b] and y < prefixes[b]
            assert mask[b, 0, x, y] == ((y <= x or both) and (not padded or y < lengths[b]))


def test_a_prefix_of_none_or_one_is_causal():
    """No token of the prefix attends to a later one."""
    mask = np.asarray(masks.prefix(jnp.asarray([0, 1]), 4))
    np.testing.assert_array_equal(mask, np.broadcast_to(masks.decoder(4), mask.shape))


def test_the_prefix_does_not_see_the_target():
    """As in the figure, for a prefix of two tokens in four."""
    want = [[1, 1, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1]]
    np.testing.assert_array_equal(masks.prefix(jnp.asarray([2]), 4)[0, 0], np.asarray(want, bool))


@pytest.mark.parametrize("padded", [False, True])
def test_encoder_decoder_mask_by_definition(padded):
    """Figure 4(d): all real tokens of the input, and the target's up to the token."""
    inputs, targets = [4, 2], [3, 1]
    mask = masks.encoder_decoder(3, first(inputs, 4), first(targets, 3) if padded else None)
    assert mask.shape == (2, 1, 3, 7)
    for b, x, c in np.ndindex(2, 3, 7):
        y = c - 4
        seen = c < inputs[b] if c < 4 else y <= x and (not padded or y < targets[b])
        assert mask[b, 0, x, c] == seen


@pytest.mark.parametrize(
    ("lengths", "real", "message"),
    [
        ([1, 5], None, r"prefix_lengths: got 5 at \[1\], expected 0 to 4"),
        ([-1, 2], None, r"prefix_lengths: got -1 at \[0\], expected 0 to 4"),
        ([1, 3], [[1, 1, 1, 1], [1, 1, 0, 0]], r"got 3 at \[1\], expected 0 to 2"),
        ([0, 1], [[0, 0, 0, 0], [0, 0, 0, 0]], r"got 1 at \[1\], expected 0 to 0"),
        ([2, 3], [[0, 1, 1, 0], [0, 1, 1, 0]], r"got 3 at \[1\], expected 0 to 2"),
        ([1, 2, 3], None, r"shape \(3,\) and type int"),
        ([1.0, 2.0], None, r"type float"),
    ],
)
def test_what_is_no_prefix(lengths, real, message):
    """Longer than the text, negative, or not integers."""
    with pytest.raises(ValueError, match=message):
        masks.check_prefix_lengths(jnp.asarray(lengths), 2, 4, None if real is None else jnp.asarray(real))


def test_prefixes_that_fit():
    """A whole text, none of it, and traced lengths are accepted."""
    masks.check_prefix_lengths(None, 2, 4)
    masks.check_prefix_lengths(jnp.asarray([0, 4]), 2, 4)
    masks.check_prefix_lengths(jnp.asarray([0, 2]), 2, 4, first([1, 2], 4))
    jax.eval_shape(lambda lengths: masks.check_prefix_lengths(lengths, 2, 4), jnp.asarray([9, 9]))
    real, lengths = first([1, 2], 4), jnp.asarray([3, 3])
    jax.eval_shape(lambda real: masks.check_prefix_lengths(lengths, 2, 4, real), real)
