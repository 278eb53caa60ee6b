"""What the baselines start with, and arithmetic that sizes around one do not show."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.baselines import (
    RGCN,
    ContentNTMCell,
    DeltaProductCell,
    EdgeEmbedding,
    FullMatrixCell,
    LoopedTransformer,
    MLPOperatorCell,
    RecurrentEncoder,
    RelationAwareTransformer,
    Transformer,
    layers,
    ntm,
)
from experiments.baselines import linear_rnn as lin
from experiments.baselines.edge_transformer import triangular_attend
from experiments.baselines.relation_aware import relation_aware_attend
from experiments.baselines.transformer import rotate
from llrnn import memory
from tests.experiments.baselines import oracles

pytestmark = pytest.mark.usefixtures("compiled_quickly")

NODES, RELATIONS = jnp.zeros((1, 2, 48)), jnp.zeros((1, 2, 2), jnp.int32)
STARTS: dict[str, tuple[Any, tuple[Any, ...], tuple[str, ...], float]] = {
    "learned positions": (Transformer(1, 2, 4, positions="learned"), (NODES,), ("positions",), 0.02),
    "keys of relations": (
        RelationAwareTransformer(1, 3, 4, 90),
        (NODES, RELATIONS),
        ("stack", "layer_0", "mixer", "relation_keys"),
        16**-0.5,
    ),
    "values of relations": (
        RelationAwareTransformer(1, 3, 4, 90),
        (NODES, RELATIONS),
        ("stack", "layer_0", "mixer", "relation_values"),
        16**-0.5,
    ),
    "relations of edges": (EdgeEmbedding(60, 40), (RELATIONS,), ("relations",), 1.0),
    "a matrix per relation": (RGCN(2, 40), (NODES, jnp.zeros((1, 9, 2, 2))), ("layer_0", "bases"), 48**-0.5),
    "bases": (RGCN(2, 40, 9), (NODES, jnp.zeros((1, 300, 2, 2))), ("layer_0", "coefficients"), 9**-0.5),
    "a transition's noise": (
        RecurrentEncoder(FullMatrixCell(12)),
        (NODES,),
        ("cell_0", "transition", "kernel"),
        (0.01 / 12 / 48) ** 0.5,
    ),
    "operators of a perceptron": (
        RecurrentEncoder(MLPOperatorCell(8)),
        (NODES,),
        ("cell_0", "operators", "kernel"),
        (8 * 24) ** -0.5,
    ),
}


@pytest.mark.parametrize("name", STARTS)
def test_parameters_start_with_their_scale(name):
    """The standard deviation of the paper, or of the docstring; the mean is 0."""
    model, inputs, path, scale = STARTS[name]

    @jax.jit
    def init(key, *inputs):
        leaf = model.init(key, *inputs)["params"]
        for part in path:
            leaf = leaf[part]
        return leaf  # the others are not compiled

    leaf = np.asarray(init(jax.random.key(0), *inputs))
    assert leaf.size > 1000
    assert np.std(leaf) == pytest.approx(scale, rel=0.1)
    assert abs(np.mean(leaf)) < 4 * scale / leaf.size**0.5


def test_a_dense_transition_starts_as_the_identity():
    model = RecurrentEncoder(FullMatrixCell(3))
    init = jax.jit(lambda key: model.init(key, NODES)["params"]["cell_0"]["transition"]["bias"])
    np.testing.assert_array_equal(np.reshape(init(jax.random.key(0)), (3, 3)), np.eye(3))


def test_a_memory_starts_constant_with_all_heads_at_its_first_location():
    """1e-6 as in Collier and Beel (2018)."""
    cell = ContentNTMCell(4, 5, 3, 2, 1)
    carry = jax.device_get(jax.jit(lambda: cell.initialize_carry(jax.random.key(0), (2, 6)))())
    np.testing.assert_array_equal(carry.memory, np.full((2, 5, 3), 1e-6, np.float32))
    np.testing.assert_array_equal(carry.weights, np.tile(np.eye(5)[0], (2, 3, 1)))
    assert carry.reads.shape == (2, 2, 3)
    assert not np.any(carry.reads)
    assert [part.shape for part in carry.controller] == [(2, 4)] * 2
    assert not np.any(carry.controller)


def test_defaults_are_those_of_the_papers():
    """Pre-LN, input injection, two Householder steps with negative eigenvalues, shifts by one location."""
    looped = LoopedTransformer(1, 2, 4)
    assert (looped.norm, looped.positions, looped.causal, looped.input_injection) == (
        "pre",
        "none",
        False,
        True,
    )
    variables = jax.eval_shape(looped.init, jax.random.key(0), NODES)
    loops: Any = jax.eval_shape(lambda variables: looped.apply(variables, NODES, method="loops"), variables)
    assert loops.shape[0] == 4
    assert RecurrentEncoder(FullMatrixCell(3)).norm == Transformer(1, 2, 4).norm == "pre"
    product = DeltaProductCell(1, 2)
    assert (product.num_householder, product.negative_eigenvalues) == (2, True)
    cell = ContentNTMCell(4)
    assert (cell.num_read_heads, cell.num_write_heads, cell.max_shift) == (1, 1, 1)
    assert FullMatrixCell(3).column_norm is None


# ---- arithmetic


def test_layer_norm_keeps_digits_of_small_and_of_shifted_vectors():
    """Its epsilon is 1e-5, and the mean is subtracted before squaring."""
    norm = layers.layer_norm("norm", None, jnp.float32)
    x = np.random.default_rng(0).normal(size=(4, 16))
    p = {"scale": np.ones(16), "bias": np.zeros(16)}
    for rows in (x * 3e-3, x * 0.1 + 300):
        rows = rows.astype(np.float32)
        got: Any = jax.jit(norm.apply)({"params": p}, jnp.asarray(rows))
        want = oracles.each(lambda row: oracles.layer_norm(p, row), rows.astype(np.float64))
        np.testing.assert_allclose(got, want, rtol=5e-3, atol=5e-3)


def half(*shape, scale=1.0, seed=0):
    drawn = np.random.default_rng(seed).normal(size=shape) * scale
    return jnp.asarray(drawn, jnp.bfloat16)


def test_logits_of_half_precision_are_single():
    """Rounded to 8 bits, logits of around 30 would be off by a tenth, and so would the weights."""
    q, k, v = (half(1, 5, 1, 8, scale=s, seed=i) for i, s in enumerate((6, 6, 1)))
    exact = functools.partial(jax.tree.map, lambda x: x.astype(jnp.float32))
    chosen = np.random.default_rng(3).integers(0, 3, (1, 5, 5))
    relations = jnp.asarray(np.eye(3)[chosen], jnp.bfloat16)
    keys, values = half(3, 8, scale=6, seed=4), half(3, 8, seed=5)
    edges = tuple(half(1, 4, 4, 1, 8, scale=s, seed=i) for i, s in enumerate((6, 6, 1, 1)))
    for function, arguments, close in (
        (layers.attend, (q, k, v), 0.02),
        (relation_aware_attend, (q, k, v, relations, keys, values), 0.03),
        (triangular_attend, edges, 0.04),
    ):
        function = jax.jit(function)
        found, wanted = function(*arguments), function(*exact(arguments))
        np.testing.assert_allclose(np.asarray(found, np.float32), wanted, rtol=0.01, atol=close)


def test_angles_of_half_precision_are_single():
    """Position 300 is not a number of 8 bits."""
    x = half(1, 400, 1, 4)
    found, wanted = (np.asarray(jax.jit(rotate)(each)) for each in (x, x.astype(jnp.float32)))
    np.testing.assert_allclose(found.astype(np.float32), wanted, rtol=0.01, atol=0.01)
    assert found.dtype == jnp.bfloat16


def test_short_vectors_become_unit_vectors_and_zero_has_a_gradient():
    np.testing.assert_allclose(jax.jit(lin.unit)(jnp.asarray([3e-5, -4e-5])), [0.6, -0.8], rtol=1e-3)
    value, gradient = jax.jit(jax.value_and_grad(lambda x: jnp.sum(lin.unit(x))))(jnp.zeros(3))
    assert value == 0
    assert np.isfinite(gradient).all()


def test_a_sharp_address_stays_where_it_is_with_a_finite_gradient():
    sharp = jnp.eye(4)[2]
    sharpened = jax.jit(ntm.sharpened)
    np.testing.assert_allclose(sharpened(sharp, jnp.asarray(3.0)), sharp, atol=1e-6)
    slopes = jax.jit(jax.jacobian(ntm.sharpened, argnums=(0, 1)))(sharp, jnp.asarray(3.0))
    assert all(np.isfinite(slope).all() for slope in slopes)
    tiny = sharpened(jnp.asarray([1e-8, 3e-8]), jnp.asarray(1.0))
    np.testing.assert_allclose(tiny, [0.25, 0.75], rtol=1e-3)


def test_what_a_cell_records_comes_out_of_the_loop():
    """Values that a cell sows get an axis of time, without being asked for by the encoder."""
    model = RecurrentEncoder(memory.NTMCell(features=4))
    inputs = jnp.zeros((2, 5, 6))

    def run(key):
        variables = {"params": model.init(key, inputs)["params"]}
        return model.apply(variables, inputs, mutable=["intermediates"])[1]

    recorded = jax.tree.leaves(jax.eval_shape(run, jax.random.key(0)))
    assert recorded
    assert all(leaf.shape[0] == 5 for leaf in recorded)
