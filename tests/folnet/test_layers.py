"""A layer's two stages, masks of pairs, rematerialization, and names of axes."""

import functools
import itertools
import math
from typing import get_args

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from folnet import configuration
from folnet.decoder_layers import DecoderReasoner
from folnet.layers import Reasoner, ReasonerLayer
from tests.folnet import known_dropout, small

pytestmark = pytest.mark.usefixtures("compiled_quickly")

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


def normalized(x, axis, eps=1e-12):
    x = x - x.mean(axis=axis, keepdims=True)
    return x / ((x**2).mean(axis=axis, keepdims=True) + eps) ** 0.5


HIDDEN, KERNELS = 0.2, 0.3
"""Rates of dropout that differ, so that one cannot stand for the other."""
DROPS = {"hidden_dropout_prob": HIDDEN, "attention_probs_dropout_prob": KERNELS}


def test_two_stages():
    """All mixers read the same normalized atoms, then the boolean operators those of the sum.

    In training the kernels and each stage's conclusions are dropped, not the atoms they are added to;
    otherwise nothing is, and no key is needed.
    """
    eps = 0.1
    module, params = layer(layer_norm_eps=eps, **DROPS)
    options = {"deterministic": False}

    def dropped(new, number):
        return new * known_dropout.weights(HIDDEN, new.shape, number)

    def run(params):
        with known_dropout.known() as drop:
            got = module.bind({"params": params}, rngs={"dropout": small.key()})(U, R, **options)
        assert drop.places() == every_place(2, LENGTH)
        with known_dropout.known():
            bound = module.bind({"params": params}, rngs={"dropout": small.key()})
            u, r = normalized(U, -1, eps), normalized(R, 1, eps)
            mixed = bound.join(r, u, **options) + bound.mu(r) + bound.cjoin(r, u, **options)
            unary = U + dropped(mixed, 0)
            mixed = bound.assoc(u) + bound.trans(r, **options) + bound.prod(u, r)
            relation = R + dropped(mixed, 0)
        u, r = normalized(unary, -1, eps), normalized(relation, 1, eps)
        unary = unary + dropped(bound.bool_unary(u), 1)
        relation = relation + dropped(bound.bool_binary(r, r.swapaxes(2, 3)), 1)
        return got, (unary, relation)

    for got, want in zip(*small.quickly(run)(params), strict=True):
        np.testing.assert_allclose(got, want, atol=1e-4)
    jax.eval_shape(functools.partial(small.apply, module), params, U, R)


def every_place(batch, length):
    """Returns what a layer with all operators drops, by rate and shape."""
    size = small.SIZES
    pairs = (length, length)
    return {
        (HIDDEN, (batch, length, size["hidden_size"])): 2,
        (HIDDEN, (batch, size["relation_size"], *pairs)): 2,
        (KERNELS, (batch, size["num_attention_heads"], *pairs)): 1,
        (KERNELS, (batch, size["head_size"], size["num_attention_heads"], length)): 1,
        (KERNELS, (batch, size["relation_size"], *pairs)): 1,
    }


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


CAUSAL = jnp.tril(jnp.ones((LENGTH, LENGTH), bool))[None, None]


@functools.cache
def reasoner(**fields):
    """Returns layers and their parameters."""
    module = Reasoner(small.config(**fields))
    shapes = jax.eval_shape(lambda key: module.init(key, U, R), jax.random.key(0))["params"]
    return module, small.draw_like(shapes)


POLICIES = get_args(configuration.Remat)


def loss(remat, operators, decoder=False):
    """Returns a function of parameters with dropout, and parameters."""
    module, params = reasoner(remat=remat, operators=operators, **DROPS)
    if decoder:
        module = DecoderReasoner(module.config)

    def value(params):
        more = (CAUSAL, None, False) if decoder else (None, None, False)
        out = small.apply(module, params, U, R, *more, rngs={"dropout": small.key(3)})
        states = out[0] if decoder else out
        return (states[-1][0] ** 3).sum() + jnp.sin(states[-1][1]).sum()

    return value, params


def test_what_is_computed_again_is_the_same():
    """Names of parameters, and values and gradients with dropout."""
    (plain, params), (again, same) = (loss(name, "j.", True) for name in ("none", "dots_saveable"))
    chex.assert_trees_all_equal(same, params)
    with known_dropout.known():
        want = small.quickly(jax.value_and_grad(plain))(params)
    with known_dropout.known():
        got = small.quickly(jax.value_and_grad(again))(params)
    chex.assert_trees_all_close(got, want, rtol=1e-4, atol=1e-5)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(got))


def kept(remat):
    """Returns the shapes of the arrays that a layer keeps for its gradient; compiles nothing."""
    value, params = loss(remat, "c.t")
    residuals = jax.eval_shape(lambda params: jax.vjp(value, params)[1], params)
    return [leaf.shape for leaf in jax.tree.leaves(residuals)]


def test_what_is_kept_for_the_gradient():
    """Each policy keeps less than the one before; without the hidden values of pairs much is saved."""
    shapes = {remat: kept(remat) for remat in POLICIES}
    widest = (2, small.SIZES["relation_intermediate_size"], LENGTH, LENGTH)
    holds = {remat: widest in found for remat, found in shapes.items()}
    assert holds["none"]
    assert not holds["relation_boolean"]
    numbers = {remat: sum(math.prod(shape) for shape in found) for remat, found in shapes.items()}
    order = (
        "none",
        "relation_boolean",
        "dots_saveable",
        "dots_with_no_batch_dims_saveable",
        "nothing_saveable",
    )
    assert set(order) == set(POLICIES)
    assert all(numbers[more] > numbers[less] for more, less in itertools.pairwise(order))


def test_a_decoder_s_layers_are_the_encoder_s_with_its_mask():
    """For whole texts, with the paper's cjoin whatever the settings say; each drops the same in training."""
    config = small.config(num_hidden_layers=1, **DROPS)
    encoder, params = reasoner(cjoin="paper", **DROPS)
    mask = CAUSAL & jnp.asarray([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]], bool)[:, None, None]
    r = jnp.where(mask, R, 0)

    @small.quickly
    def both(params):
        results = []
        for module, masks in ((encoder, (mask, mask)), (DecoderReasoner(config), (mask, None))):
            with known_dropout.known() as drop:
                out = small.apply(module, params, U, r, *masks, False, rngs={"dropout": small.key()})
            assert drop.places() == every_place(2, LENGTH)
            results.append(out if module is encoder else out[0])
        return results

    results = jax.device_get(both(params))
    chex.assert_trees_all_close(*results, atol=1e-5)
    outside = ~np.broadcast_to(mask, (2, 1, LENGTH, LENGTH))[:, 0]
    for _, relation in results[0]:
        assert not np.moveaxis(relation, 1, -1)[outside].any()


def test_every_place_and_layer_of_a_decoder_has_a_key_of_its_own():
    """No key is used twice."""
    config = small.config(num_hidden_layers=2, cjoin="paper", **DROPS)
    module, (_, params) = DecoderReasoner(config), reasoner(num_hidden_layers=2, cjoin="paper", **DROPS)

    def run(key):
        return small.apply(module, params, U, R, CAUSAL, None, False, rngs={"dropout": key})

    assert known_dropout.trace(run) == {place: 2 * n for place, n in every_place(2, LENGTH).items()}


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
