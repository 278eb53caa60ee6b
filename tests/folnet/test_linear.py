"""Affine modules and their initial values."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from folnet.linear import Linear, PairLinear, normal
from tests.folnet import small

pytestmark = pytest.mark.usefixtures("compiled_quickly")


def test_initial_values():
    """N(0, .02^2), or by the shape for a negative range, as released."""
    module = Linear(small.config(initializer_range=0.5), 60, 80)

    @small.quickly
    def draws(key) -> Any:
        kinds = ((0.02, (300, 400)), (-1.0, (300, 500)), (0.0, (3, 5)))
        return [normal(scale)(key, shape) for scale, shape in kinds], module.init(key, jnp.ones((1, 60)))

    (draw, by_shape, none), drawn = jax.device_get(draws(small.key()))
    assert abs(draw.std() / 0.02 - 1) < 0.01
    assert abs(draw.mean()) < 3e-4
    assert abs(by_shape.std() / 0.05 - 1) < 0.01
    assert not none.any()
    assert abs(drawn["params"]["weight"].std() / 0.5 - 1) < 0.05
    assert not drawn["params"]["bias"].any()


@pytest.mark.parametrize("kind", [Linear, PairLinear])
def test_modules(kind):
    """A weight [inputs, outputs] and a bias, on the right axis."""
    module = kind(small.config(), 3, 5)
    x = jnp.asarray(np.random.default_rng(0).normal(size=(2, 3, 4, 3)), jnp.float32)
    rng = np.random.default_rng(1)
    weight, bias = (rng.normal(size=shape).astype(np.float32) for shape in ((3, 5), (5,)))
    out = small.quickly(module.apply)({"params": {"weight": weight, "bias": bias}}, x)
    letters = "bixy,io->boxy" if kind is PairLinear else "bxyi,io->bxyo"
    add = bias[None, :, None, None] if kind is PairLinear else bias[None, None, None]
    np.testing.assert_allclose(out, np.einsum(letters, x, weight) + add, atol=1e-6)
    without = jax.eval_shape(kind(small.config(), 3, 5, use_bias=False).init, jax.random.key(0), x)
    assert list(without["params"]) == ["weight"]
