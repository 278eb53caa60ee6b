"""Layer components: positions, the embedding and its gradient, order of sublayers, steps of a decoder."""

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.tp_transformer.small import products, quickly
from tp_transformer import MultiHeadAttention, TPMultiHeadAttention, TPTransformer
from tp_transformer.layers import DecoderLayer, Embedding, EncoderLayer, FeedForward, KeysAndValues, sinusoids

pytestmark = pytest.mark.usefixtures("compiled_quickly")


def numbers(*shape, seed=0):
    """Draws standard normal numbers of a given shape."""
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)


def drawn(module, *inputs, **options):
    """Draws parameters with NumPy, none of which is 0 or 1."""
    shapes = jax.eval_shape(lambda: module.init(jax.random.key(0), *inputs, **options))["params"]
    rng = np.random.default_rng(1)
    return jax.tree.map(lambda x: (0.5 * rng.normal(size=x.shape) + 0.1).astype(x.dtype), shapes)


def test_sinusoids():
    """Matches the definition at the dataset's lengths, and known values at the first positions."""
    found = sinusoids(160, 32)
    assert found.dtype == np.float32
    for t in (0, 1, 29, 159):
        for i in range(16):
            angle = t / 10000 ** (2 * i / 32)
            np.testing.assert_allclose(
                found[t, 2 * i : 2 * i + 2], [math.sin(angle), math.cos(angle)], atol=1e-6
            )
    with pytest.raises(ValueError, match="features: got 7, expected an even number"):
        sinusoids(3, 7)


@pytest.mark.parametrize("binds_roles", [True, False])
def test_embedding(binds_roles):
    """Equation (2) for each symbol separately, and equation (8) with the same table."""
    module: Any = Embedding(5, 4, binds_roles)
    tokens, positions = jnp.asarray([[0, 3, 3], [4, 1, 2]]), sinusoids(3, 4)
    params = drawn(module, tokens, positions)
    cells = np.asarray(quickly(module.apply)({"params": params}, tokens, positions))
    table = np.asarray(params["tokens"], np.float64)
    for b, t in np.ndindex(2, 3):
        e = table[tokens[b, t]] * 2 + positions[t]
        if binds_roles:
            e = e * (e @ np.asarray(params["role"]["kernel"], np.float64) + params["role"]["bias"] + 1)
        np.testing.assert_allclose(cells[b, t], e, rtol=1e-5)
    logits = quickly(lambda p, x: module.apply({"params": p}, x, method="logits"))(params, cells)
    np.testing.assert_allclose(logits, cells @ table.T, rtol=1e-4, atol=1e-5)


NARROW = ((128, np.int8), pytest.param(256, np.uint8, marks=pytest.mark.unchecked))  # not an `Int`


@pytest.mark.parametrize(("size", "dtype"), NARROW)
def test_symbols_of_types_that_lack_their_number(size, dtype):
    """The greatest symbol is the greatest number of the type; and no symbol is out of range."""
    module: Any = Embedding(size, 4, False)
    tokens, positions = np.asarray([[0, 3, size - 1]]), sinusoids(3, 4)
    params = drawn(module, jnp.asarray(tokens), positions)
    run = quickly(lambda tokens: module.apply({"params": params}, tokens, positions))
    np.testing.assert_array_equal(run(tokens.astype(dtype)), run(tokens.astype(np.int32)))


def test_types_of_cells():
    """Those of the computation, or else of the parameters."""
    tokens, positions = jnp.zeros((1, 3), jnp.int32), sinusoids(3, 4)
    cases: list[tuple[Any, Any]] = [
        ({}, jnp.float32),
        ({"dtype": jnp.bfloat16}, jnp.bfloat16),
        ({"param_dtype": jnp.bfloat16}, jnp.bfloat16),
        ({"dtype": jnp.float32, "param_dtype": jnp.bfloat16}, jnp.float32),
    ]
    for types, wanted in cases:
        module: Any = Embedding(5, 4, True, **types)
        out, _ = jax.eval_shape(module.init_with_output, jax.random.key(0), tokens, positions)
        assert out.dtype == wanted


