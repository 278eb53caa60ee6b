"""The dense layer that the encoders share."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from experiments.baselines import Transformer
from experiments.baselines.layers import Dense


def test_dense_layers_are_those_of_flax():
    """With the same parameters, for any number of leading axes."""
    ours, theirs = Dense(6), nn.Dense(6)
    for shape in ((5,), (2, 5), (2, 3, 4, 5)):
        inputs = jax.random.normal(jax.random.key(0), shape)
        variables = theirs.init(jax.random.key(1), inputs)
        assert jax.tree.map(jnp.shape, ours.init(jax.random.key(1), inputs)) == jax.tree.map(
            jnp.shape, variables
        )
        found: Any = ours.apply(variables, inputs)
        np.testing.assert_allclose(found, np.asarray(theirs.apply(variables, inputs)), rtol=1e-5)


def test_gradients_of_weights_are_sums_over_rows():
    """Sums over several axes are slow on CPUs."""
    model: Any = Transformer(1, 2, 7)
    inputs = jnp.ones((2, 3, 4))
    variables = jax.eval_shape(model.init, jax.random.key(0), inputs)
    gradient = jax.make_jaxpr(jax.grad(lambda variables: model.apply(variables, inputs).sum()))(variables)
    sums = [
        equation.params["dimension_numbers"][0][0]
        for equation in gradient.eqns
        if equation.primitive.name == "dot_general"
    ]
    assert len(sums) > 12
    assert max(map(len, sums)) == 1
