"""A layer's two stages, masks of pairs, rematerialization, and names of axes."""

import functools
from typing import get_args

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from folnet import configuration
from folnet.layers import Reasoner, ReasonerLayer
from tests.folnet import small

LENGTH = 5
RNG = np.random.default_rng(0)
U = jnp.asarray(RNG.normal(size=(2, LENGTH, small.SIZES["hidden_size"])), jnp.float32)
R = jnp.asarray(RNG.normal(size=(2, small.SIZES["relation_size"], LENGTH, LENGTH)), jnp.float32)


@functools.cache
def layer(**fields):
    """Returns a layer and its parameters."""
    module = ReasonerLayer(small.config(**fields))
    shapes = jax.eval_shape(lambda key: module.init(key, U, R), jax.random.key(0))["params"]
    return module, small.draw_like(shapes)


def normalized(x, axis):
    x = x - x.mean(axis=axis, keepdims=True)
    return x / ((x**2).mean(axis=axis, keepdims=True) + 1e-12) ** 0.5


def test_two_stages():
    """All mixers read the same normalized atoms, then the boolean operators those of the sum."""
    module, params = layer()

    @small.quickly
    def both(params):
        bound = module.bind({"params": params})
        u, r = normalized(U, -1), normalized(R, 1)
        unary = U + bound.join(r, u) + bound.mu(r) + bound.cjoin(r, u)
        relation = R + bound.assoc(u) + bound.trans(r) + bound.prod(u, r)
        u, r = normalized(unary, -1), normalized(relation, 1)
        want = unary + bound.bool_unary(u), relation + bound.bool_binary(r, r.swapaxes(2, 3))
        return bound(U, R), want

    for got, want in zip(*both(params), strict=True):
        np.testing.assert_allclose(got, want, atol=1e-4)


@pytest.mark.parametrize("operators", ["j.", ".t"])
def test_a_branch_without_mixers(operators):
    """It only has its boolean operator, and no other parameters."""
    module, params = layer(operators=operators)
    assert set(params) == {"bool_unary", "bool_binary", "join" if operators == "j." else "trans"}

    @small.quickly
    def run(params):
        bound = module.bind({"params": params})
        r = normalized(R, 1)
        alone = R + bound.bool_binary(r, r.swapaxes(2, 3)), U + bound.bool_unary(normalized(U, -1))
        return bound(U, R), alone

    (unary, relation), (pairs, tokens) = run(params)
    got, want = (relation, pairs) if operators == "j." else (unary, tokens)
    np.testing.assert_allclose(got, want, atol=1e-5)


PERTURBED = 3
CAUSAL = jnp.tril(jnp.ones((LENGTH, LENGTH), bool))[None, None]


@functools.cache
def reasoner(**fields):
    """Returns layers and their parameters."""
    module = Reasoner(small.config(**fields))
    shapes = jax.eval_shape(lambda key: module.init(key, U, R), jax.random.key(0))["params"]
    return module, small.draw_like(shapes)


@pytest.mark.parametrize(
    "operators", [pytest.param(name, marks=pytest.mark.slow) for name in ("j.a", "m.t", "c.p")] + ["jmc.atp"]
)
def test_nothing_comes_from_later_tokens(operators):
    """With a causal mask of kernels and pairs, earlier tokens are unchanged to the bit."""
    module, params = reasoner(operators=operators, cjoin="paper", num_hidden_layers=2)

    @small.quickly
    def run(u, r):
        return small.apply(module, params, u, jnp.where(CAUSAL, r, 0), CAUSAL, CAUSAL)[-1]

    unary, relation = run(U, R)
    change = np.random.default_rng(1).normal(size=R.shape)
    change[:, :, :PERTURBED, :PERTURBED] = 0
    other = run(U.at[:, PERTURBED:].set(U[:, PERTURBED:] ** 2), R + jnp.asarray(change, jnp.float32))
    np.testing.assert_array_equal(other[0][:, :PERTURBED], unary[:, :PERTURBED])
    np.testing.assert_array_equal(other[1][:, :, :PERTURBED], relation[:, :, :PERTURBED])
    assert np.abs(other[0] - unary)[:, PERTURBED:].max() > 0.1
    assert np.abs(relation[..., ~np.asarray(CAUSAL)[0, 0]]).max() == 0


@pytest.mark.slow
def test_pairs_without_relations_have_finite_gradients():
    """Where all atoms are 0, the slope of normalization is a million; masks keep it from multiplying."""
    module, params = reasoner(operators="m.p", num_hidden_layers=2)

    @small.quickly
    @jax.grad
    def grad(params):
        u, r = small.apply(module, params, U, jnp.where(CAUSAL, R, 0), CAUSAL, CAUSAL)[-1]
        return (u**2).sum() + jnp.sin(r).sum()

    largest = max(float(jnp.abs(leaf).max()) for leaf in jax.tree.leaves(grad(params)))
    assert 0 < largest < 1e3


@functools.cache
def gradients(remat):
    """Returns gradients for a layer with dropout, and how many of its parts are recomputed."""
    module, params = reasoner(remat=remat, operators="c.t")

    def loss(params):
        out = small.apply(module, params, U, R, None, None, False, rngs={"dropout": small.key(3)})
        return (out[-1][0] ** 3).sum() + jnp.sin(out[-1][1]).sum()

    primitives = [equation.primitive.name for equation in jax.make_jaxpr(jax.grad(loss))(params).eqns]
    again = sum("remat" in name or "checkpoint" in name for name in primitives)
    return params, small.quickly(jax.grad(loss))(params), again


POLICIES = get_args(configuration.Remat)[1:]


@pytest.mark.parametrize(
    "remat",
    [pytest.param(name, marks=pytest.mark.slow) for name in POLICIES],
)
def test_what_is_computed_again_is_the_same(remat):
    """Names of parameters, and gradients with dropout; each layer recomputes something."""
    params, want, none = gradients("none")
    same, got, again = gradients(remat)
    chex.assert_trees_all_equal(same, params)
    chex.assert_trees_all_close(got, want, rtol=1e-4, atol=1e-5)
    assert all(jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(got))
    assert (none, again) == (0, 1)


def test_names_of_axes():
    """On a mesh, rules shard rows of pairs and the batch; without rules names have no effect."""
    module, params = layer(operators="j.a")
    mesh = jax.make_mesh((1, 1), ("data", "model"), axis_types=(jax.sharding.AxisType.Auto,) * 2)

    def constrained():
        jaxpr = jax.make_jaxpr(lambda params: small.apply(module, params, U, R))(params)
        found = [e.params["sharding"] for e in jaxpr.eqns if e.primitive.name == "sharding_constraint"]
        return [sharding.spec for sharding in found]

    assert constrained() == []
    with jax.set_mesh(mesh), nn.logical_axis_rules((("batch", "data"), ("rows", "model"))):
        unary, relation = jax.P("data", None, None), jax.P("data", None, "model", None)
        assert constrained() == [unary, relation, unary, relation]