def test_layers_pass_on_how_attention_is_computed():
    for layer in (EncoderLayer, DecoderLayer):
        module = layer(2, 7, TPMultiHeadAttention, attention_implementation="cudnn")
        assert module._attention().implementation == "cudnn"


def test_embedding_learns_by_both_ways():
    """The table's gradient combines that of a row lookup and that of the logits."""
    module: Any = Embedding(5, 4, False)
    tokens, positions, weights = jnp.asarray([[0, 3, 3]]), np.zeros((3, 4), np.float32), numbers(1, 3, 4)
    params = drawn(module, tokens, positions)
    grad = quickly(jax.grad(lambda p: jnp.sum(weights * module.apply({"params": p}, tokens, positions))))(
        params
    )
    want = np.zeros((5, 4))
    np.add.at(want, np.asarray(tokens[0]), 2 * np.asarray(weights[0]))
    np.testing.assert_allclose(grad["tokens"], want, rtol=1e-6)
    grad = quickly(jax.grad(lambda p: module.apply({"params": p}, weights, method="logits")[0, 1, 3]))(params)
    want = np.zeros((5, 4))
    want[3] = weights[0, 1]
    np.testing.assert_allclose(grad["tokens"], want, rtol=1e-6)


def test_rows_of_the_table_are_exact():
    """Lookup by a product loses no digits when large and small numbers are mixed.

    Nor does it on accelerators, whose usual products do: it asks for the highest precision.
    """
    module: Any = Embedding(3, 4, False)
    table = jnp.asarray([[1e8, 1e-8, 1.2345678, -3.0]] * 3) * jnp.asarray([[1.0], [1e3], [1e-3]])
    cells = module.apply(
        {"params": {"tokens": table}}, jnp.asarray([[2, 0, 1]]), np.zeros((1, 4), np.float32)
    )
    np.testing.assert_array_equal(cells[0], table[jnp.asarray([2, 0, 1])] * 2)

    def rows(table):
        return module.apply({"params": {"tokens": table}}, jnp.asarray([[2]]), np.zeros((1, 4), np.float32))

    (lookup,) = products(jax.make_jaxpr(rows)(table).jaxpr)
    assert set(lookup.params["precision"]) == {jax.lax.Precision.HIGHEST}


def test_nothing_is_dropped_unless_a_rate_is_given():
    modules = (
        Embedding(5, 4, True),
        FeedForward(7),
        EncoderLayer(2, 7, TPMultiHeadAttention),
        DecoderLayer(2, 7, TPMultiHeadAttention),
    )
    assert {module.dropout_rate for module in (*modules, MultiHeadAttention(2))} == {0.0}


def test_nothing_is_dropped_unless_it_is_asked_for():
    """Without a key for it, dropout would fail. Traced, not compiled."""
    x, mask, tokens = numbers(2, 3, 4), jnp.ones((2, 3), bool), jnp.zeros((2, 3), jnp.int32)
    kept = numbers(2, 5, 2, 2)
    sizes = {"features": 4, "filter_features": 7, "num_heads": 2, "num_layers": 1, "dropout_rate": 0.5}
    calls: list[Any] = [
        (Embedding(5, 4, True, 0.5), (tokens, sinusoids(3, 4)), "__call__"),
        (FeedForward(7, 0.5), (x,), "__call__"),
        (MultiHeadAttention(2, dropout_rate=0.5), (x,), "__call__"),
        (MultiHeadAttention(2, dropout_rate=0.5), (x, kept, kept), "attend"),
        (EncoderLayer(2, 7, TPMultiHeadAttention, dropout_rate=0.5), (x, mask), "__call__"),
        (DecoderLayer(2, 7, TPMultiHeadAttention, dropout_rate=0.5), (x, x, mask), "__call__"),
        (TPTransformer(vocab_size=5, **sizes), (tokens,), "encode"),
        (TPTransformer(vocab_size=5, **sizes), (tokens, x, mask), "decode"),
    ]
    for module, inputs, method in calls:
        init = functools.partial(module.init, method=method, deterministic=True)
        params = jax.eval_shape(init, jax.random.key(0), *inputs)
        out = jax.eval_shape(functools.partial(module.apply, method=method), params, *inputs)
        assert out.shape[:2] == (2, 3)


