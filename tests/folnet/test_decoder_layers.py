"""Premises: concatenation with an input's, padding, and adding a token."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from folnet.decoder_layers import Premises, is_slot
from tests.folnet import small

pytestmark = pytest.mark.usefixtures("compiled_quickly")

RNG = np.random.default_rng(0)


def premises(tokens: int, columns: int | None = None) -> Any:
    """Returns random premises of some tokens."""
    shapes = ((2, tokens, 3, 4), (2, 4, 3, tokens), (2, tokens, 3, 4), (2, 5, tokens, columns or tokens))
    return Premises(*(jnp.asarray(RNG.normal(size=shape), jnp.float32) for shape in shapes))


def test_an_input_before_a_text():
    """With 0 for missing relations, a single sum equals the two parts of Appendix A.5."""
    inputs, text = premises(3), premises(2, 5)
    both: Any = jax.device_get(small.quickly(Premises.before)(inputs, text))
    inputs, text = jax.device_get((inputs, text))
    np.testing.assert_array_equal(both.join, np.concatenate((inputs.join, text.join), 1))
    np.testing.assert_array_equal(both.cjoin, np.concatenate((inputs.cjoin, text.cjoin), 3))
    np.testing.assert_array_equal(both.assoc, np.concatenate((inputs.assoc, text.assoc), 1))
    kernel = RNG.dirichlet(np.ones(5), (2, 5, 2))
    of_input, of_text = kernel[..., :3], kernel[..., 3:]
    found = np.einsum("bhxa,bhay->bhxy", kernel, both.trans)
    want = np.einsum("bhxa,bhay->bhxy", of_input, inputs.trans)
    want += np.einsum("bhxa,bhay->bhxy", of_text, text.trans[..., :3])
    np.testing.assert_allclose(found[..., :3], want, atol=1e-6)
    want = np.einsum("bhxa,bhay->bhxy", of_text, text.trans[..., 3:])
    np.testing.assert_allclose(found[..., 3:], want, atol=1e-6)


def add(start, token, slot):
    return start.with_room(3).with_token(token, slot)


def test_room_and_one_more_token():
    """Adding a token equals reading it with the others; unused premises stay None."""
    whole = jax.device_get(premises(3))
    parts = (whole.join[:, :2], whole.cjoin[..., :2], whole.assoc[:, :2], whole.trans[:, :, :2, :2])
    start = Premises(*map(jnp.asarray, parts))
    parts = (whole.join[:, 2:], whole.cjoin[..., 2:], whole.assoc[:, 2:], whole.trans[:, :, 2:])
    token = Premises(*map(jnp.asarray, parts))
    room, grown = small.quickly(lambda *given: (given[0].with_room(3), add(*given)))(
        start, token, jnp.int32(2)
    )
    for name in ("join", "cjoin", "assoc"):
        axis = 3 if name == "cjoin" else 1
        assert not np.take(np.asarray(getattr(room, name)), 2, axis=axis).any()
    for name in ("join", "cjoin", "assoc"):
        np.testing.assert_array_equal(getattr(grown, name), getattr(whole, name))
    got, want = np.asarray(grown.trans), np.asarray(whole.trans)
    np.testing.assert_array_equal(got[:, :, 2], want[:, :, 2])
    np.testing.assert_array_equal(got[:, :, :2, :2], want[:, :, :2, :2])
    assert not got[:, :, :2, 2].any()
    few: Any = small.quickly(add)(Premises(join=start.join), Premises(join=token.join), jnp.int32(2))
    assert few.cjoin is few.assoc is few.trans is None
    either = Premises(join=start.join).combine(Premises(cjoin=start.cjoin), join=max, cjoin=max)
    assert either.join is either.cjoin is None
    np.testing.assert_array_equal(few.join, whole.join)


def test_slots():
    """A mask with one True entry."""
    np.testing.assert_array_equal(is_slot(4, jnp.int32(2))[0, 0, 0], [False, False, True, False])
