"""Enlarged pictures and text output of BoxWorld."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simplicial import boxworld, rendering

pytestmark = pytest.mark.usefixtures("compiled_quickly")


@pytest.fixture(scope="module")
def small():
    """Returns pictures of the beginning of three episodes."""

    def draw(key):
        states = boxworld.reset_batch(key, 3, boxworld.BRIDGE)
        return jax.vmap(lambda state: boxworld.observe(state, boxworld.BRIDGE))(states)

    return jax.device_get(jax.jit(draw)(jax.random.key(0)))


@pytest.mark.parametrize("scale", [1, 10])
def test_every_tile_is_a_square(small, scale):
    """Each pixel has its tile's colour, under jit and vmap."""
    expected = np.kron(small, np.ones((1, scale, scale, 1), np.uint8))
    pictures = jax.jit(jax.vmap(lambda picture: rendering.enlarge(picture, scale)))(small)
    assert pictures.dtype == jnp.uint8
    np.testing.assert_array_equal(pictures, expected)


def test_the_leading_axes_are_kept():
    """Enlarges a clip [T, B, R, C+1, 3]."""
    clip = np.random.default_rng(0).integers(0, 256, (2, 3, 7, 10, 3)).astype(np.uint8)
    large = np.asarray(rendering.enlarge(clip, 4))
    assert large.shape == (2, 3, 28, 40, 3)
    np.testing.assert_array_equal(large[..., ::4, ::4, :], clip)
    np.testing.assert_array_equal(large[..., 3::4, 2::4, :], clip)


def test_text_has_every_tile_in_its_colour(small):
    """Each tile is two blanks on the tile's colour."""
    picture = small[0]
    lines = rendering.to_text(picture).splitlines()
    assert len(lines) == 7
    for line, row in zip(lines, picture, strict=True):
        colours = re.findall(r"\x1b\[48;2;(\d+);(\d+);(\d+)m  (?=\x1b)", line)
        np.testing.assert_array_equal(np.asarray(colours, int), row)
        assert line.endswith("\x1b[0m")


@pytest.mark.parametrize("scale", [0, -1, 1.5, "10"])
def test_scales_that_are_none_are_refused(scale):
    """The error names the argument."""
    with pytest.raises(ValueError, match=r"scale: got .*, expected an integer"):
        rendering.enlarge(np.zeros((7, 10, 3), np.uint8), scale)


def test_arrays_that_are_no_pictures_are_refused():
    """The error states the shape."""
    with pytest.raises(ValueError, match=r"got shape \(7, 10\)"):
        rendering.enlarge(np.zeros((7, 10), np.uint8))
    with pytest.raises(ValueError, match=r"got shape \(10, 3\)"):
        rendering.enlarge(np.zeros((10, 3), np.uint8))
    with pytest.raises(ValueError, match=r"got shape \(2, 7, 10, 3\)"):
        rendering.to_text(np.zeros((2, 7, 10, 3), np.uint8))