def test_feed_forward():
    """Equation (7); `test_dropout` holds its dropout."""
    module: Any = FeedForward(7)
    x = numbers(2, 3, 4)
    params = drawn(module, x)
    hidden = np.maximum(np.asarray(x) @ params["hidden"]["kernel"] + params["hidden"]["bias"], 0)
    want = hidden @ params["output"]["kernel"] + params["output"]["bias"]
    np.testing.assert_allclose(quickly(module.apply)({"params": params}, x), want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("layer", [EncoderLayer, DecoderLayer])
def test_each_sublayer_is_added_and_the_sum_normed(layer):
    """Sublayers that return zero leave LN(z), which shows residual connections and the last LayerNorm."""
    module: Any = layer(2, 7, TPMultiHeadAttention)
    x, mask = numbers(2, 3, 4), jnp.ones((2, 3), bool)
    inputs = (x, mask) if layer is EncoderLayer else (x, numbers(2, 3, 4, seed=1), mask)
    params = drawn(module, *inputs)
    for name, part in params.items():
        if "attention" in name and "norm" not in name:
            part["output"] = jax.tree.map(np.zeros_like, part["output"])
    params["feed_forward"]["output"] = jax.tree.map(np.zeros_like, params["feed_forward"]["output"])
    x = np.asarray(x, np.float64)
    normed = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
    want = normed * params["output_norm"]["scale"] + params["output_norm"]["bias"]
    np.testing.assert_allclose(quickly(module.apply)({"params": params}, *inputs), want, rtol=1e-4, atol=1e-5)


def test_layer_norm_of_large_cells():
    """Cells in the hundreds with small differences keep their digits, as a TP-embedding needs."""
    module: Any = EncoderLayer(2, 7, TPMultiHeadAttention)
    x, mask = numbers(1, 1, 4), jnp.ones((1, 1), bool)
    params = drawn(module, x, mask)
    far = 300 + 0.01 * np.asarray(x, np.float64)
    norm = jax.jit(lambda p, x: module.apply({"params": p}, x, method=lambda m, x: m.output_norm(x)))
    found = norm(params, jnp.asarray(far, jnp.float32))
    stored = np.asarray(jnp.asarray(far, jnp.float32), np.float64)
    normed = (stored - stored.mean()) / np.sqrt(stored.var() + 1e-5)
    want = normed * params["output_norm"]["scale"] + params["output_norm"]["bias"]
    np.testing.assert_allclose(found, want, rtol=1e-2, atol=1e-3)


def test_steps_of_a_decoder_layer():
    """Stepping through positions, with two hypotheses per source, equals a single call."""
    module: Any = DecoderLayer(2, 7, TPMultiHeadAttention)
    cells, encoded = np.asarray(numbers(2, 2, 3, 4)), numbers(2, 5, 4, seed=1)
    mask = jnp.asarray([[True] * 5, [True] * 3 + [False] * 2])
    params = {"params": drawn(module, jnp.asarray(cells[:, 0]), encoded, mask)}
    room = jnp.asarray(np.full((2, 2, 2, 3, 2), 1e4, np.float32))  # unfilled places must not be read
    past = KeysAndValues(room, room)

    @quickly
    def step(cells, past, position):
        memory = module.apply(params, encoded, method="remember")
        return module.apply(params, cells, past, position, memory, mask, method="step")

    apply = quickly(lambda x: module.apply(params, x, encoded, mask))
    want = np.stack([apply(cells[:, k]) for k in range(2)], axis=1)
    for t in range(3):
        found, past = step(cells[:, :, t], past, t)
        np.testing.assert_allclose(found, want[:, :, t], rtol=1e-4, atol=1e-5)
