"""1- and 2-simplicial attention: float64 formulas, masks, permutations, dtypes, errors."""

import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simplicial.attention import (
    OneSimplicialAttention,
    TwoSimplicialAttention,
    attend_to_pairs,
    dot_product_logits,
)
from tests.simplicial import numpy_agent
from tests.simplicial.small import draw, made, on_host, parameters, quickly, with_maps

pytestmark = pytest.mark.usefixtures("compiled_quickly")

WIDTH = 10  # features of an entity


def two(num_heads=1, features=6, **types):
    """Builds a small 2-simplicial attention."""
    return TwoSimplicialAttention(num_heads, features, **types)


# Values.


@pytest.mark.usefixtures("x64")
def test_one_simplicial_attention_is_the_formula():
    """Equation (4), evaluated entity by entity."""
    x = draw(1, 2, 7, WIDTH)
    heads = 2
    module = OneSimplicialAttention(heads, 8, param_dtype=jnp.float64)
    variables, apply = made(module, x)
    kernel = np.asarray(variables["params"]["qkv"]["kernel"])
    outputs, maps = with_maps(module, variables, x)
    np.testing.assert_allclose(apply(variables, x, x), outputs, rtol=1e-12, atol=1e-12)  # as its own context
    for b, out in enumerate(outputs):
        expected, weights = numpy_agent.one_simplicial(kernel, np.asarray(x[b]), 0, heads)
        np.testing.assert_allclose(out, expected, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(maps["standard"][b], weights, rtol=1e-12, atol=1e-12)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("shared", [True, False])
def test_virtual_entities_attend_to_all_and_nobody_to_them(shared):
    """First terms of (13) and (14), with virtual entities shared by the batch or one set per example."""
    x, virtual = draw(1, 2, 7, WIDTH), draw(2, *(() if shared else (2,)), 3, WIDTH)
    module = OneSimplicialAttention(2, 8, param_dtype=jnp.float64)
    variables, _ = made(module, x)
    (out, out_virtual), _ = with_maps(module, variables, x, virtual, method="with_virtual")
    kernel = np.asarray(variables["params"]["qkv"]["kernel"])
    for b in range(2):
        both = np.concatenate([x[b], virtual if shared else virtual[b]])
        expected, _ = numpy_agent.one_simplicial(kernel, both, 3, 2)
        np.testing.assert_allclose(out[b], expected[:7], rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(out_virtual[b], expected[7:], rtol=1e-12, atol=1e-12)


@pytest.mark.usefixtures("x64")
def test_two_simplicial_attention_is_the_formula():
    """Equations (7) and (10), evaluated pair by pair, for a context and for the inputs themselves."""
    x, context = draw(1, 2, 5, WIDTH), draw(2, 2, 3, WIDTH)
    module = two(3, 12, param_dtype=jnp.float64)
    variables, _ = made(module, x, context)
    kernel, bilinear = jax.tree.map(
        np.asarray, (variables["params"]["qkkv"]["kernel"], variables["params"]["bilinear"])
    )
    for y in (context, x):
        out, maps = with_maps(module, variables, x, None if y is x else y)
        for b in range(2):
            both = np.concatenate([x[b], y[b]])
            expected, weights = numpy_agent.two_simplicial(kernel, bilinear, both, y.shape[1])
            np.testing.assert_allclose(out[b], expected[:5], rtol=1e-10, atol=1e-10)
            np.testing.assert_allclose(maps["pairs"][b], weights, rtol=1e-10, atol=1e-10)


@pytest.mark.usefixtures("x64")
def test_without_a_learned_tensor_values_are_multiplied_feature_by_feature():
    """As with the tensor B[f, r, s] that is 1 where f = r = s."""
    x, size = draw(3, 2, 5, WIDTH), 3
    variables, apply = made(two(2, 2 * size, learned_bilinear=False, param_dtype=jnp.float64), x)
    assert set(variables["params"]) == {"qkkv"}
    diagonal = np.zeros((2, size, size, size))
    diagonal[:, range(size), range(size), range(size)] = 1
    for one, out in zip(x, apply(variables, x), strict=True):
        both = np.concatenate([one, one])
        want, _ = numpy_agent.two_simplicial(variables["params"]["qkkv"]["kernel"], diagonal, both, 5)
        np.testing.assert_allclose(out, want[:5], rtol=1e-10, atol=1e-10)


@pytest.mark.usefixtures("x64")
def test_keys_of_the_whole_batch_are_those_of_each_example():
    """Shared [M, V] and copies per example give the same values."""
    x, context = draw(1, 2, 3, 5, WIDTH), draw(2, 3, WIDTH)
    mask = draw(3, 2, 3, 5, 3, 3) > -0.3
    variables, apply = made(two(2, 12, param_dtype=jnp.float64), x, context)
    shared = apply(variables, x, context, mask=mask)
    copied = apply(variables, x, np.broadcast_to(context, (2, 3, 3, WIDTH)), mask=mask)
    np.testing.assert_allclose(shared, copied, rtol=1e-9, atol=1e-9)


def test_two_simplicial_maps_are_the_weights_of_the_output():
    """The sown weights times B(u_j, u_k) give the output, also with a mask and another logit and scale."""
    x, context = draw(1, 2, 5, WIDTH), draw(2, 2, 4, WIDTH)
    module = two(2, 12, logit="signed", scale=0.5)
    variables = parameters(module, x, context)
    mask = draw(3, 2, 5, 4, 4) > -0.5
    out, maps = with_maps(module, variables, x, context, mask=mask)
    pairs, params = maps["pairs"], variables["params"]
    value = (context @ params["qkkv"]["kernel"][:, 36:]).reshape(2, 4, 2, 6)
    expected = np.einsum("bhijk,hfrs,bjhr,bkhs->bihf", pairs, params["bilinear"], value, value)
    np.testing.assert_allclose(out, expected.reshape(out.shape), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(np.sum(pairs, axis=(-2, -1)), 1, rtol=1e-5)
    assert np.all(np.where(mask[:, None], 0, pairs) == 0)


def test_maps_are_kept_on_request_only():
    """A plain call returns an array, and initialisation creates parameters only."""
    x = draw(1, 2, 5, WIDTH)
    for module in (OneSimplicialAttention(2, 8), two()):
        output, variables = jax.eval_shape(module.init_with_output, jax.random.key(0), x)
        assert set(variables) == {"params"}
        again = jax.eval_shape(module.apply, variables, x)
        assert again.shape == output.shape == (2, 5, module.features)


# Masks.


@pytest.mark.parametrize("module", [OneSimplicialAttention(2, 8), two(2, 12)])
def test_padding_is_as_if_it_were_not_there(module):
    """With two of five context entities as padding, the output is that of the other three."""
    context = draw(1, 2, 5, WIDTH)
    variables, apply = made(module, context)
    there = np.array([True, False, True, True, False])
    x = context[:, [0, 2, 3, 3]]  # of which the formula takes the first three, as their own context
    got = apply(variables, x, context, context_mask=there)
    params = variables["params"]
    for out, one in zip(got, context[:, there], strict=True):
        if "qkv" in params:
            want, _ = numpy_agent.one_simplicial(params["qkv"]["kernel"], one, 0, 2)
        else:
            both = np.concatenate([one, one])
            want, _ = numpy_agent.two_simplicial(params["qkkv"]["kernel"], params["bilinear"], both, 3)
        np.testing.assert_allclose(out[:3], want[:3], rtol=1e-5, atol=1e-6)
    assert np.abs(got - apply(variables, x, context, context_mask=there | True)).max() > 1e-3
    one, other = np.array([[True, False, True, True, True], [True, True, True, True, False]])
    mask = one[None, :] if "qkv" in params else (one[:, None] & one)[None]
    both = apply(variables, x, context, context_mask=other, mask=mask)
    np.testing.assert_allclose(both, got, rtol=1e-6, atol=1e-7)


def test_causal_masks_hide_the_future():
    """With a causal mask, changes after entity 3 affect only later outputs."""
    x = draw(1, 2, 6, WIDTH)
    changed = np.concatenate([x[:, :4], draw(2, 2, 2, WIDTH)], axis=1)
    past = np.tril(np.ones((6, 6), bool))
    masks = (past, past[:, :, None] & past[:, None, :])
    for module, mask in zip((OneSimplicialAttention(2, 8), two(2, 12)), masks, strict=True):
        variables, apply = made(module, x)
        before, after = (apply(variables, y, mask=mask) for y in (x, changed))
        np.testing.assert_array_equal(before[:, :4], after[:, :4])
        assert np.abs(before - after)[:, 4:].min(axis=-1).max() > 1e-4


def test_nothing_allowed_gives_nothing():
    """A row with nothing allowed is 0, has no gradient, and does not affect other rows."""
    x = draw(1, 2, 4, WIDTH).astype(np.float32)
    for module, keys in ((OneSimplicialAttention(2, 8), (1,)), (two(2, 12), (1, 1))):
        variables = parameters(module, x)

        @on_host
        def call(variables, mask, module=module):
            def total(variables):
                out: Any = module.apply(variables, jnp.asarray(x), mask=mask)
                return jnp.sum(out), out

            return jax.grad(total, has_aux=True)(variables)

        mask = np.array([True, False, True, True]).reshape(4, *keys)
        _, out = call(variables, mask)
        np.testing.assert_array_equal(out[:, 1], 0)
        others = np.array([0, 2, 3])
        np.testing.assert_allclose(
            out[:, others], call(variables, mask | True)[1][:, others], rtol=1e-6, atol=1e-7
        )
        gradient, _ = call(variables, mask & False)
        assert all(np.all(np.asarray(leaf) == 0) for leaf in jax.tree.leaves(gradient))


def test_a_mask_holds_for_virtual_entities_too():
    """Virtual entities ignore padding, and always attend to each other."""
    x, virtual = draw(1, 2, 5, WIDTH), draw(2, 3, WIDTH)
    module = OneSimplicialAttention(2, 8)
    variables, _ = made(module, x)
    there = np.array([[True, True, False, True, False], [False] * 5])
    _, maps = with_maps(module, variables, x, virtual, entity_mask=there, method="with_virtual")
    weights = maps["virtual"]
    assert weights.shape == (2, 2, 3, 8)
    np.testing.assert_array_equal(weights[0, :, :, [2, 4]], 0)
    np.testing.assert_array_equal(weights[1, ..., :5], 0)
    np.testing.assert_allclose(np.sum(weights, axis=-1), 1, rtol=1e-6)
    assert np.all(weights[..., 5:] > 0)
    _, maps = with_maps(module, variables, x, virtual, entity_mask=there[1:, :1], method="with_virtual")
    np.testing.assert_array_equal(maps["virtual"][..., :5], 0, "one entry for all entities of all examples")


def test_any_leading_axes():
    """Examples do not affect each other; a context without batch axes is shared."""
    x, context = draw(1, 2, 3, 5, WIDTH), draw(2, 4, WIDTH)
    for module in (OneSimplicialAttention(2, 8), two(2, 12)):
        variables, apply = made(module, x, context)
        out = apply(variables, x, context)
        assert out.shape == (2, 3, 5, module.features)
        for index in np.ndindex(2, 3):
            np.testing.assert_allclose(out[index], apply(variables, x[index], context), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("inputs", "context", "masks"),
    [
        ((2, 5), (2, 0), {}),
        ((2, 5), (0,), {}),
        ((2, 5), (0,), {"context_mask": np.ones(0, bool)}),
        ((2, 0), (2, 5), {}),
        ((2, 0), (5,), {"context_mask": np.ones(5, bool)}),
    ],
)
def test_no_queries_or_no_keys_have_weights_too(inputs, context, masks):
    x, y = np.zeros((*inputs, WIDTH), np.float32), np.zeros((*context, WIDTH), np.float32)
    variables = jax.eval_shape(two().init, jax.random.key(0), x, y)
    out, state = jax.eval_shape(
        lambda *of, **masks: two().apply(*of, **masks, mutable=["intermediates"]), variables, x, y, **masks
    )
    assert out.shape == (*inputs, 6)
    (weights,) = state["intermediates"]["pairs"]
    assert weights.shape == (2, 1, inputs[-1], context[-1], context[-1])


# Initialisation and numerics.


def test_initial_weights():
    """Uniform within Keras' limits: sqrt(6 / (64 + 192)) for four maps of 48, sqrt(6 / 512) for each head."""
    module = TwoSimplicialAttention(num_heads=3)
    params = quickly(module.init)(jax.random.key(0), draw(0, 2, 64))["params"]
    assert params["bilinear"].shape == (3, 16, 16, 16)
    for weights, limit in (
        (params["qkkv"]["kernel"], (6 / 256) ** 0.5),
        (params["bilinear"], (6 / (2 * 16**2)) ** 0.5),
    ):
        assert 0.999 * limit < np.abs(weights).max() <= limit
        np.testing.assert_allclose(np.std(weights), limit / 3**0.5, rtol=0.02)


def test_bfloat16_rounds_factors_but_not_triple_products():
    """Pair weights are computed from float32 products of the rounded entities and kernel."""
    x, context = draw(1, 3, 20, 64), draw(2, 3, 2, 64)
    half = TwoSimplicialAttention(dtype=jnp.bfloat16)
    variables, _ = made(half, x, context)

    def rounded(a):
        return np.asarray(a, jnp.bfloat16).astype(np.float32)

    with jax.default_matmul_precision("highest"):
        got = with_maps(half, variables, x, context)[1]["pairs"]
    assert got.dtype == jnp.float32
    kernel, bilinear = rounded(variables["params"]["qkkv"]["kernel"]), variables["params"]["bilinear"]
    for weights, *both in zip(got, rounded(x), rounded(context), strict=True):
        _, want = numpy_agent.two_simplicial(kernel, bilinear, np.concatenate(both), 2)
        np.testing.assert_allclose(weights, want, rtol=1e-3, atol=1e-5)


def test_products_of_bfloat16_are_summed_in_float32():
    """Logits are those of the rounded vectors in float64."""
    query, key = (
        jnp.asarray(draw(seed, 2, length, 2, 64), jnp.bfloat16) for seed, length in ((1, 5), (2, 7))
    )
    got = dot_product_logits(query, key)
    assert got.dtype == jnp.float32
    with jax.enable_x64(True):
        assert jax.eval_shape(dot_product_logits, query, key).dtype == jnp.float32
    exact = np.einsum("bihd,bjhd->bhij", *(np.asarray(x, np.float64) for x in (query, key))) / 8
    np.testing.assert_allclose(got, exact, rtol=1e-5, atol=1e-5)


def test_types_of_outputs():
    """1-simplicial attention returns its compute dtype, 2-simplicial at least float32."""
    x = draw(1, 5, WIDTH)
    for module, expected in (
        (OneSimplicialAttention(2, 8, dtype=jnp.bfloat16), jnp.bfloat16),
        (two(dtype=jnp.bfloat16), jnp.float32),
        (OneSimplicialAttention(2, 8), jnp.float32),
    ):
        assert jax.eval_shape(module.init_with_output, jax.random.key(0), x)[0].dtype == expected


def test_gradients_are_finite_where_vectors_vanish_or_agree():
    """The norm of a triple product is not differentiable at 0, but the gradient is finite."""
    module = two(2, 12)
    variables = parameters(module, draw(1, 5, WIDTH), draw(2, 2, WIDTH))

    def total(v, x, c):
        out: Any = module.apply(v, x, c)
        return jnp.sum(out**2)

    loss = on_host(jax.grad(total, argnums=(0, 1, 2)))
    for vector in (np.zeros(WIDTH), np.ones(WIDTH), np.eye(WIDTH)[0]):
        slopes = loss(variables, np.tile(vector, (5, 1)), np.tile(vector, (2, 1)))
        assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(slopes))


def test_attend_to_pairs_without_flax():
    """One head and one query with equal logits return the mean of B."""
    query, key, value = np.zeros((1, 1, 3)), draw(1, 2, 1, 3), draw(2, 2, 1, 2)
    bilinear = draw(3, 1, 4, 2, 2)
    out = quickly(attend_to_pairs)(query, key, key, value, bilinear)
    mean = np.mean(value[:, 0], axis=0)
    np.testing.assert_allclose(out[0, 0], np.einsum("frs,r,s->f", bilinear[0], mean, mean), rtol=1e-5)


# Errors.

X, MASK = (2, 5, WIDTH), np.ones((2, 5, 4), bool)


@pytest.mark.parametrize(
    ("module", "inputs", "context", "masks", "message"),
    [
        (OneSimplicialAttention(3, 8), X, None, {}, "num_heads: got 3, expected a divisor of features = 8"),
        (two(0), X, None, {}, "num_heads: got 0, expected a divisor of features = 6"),
        (two(4), X, None, {}, "num_heads: got 4, expected a divisor of features = 6"),
        (OneSimplicialAttention(1, 0), X, None, {}, "num_heads: got 1, expected a divisor of features = 0"),
        (two(), (5,), None, {}, "inputs: got shape (5,)"),
        (OneSimplicialAttention(), (WIDTH,), (2, 4, WIDTH), {}, "inputs: got shape (10,)"),
        (OneSimplicialAttention(), X, (WIDTH,), {}, "context: got shape (10,) and dtype"),
        (OneSimplicialAttention(), X, (2, 4, 9), {}, "context: got shape (2, 4, 9), expected [..., M, V]"),
        (two(), X, (3, 4, WIDTH), {}, "batch and V of inputs (2, 5, 10)"),
        (two(), X, (2, 4, WIDTH), {"context_mask": np.ones(5, bool)}, "context_mask: got shape (5,)"),
        (two(), X, (2, 4, WIDTH), {"mask": MASK}, "mask: got shape (2, 5, 4), expected one"),
        (two(), X, (2, 4, WIDTH), {"mask": np.ones((5, 4, 4))}, "mask: got dtype float32, expected bool"),
        (
            OneSimplicialAttention(),
            X,
            None,
            {"mask": MASK},
            "mask: got shape (2, 5, 4), expected one that broadcasts to [..., N, M] = (2, 5, 5)",
        ),
    ],
)
def test_what_does_not_fit_is_named(module, inputs, context, masks, message):
    """Errors name the argument, its shape and what was expected."""
    context = None if context is None else np.zeros(context)
    with pytest.raises(ValueError, match=re.escape(message)):
        jax.eval_shape(lambda key: module.init(key, np.zeros(inputs), context, **masks), jax.random.key(0))


def test_one_feature_is_enough():
    out, _ = jax.eval_shape(OneSimplicialAttention(1, 1).init_with_output, jax.random.key(0), np.zeros(X))
    assert out.shape == (2, 5, 1)


def test_integers_are_refused():
    """Entities must be floating-point vectors."""
    with pytest.raises(ValueError, match=r"inputs: got shape \(5, 10\) and dtype int32"):
        jax.eval_shape(two().init, jax.random.key(0), np.zeros((5, WIDTH), np.int32))
